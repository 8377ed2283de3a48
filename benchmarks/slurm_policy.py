"""The policy `slurm` against Slurm itself: one stream of jobs on a test bed and in the simulator, job by job.

    python benchmarks/slurm_policy.py                     seeds 1 to 3, 40 jobs each, on 2 racks x 4 nodes x 2 GPUs
    python benchmarks/slurm_policy.py --seeds 4 --switches --cluster 2x2x4

Needs what `dally testbed up` needs (root, slurm-wlm, munge). Jobs sleep. The simulator is given what Slurm was given
(submission, nodes and GPUs, time limit, `--switches`), the time each job really ran, and the bed's own slurm.conf; what
it has to find is the order, the start times and the nodes. Figures are of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from dally.catalog.clusters.hostlist import expand
from dally.core import events as ev
from dally.core.errors import UserError
from dally.core.free import lowest_gpus
from dally.core.job import Job, Truth
from dally.core.journal import Instant, Journal
from dally.core.placement import Placement
from dally.core.plan import Start
from dally.core.scheduler import Scheduler
from dally.core.topology import Topology
from dally.live.testbed.bed import Bed, bring_up
from dally.live.testbed.clusters import read_bed_cluster
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.costs import make_cost
from dally.simulator.run import simulate
from dally.simulator.workload import prepare
from dally.traces.trace import Trace

_RATES = {"rack": 25e6, "cluster": 6.25e6}
RELEASE = 1.0  # seconds: slurmctld looks at its work once a second, and a node is free once its epilog is heard of


@dataclass(frozen=True, slots=True)
class Asked:
    """A job as it is submitted."""

    name: str
    after: float  # seconds from the first
    nodes: int
    gpus: int  # per node
    seconds: int  # it sleeps
    minutes: int  # its limit
    switches: int | None = None  # seconds it waits for one switch


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it, in seconds from the hour of the first submission; Slurm keeps whole seconds."""

    submit: float
    start: float
    end: float
    nodes: tuple[str, ...]


def stream(seed: int, jobs: int, topology: Topology, switches: bool = False) -> list[Asked]:
    """Gangs of 1 to 8 GPUs that come faster than they can be served, so that there is a queue to decide about."""
    chance = random.Random(f"slurm policy {seed}")
    per_node = min(machine.gpus for machine in topology.machines)
    asked, now = [], 0.0
    for number in range(jobs):
        wanted = min(chance.choice((1, 1, 1, 2, 2, 4, 4, 8)), topology.gpus)
        nodes = max(1, wanted // per_node)
        seconds = chance.randint(4, 45)
        limit = -(-seconds // 60) + chance.choice((0, 0, 1, 3))
        wait = chance.choice((5, 20, 60)) if switches and nodes > 1 and chance.random() < 0.5 else None
        asked.append(Asked(f"j{number}", now, nodes, min(wanted, per_node), seconds, limit, wait))
        now += chance.expovariate(0.6)
    return asked


def on_slurm(bed: Bed, asked: Sequence[Asked]) -> dict[str, Ran]:
    """Submit them in time and wait until the last has ended."""
    begin = time.monotonic()
    numbers: dict[str, str] = {}
    for job in asked:
        time.sleep(max(0.0, begin + job.after - time.monotonic()))
        words = ["sbatch", "--parsable", "-J", job.name, f"-N{job.nodes}", f"--gres=gpu:{job.gpus}", "-o", "/dev/null",
                 f"--time={job.minutes}"]  # fmt: skip
        if job.switches is not None:
            words.append(f"--switches=1@0:{job.switches:02}")
        numbers[bed.client(*words, "--wrap", f"sleep {job.seconds}").strip()] = job.name
    while _queued(bed):
        time.sleep(1.0)
    bed.wait_until_idle()
    text = (bed.folder / "log" / "completed.log").read_text()
    found: dict[str, tuple[float, float, float, tuple[str, ...]]] = {}
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        times = (datetime.fromisoformat(fields[key]).timestamp() for key in ("SubmitTime", "StartTime", "EndTime"))
        if fields["JobId"] in numbers:
            found[numbers[fields["JobId"]]] = *times, tuple(expand(fields["NodeList"]))  # type: ignore[assignment]
    # Slurm's plans are on a grid of whole minutes: a whole hour is taken off, so that the simulator has the same grid.
    first = min(times[0] for times in found.values()) // 3600 * 3600
    return {name: Ran(times[0] - first, times[1] - first, times[2] - first, times[3]) for name, times in found.items()}


def _jobs(asked: Sequence[Asked], ran: dict[str, Ran], release: float = 0.0) -> list[tuple[Job, Truth]]:
    pairs = []
    for job in asked:
        real = ran[job.name]
        made = Job(job.name, real.submit, job.nodes * job.gpus, declared_duration=job.minutes * 60.0,
                   prefers=None if job.switches is None else "rack",
                   wait=None if job.switches is None else float(job.switches))  # fmt: skip
        pairs.append((made, Truth(real.end - real.start + release)))
    return sorted(pairs, key=lambda pair: pair[0].submit_time)


def _queued(bed: Bed) -> bool:
    """Whether somebody waits or runs; a controller that is slow to answer is asked again."""
    try:
        return bool(bed.client("squeue", "-h", "-o", "%i").strip())
    except UserError:
        return True


def in_simulator(policy: str, topology: Topology, nodes: Sequence[str], asked: Sequence[Asked],
                 ran: dict[str, Ran], release: float = RELEASE) -> dict[str, Ran]:  # fmt: skip
    """The same jobs, each as long as it really ran; `nodes`: how Slurm calls the machines, in their order; `release`:
    seconds from the end of a job until somebody else may have its GPUs."""
    pairs = _jobs(asked, ran, release)
    trace = Trace("stream", "made", [job for job, _ in pairs], [truth for _, truth in pairs])
    network = make_network("ideal", topology)
    seen: list[Instant] = []
    run = simulate(prepare(trace, topology, network), topology, make_policy(policy), network, make_cost("0"),
                   sinks=(seen.append,))  # fmt: skip
    placed = {action.job: (instant.time, action.placement) for instant in seen for action in instant.decided or ()
              if isinstance(action, Start)}  # fmt: skip
    found = {}
    for row in run.ledger.rows:
        start, placement = placed[row.job_id]
        names = tuple(nodes[machine] for machine, _ in placement.slices)
        assert row.end is not None
        found[row.job_id] = Ran(ran[row.job_id].submit, start, row.end - release, names)
    return found


class Onlooker:
    """A world that is only told what happened elsewhere."""

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Sequence[object]) -> Sequence[ev.Event]:
        return ()


@dataclass(frozen=True, slots=True)
class Decisions:
    """Asked before each second in which Slurm started somebody, with everything as it really was."""

    moments: int
    same: int  # the same jobs on the same nodes
    same_jobs: int  # … on whichever nodes
    starts: int
    started: int  # of them, by the policy as well
    quiet: int  # moments at which something had happened and Slurm started nobody for two seconds …
    quiet_same: int  # … and the policy would not have either


def decisions(policy: str, topology: Topology, nodes: Sequence[str], asked: Sequence[Asked],
              real: dict[str, Ran]) -> Decisions:  # fmt: skip
    """What the policy would have decided where Slurm did, one decision at a time: what differs once does not make the
    rest differ. Slurm's times are whole seconds: whether it knew of what ended or came in the second of a start is not
    known, so that every selection of that is tried, and the best counts."""
    jobs = {job.id: job for job, _ in _jobs(asked, real)}
    moments = sorted({run.start for run in real.values()})
    same = same_jobs = started = 0
    quiet = _quiet(real)
    quiet_same = sum(not _would_start(policy, topology, nodes, jobs, real, moment, ()) for moment in quiet)
    for moment in moments:
        theirs = {name: set(run.nodes) for name, run in real.items() if run.start == moment}
        found: list[dict[str, set[str]]] = []
        unsure = [name for name, run in real.items() if moment in (run.end, run.submit) and name not in theirs][:8]
        for chosen in range(1 << len(unsure)):
            unseen = {name for index, name in enumerate(unsure) if chosen >> index & 1}
            found.append(_would_start(policy, topology, nodes, jobs, real, moment, unseen))
        same += theirs in found
        same_jobs += any(set(ours) == set(theirs) for ours in found)
        started += max(len(set(ours) & set(theirs)) for ours in found)
    return Decisions(len(moments), same, same_jobs, len(real), started, len(quiet), quiet_same)


def _quiet(real: dict[str, Ran]) -> list[float]:
    """Two seconds after something happened, where nothing else did and nobody was started in between."""
    starts = {run.start for run in real.values()}
    events = {time for run in real.values() for time in (run.submit, run.end)}
    return sorted(time + 2.0 for time in events
                  if not any(time + later in starts for later in (0, 1, 2))
                  and not any(time + later in events for later in (1, 2)))  # fmt: skip


def _would_start(policy: str, topology: Topology, nodes: Sequence[str], jobs: dict[str, Job], real: dict[str, Ran],
                 moment: float, unseen: Collection[str]) -> dict[str, set[str]]:  # fmt: skip
    scheduler = Scheduler(topology, make_policy(policy), Onlooker(), Journal())
    _retell(scheduler, jobs, nodes, real, moment, unseen)
    return {action.job: {nodes[machine] for machine, _ in action.placement.slices}
            for action in scheduler.ask(moment).plan if isinstance(action, Start)}  # fmt: skip


def _retell(scheduler: Scheduler, jobs: dict[str, Job], nodes: Sequence[str], real: dict[str, Ran], moment: float,
            unseen: Collection[str]) -> None:  # fmt: skip
    """The story up to the moment, as it was, without what was just done by those `unseen`."""
    machines = {name: index for index, name in enumerate(nodes)}
    story: list[tuple[float, int, str]] = []
    for name, run in real.items():
        happened = [(run.submit, 1, name)]
        if run.start < moment:
            happened += [(run.start, 2, name), (run.end, 0, name)]
        story += [entry for entry in happened if entry[0] < moment or (entry[0] == moment and name not in unseen)]
    for now, kind, name in sorted(story):
        if kind == 2:
            each = jobs[name].gpus // len(real[name].nodes)
            masks = scheduler.free.masks
            taken = Placement.of((m, lowest_gpus(masks[m], each)) for m in map(machines.__getitem__, real[name].nodes))
            scheduler.follow(Instant(now, (), [Start(name, taken)]))
            scheduler.follow(Instant(now, [ev.Started(name)], None))
        else:
            scheduler.follow(Instant(now, [ev.Finished(name) if kind == 0 else ev.Arrived(jobs[name])], None))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the simulated run is from the real one."""

    jobs: int
    same_place_in_order: float  # share of jobs at the same place in the order of starts
    pairs_in_order: float  # share of pairs that started at different seconds, in the same order
    same_nodes: float
    start_median: float  # of the differences of start times, without sign
    start_p90: float
    start_max: float
    start_bias: float  # mean of real − simulated
    wait_real: float  # average
    wait_simulated: float
    makespan_real: float
    makespan_simulated: float


def agreement(real: dict[str, Ran], simulated: dict[str, Ran]) -> Agreement:
    names = list(real)
    order_real = sorted(names, key=lambda name: (real[name].start, real[name].submit, names.index(name)))
    order_sim = sorted(names, key=lambda name: (simulated[name].start, real[name].submit, names.index(name)))
    same = sum(a == b for a, b in zip(order_real, order_sim, strict=True))
    agree = pairs = 0
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            later = real[one].start - real[other].start
            if abs(later) >= 1.0:
                pairs += 1
                agree += later * (simulated[one].start - simulated[other].start) > 0
    apart = sorted(abs(real[name].start - simulated[name].start) for name in names)
    mean, first = statistics.fmean, min(run.submit for run in real.values())
    return Agreement(
        len(names), same / len(names), agree / max(1, pairs),
        mean(set(real[name].nodes) == set(simulated[name].nodes) for name in names), statistics.median(apart),
        apart[int(0.9 * (len(apart) - 1))], apart[-1], mean(real[name].start - simulated[name].start for name in names),
        mean(real[name].start - real[name].submit for name in names),
        mean(simulated[name].start - real[name].submit for name in names),
        max(run.end for run in real.values()) - first, max(run.end for run in simulated.values()) - first)  # fmt: skip


def compare(bed: Bed, topology: Topology, asked: Sequence[Asked],
            policy: str = "") -> tuple[Agreement, Decisions, dict[str, Ran], dict[str, Ran]]:  # fmt: skip
    real = on_slurm(bed, asked)
    policy = policy or f"slurm[conf={bed.folder}/slurm.conf]"
    nodes = [node.name for node in bed.layout.nodes]
    simulated = in_simulator(policy, topology, nodes, asked, real)
    one_by_one = decisions(policy, topology, nodes, asked, real)
    return agreement(real, simulated), one_by_one, real, simulated


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--cluster", default="2x4x2")
    parser.add_argument("--switches", action="store_true", help="half of the larger gangs wait for one switch")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="of the bed's slurm.conf")
    parser.add_argument("--out", type=Path, help="a folder for what was asked, and what ran, as JSON")
    parser.add_argument("--verbose", action="store_true")
    chosen = parser.parse_args()
    topology, text, _ = read_bed_cluster(chosen.cluster)
    for seed in chosen.seeds:
        folder = Path(tempfile.mkdtemp(prefix="slurm-policy-"))
        bed = bring_up(f"p{os.getpid()}", topology, text, folder / "bed", _RATES, chosen.conf)
        try:
            asked = stream(seed, chosen.jobs, topology, chosen.switches)
            found, one_by_one, real, simulated = compare(bed, topology, asked)
            if chosen.out is not None:
                chosen.out.mkdir(parents=True, exist_ok=True)
                shutil.copy(bed.folder / "slurm.conf", chosen.out / f"slurm-{seed}.conf")
                plain = {"asked": [asdict(job) for job in asked], "real": {n: asdict(r) for n, r in real.items()}}
                (chosen.out / f"seed-{seed}.json").write_text(json.dumps(plain))
        finally:
            bed.down()
            shutil.rmtree(folder)
        print(f"seed {seed}: {found.jobs} jobs; same place in the order {found.same_place_in_order:.0%}, pairs in "
              f"order {found.pairs_in_order:.1%}, same nodes {found.same_nodes:.0%}; start off by median "
              f"{found.start_median:.1f} s, p90 {found.start_p90:.1f} s, at most {found.start_max:.1f} s (mean "
              f"{found.start_bias:+.1f} s); average wait {found.wait_real:.1f} s, simulated {found.wait_simulated:.1f} "
              f"s; makespan {found.makespan_real:.0f} s, simulated {found.makespan_simulated:.0f} s")  # fmt: skip
        print(f"  one by one, each from what really was: same jobs on the same nodes {one_by_one.same} of "
              f"{one_by_one.moments} decisions, same jobs {one_by_one.same_jobs}; {one_by_one.started} of "
              f"{one_by_one.starts} starts; nobody started either in {one_by_one.quiet_same} of {one_by_one.quiet} "
              "quiet moments")  # fmt: skip
        if chosen.verbose:
            for job in sorted(asked, key=lambda job: real[job.name].start):
                ours, theirs = simulated[job.name], real[job.name]
                print(f"  {job.name:>4} {job.nodes}x{job.gpus} {job.seconds:>3}s/{job.minutes}m submit "
                      f"{theirs.submit:5.0f} start {theirs.start:5.0f} simulated {ours.start:7.1f}  "
                      f"{','.join(theirs.nodes):<24} {','.join(ours.nodes)}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
