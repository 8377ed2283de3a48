"""The files of a bed's Slurm: slurm.conf, topology.conf, gres.conf, hosts and env.sh, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.live.testbed.layout import CPUS_PER_GPU, Layout, Node

# What makes it run as it is, on one host and as root; the rest is for a small cluster that should react at once.
SETTINGS = {
    "AuthType": "auth/munge",
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "MpiDefault": "none",
    "SwitchType": "switch/none",
    "GresTypes": "gpu",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "TopologyPlugin": "topology/tree",
    "SlurmdParameters": "config_overrides",  # the host has fewer cores than its nodes claim
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "batch_sched_delay=0,bf_interval=1,sched_interval=1,sched_min_interval=2000",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "ReturnToService": "2",  # a node whose daemon is back takes jobs again
    "SlurmctldTimeout": "10",
    "SlurmdTimeout": "20",
    "MessageTimeout": "10",
    "KillWait": "10",
    "MinJobAge": "300",
    "JobRequeue": "1",
    "JobCompType": "jobcomp/filetxt",
}
LINES = ("nodename", "partitionname", "nodeset", "downnodes")  # may stand more than once
PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"


def slurm_conf(layout: Layout, extra: Sequence[str] = ()) -> str:
    """`extra` are lines of slurm.conf that win over ours; a PartitionName among them replaces our partition."""
    folder = layout.folder
    settings = {
        "ClusterName": layout.name,
        "SlurmctldHost": f"{layout.name}-ctl({layout.controller})",
        "AuthInfo": f"socket={munge_socket(folder)},cred_expire=5",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd-%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd-%n.log",
        "JobCompLoc": f"{folder}/log/completed.log",
    } | SETTINGS
    ours = {key.lower(): key for key in settings}
    lines = []
    for line in extra:
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not key.isalnum():
            raise UserError(f"{line!r} is no line of slurm.conf: write Key=Value")
        if key.lower() in LINES:
            lines.append(line.strip())
        else:
            settings[ours.setdefault(key.lower(), key)] = value
    if not any(line.lower().startswith("partitionname") for line in lines):
        lines.append(PARTITION)
    text = [f"{key}={value}" for key, value in settings.items()]
    text += [f"NodeName={node.name} NodeHostname={node.name} NodeAddr={node.address} "
             f"CPUs={CPUS_PER_GPU * node.gpus} Gres={_gres(node)} State=UNKNOWN" for node in layout.nodes]  # fmt: skip
    return "\n".join([*text, *lines]) + "\n"


def _gres(node: Node) -> str:
    return f"gpu:{node.gpu_type}:{node.gpus}" if node.gpu_type else f"gpu:{node.gpus}"


def gres_conf(layout: Layout) -> str:
    lines = []
    for node in layout.nodes:
        kind = f" Type={node.gpu_type}" if node.gpu_type else ""
        numbers = "0" if node.gpus == 1 else f"[0-{node.gpus - 1}]"
        lines.append(f"NodeName={node.name} Name=gpu{kind} File={layout.folder}/dev/{node.name}/gpu{numbers}")
    return "\n".join(lines) + "\n"


def topology_conf(layout: Layout) -> str:
    lines = []
    for index, switch in enumerate(layout.switches):
        below = [other.name for other in layout.switches if other.parent == index]
        nodes = [node.name for node in layout.nodes if node.switch == index]
        members = f"Switches={','.join(below)}" if below else f"Nodes={','.join(nodes)}"
        lines.append(f"SwitchName={switch.name} {members}")
    return "\n".join(lines) + "\n"


def hosts(layout: Layout) -> str:
    """What the nodes see as /etc/hosts, so that a job finds the others by name."""
    lines = ["127.0.0.1 localhost", f"{layout.controller} {layout.name}-ctl", f"{layout.host} host"]
    return "\n".join([*lines, *(f"{node.address} {node.name}" for node in layout.nodes)]) + "\n"


def environment(layout: Layout) -> dict[str, str]:
    """All that a client needs is SLURM_CONF; the others say where the bed is."""
    return {
        "SLURM_CONF": f"{layout.folder}/slurm.conf",
        "DALLY_TESTBED": layout.name,
        "DALLY_TESTBED_HOST": layout.host,
    }


def env_sh(variables: Mapping[str, str]) -> str:
    from shlex import quote

    return "".join(f"export {key}={quote(value)}\n" for key, value in variables.items())


def munge_socket(folder: Path) -> Path:
    return folder / "munge" / "socket"
