"""The engine on a real Slurm, in namespaces: placed as ordered, ended once, and not fooled by anybody behind its back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_attempts import QUICK, Engines

from dally.live.engine import Exited, NotBegun, Standing, Vanished
from dally.live.local.folder import Stage
from dally.live.slurm.folder import SlurmFolder
from dally.live.slurm.ordering import Mark, options, plain_order, script
from dally.live.testbed.bed import Bed
from slurmbed import bed, gpus_used, job_state, until

RENDEZVOUS = """
import os, socket, sys
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
print("interface", os.environ.get("GLOO_SOCKET_IFNAME"))
if rank == 0:
    listening = socket.create_server(where)
    for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
        listening.accept()[0].sendall(b"met")
else:
    for _ in range(100):
        try:
            talking = socket.create_connection(where, 1)
            break
        except OSError:
            import time; time.sleep(0.1)
    sys.exit(0 if talking.recv(3) == b"met" else 5)
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Bed]:
    with bed("2x2x2", conf=("SlurmdTimeout=10", "KillWait=5")) as found:
        yield found


@pytest.fixture
def engines(made: Bed, tmp_path: Path) -> Iterator[Engines]:
    found = Engines(made, tmp_path / "state")
    yield found
    found.engine.clear()
    found.engine.close()
    until(lambda: not any(gpus_used(made).values()), 90.0)  # a controller that was killed may take a while to see it


def test_ranks_are_where_they_were_ordered_and_the_code_of_the_one_that_fails_is_told(engines: Engines) -> None:
    engines.engine.start(engines.order("even", [(0, 1), (1, 1)]))
    engines.engine.start(engines.order("whole", [(2, 2), (3, 2)], processes="gpu"))
    engines.engine.start(engines.order("uneven", [(2, 2), (3, 1)], processes="gpu"))
    engines.engine.start(engines.order("fails", [(0, 1)], code=3))
    engines.engine.start(engines.order("absent", [(1, 1)], command=["/no/such/program"]))
    assert [type(engines.end(job)) for job in ("even", "whole", "fails")] == [Exited] * 3
    assert [engines.end(job).code for job in ("even", "whole", "fails")] == [0, 0, 3]  # type: ignore[union-attr]
    absent, uneven = engines.end("absent"), engines.end("uneven")
    assert isinstance(absent, NotBegun) and "/no/such/program" in absent.cause
    assert isinstance(uneven, NotBegun) and "cannot be told to give it 2, 1 GPUs" in uneven.cause
    names = [name.rpartition("/")[2] for name in engines.topology.machine_names]
    begun = sorted(words[3:8] for words in engines.said("whole") if words[0] == "begin")
    assert [(rank, local, world, node) for rank, local, world, node, _ in begun] == [
        ("0", "0", "4", names[2]), ("1", "1", "4", names[2]), ("2", "0", "4", names[3]), ("3", "1", "4", names[3])]  # fmt: skip
    assert [len(devices.split(",")) for *_, devices in begun] == [2, 2, 2, 2]


def test_ranks_on_several_nodes_find_each_other(engines: Engines) -> None:
    engines.engine.start(engines.order("meet", [(1, 1), (2, 1)], command=[sys.executable, "-c", RENDEZVOUS]))
    assert engines.end("meet") == Exited("meet", 1, 0)
    printed = (engines.state / "attempts" / "meet.1" / "out.log").read_text()
    assert printed.count("interface") == 2 and "interface None" not in printed and "interface lo" not in printed


def test_who_is_asked_to_leave_saves_on_every_node_and_who_does_not_is_put_out(engines: Engines) -> None:
    stubborn = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"]
    engines.engine.start(engines.order("saves", [(0, 1), (3, 1)], 99.0))
    engines.engine.start(engines.order("stays", [(1, 1)], command=stubborn))
    engines.until(lambda: len(engines.said("saves")) == 2 and engines.began("stays"))
    engines.engine.stop("saves", 1, 20.0)
    engines.engine.stop("stays", 1, 1.0)
    assert engines.end("saves") == Exited("saves", 1, 143)
    assert engines.end("stays") == Exited("stays", 1, -9)


def test_jobs_of_others_and_drained_nodes_are_noticed_and_their_end_too(engines: Engines, made: Bed) -> None:
    engines.until(lambda: engines.stands(3) is not None)
    node = engines.topology.machine_names[0].rpartition("/")[2]
    foreign = made.client("sbatch", "--parsable", f"-w{node}", "--gpus-per-node=1", "-o/dev/null", "--wrap",
                          "sleep 99").strip()  # fmt: skip
    name = engines.topology.machine_names[0]
    engines.until(lambda: engines.stands(0) == Standing(name, "up", 1))
    made.client("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    engines.until(lambda: engines.stands(0) == Standing(name, "drained", 1))
    made.client("scancel", foreign)
    made.client("scontrol", "update", f"NodeName={node}", "State=RESUME")
    engines.until(lambda: engines.stands(0) == Standing(name, "up", 0))


def test_what_is_done_behind_our_back_is_noticed_and_explained(engines: Engines, made: Bed) -> None:
    for job, machine in (("cancelled", 0), ("requeued", 1), ("held", 2)):
        engines.engine.start(engines.order(job, [(machine, 2)], 99.0))
    engines.until(lambda: all(engines.said(job) for job in ("cancelled", "requeued", "held")))
    blocked = engines.order("moved", [(2, 2)], 99.0)  # waits for GPUs until somebody sends it elsewhere
    engines.engine.start(blocked)
    made.client("scancel", str(engines.slurm_id("cancelled")))
    requeued = str(engines.slurm_id("requeued"))
    made.client("scontrol", "update", f"JobId={requeued}", "Requeue=1")
    made.client("scontrol", "requeue", requeued)
    end = engines.end("cancelled")
    assert isinstance(end, Exited) and "cancelled behind our back" in end.cause
    again = engines.end("requeued")
    assert isinstance(again, Exited) and again.asked and again.code == 143  # it saved: another attempt goes on from there
    other = engines.topology.machine_names[3].rpartition("/")[2]
    made.client("scontrol", "update", f"JobId={engines.slurm_id('moved')}", f"ReqNodeList={other}")
    moved = engines.end("moved")
    assert "edited behind our back" in moved.cause and other in moved.cause  # type: ignore[union-attr]
    assert len([words for words in engines.said("requeued") if words[0] == "begin"]) == 1


def test_a_gang_ends_when_one_of_its_nodes_died_and_was_back_before_slurm_missed_it(made: Bed, tmp_path: Path) -> None:
    engines = Engines(made, tmp_path / "state", replace(QUICK, silence=4.0))
    try:
        engines.engine.start(engines.order("gang", [(0, 1), (1, 1)], 300.0))
        engines.until(lambda: len([words for words in engines.said("gang") if words[0] == "begin"]) == 2)
        time.sleep(3.0)  # both have said that they are there
        node = made.layout.nodes[1].name
        made.kill_node(node, jobs=True)
        made.start_node(node)
        ended = engines.end("gang")
        assert isinstance(ended, Vanished) or (isinstance(ended, Exited) and ended.code != 0)
    finally:
        engines.engine.close()


def test_another_engine_takes_up_what_one_left_at_any_point(engines: Engines, made: Bed) -> None:
    """Running; ended meanwhile; submitted and never released, its id not even on record; decided and never submitted."""
    first = engines.engine
    first.start(engines.order("runs", [(0, 1)], 4.0))
    first.start(engines.order("ends", [(1, 1)], 0.0, 7))
    engines.until(lambda: engines.began("runs") and engines.began("ends"))
    first.close()
    order = engines.order("between", [(2, 1), (3, 1)])
    folder = SlurmFolder(engines.state / "attempts", "between", 1)
    plain = plain_order(order, folder, state=engines.state, addresses=first._addresses, taken=set(), log_size=10**6,
                        log_files=2, srun=())  # fmt: skip
    folder.prepare(plain)
    text = script(sys.executable, engines.state / "bin" / "batch.py", folder.path)
    handed = options(plain, Mark(first.service, "between", 1, plain["token"]), "between", folder, ())
    engines.slurm.submit(text, handed)
    engines.reports.clear()
    time.sleep(1.0)
    engines.new()
    assert engines.engine.running()["runs"] == 1
    for job in ("runs", "ends", "between", "never"):
        engines.engine.adopt(job, 1)
    assert engines.end("never") == NotBegun("never", 1, "it never began", void=True)
    assert engines.end("between") == Exited("between", 1, 0)
    assert engines.end("ends") == Exited("ends", 1, 7)
    assert engines.end("runs") == Exited("runs", 1, 0)
    assert all(len([words for words in engines.said(job) if words[0] == "begin"]) == count
               for job, count in (("runs", 1), ("ends", 1), ("between", 2)))  # fmt: skip
    # A leader of yesterday wakes up and hands in what was given up: it runs nothing.
    late = SlurmFolder(engines.state / "attempts", "never", 1)
    assert late.look().stage is Stage.VOID
    (late.path / "order.json").write_text(json.dumps({**plain, "job": "never"}))
    number = engines.slurm.submit(script(sys.executable, engines.state / "bin" / "batch.py", late.path),
                                  ["--gpus-per-node=1", "-o/dev/null", "--no-requeue"])  # fmt: skip
    engines.slurm.release([number])
    engines.until(lambda: job_state(made, str(number)) not in ("PENDING", "RUNNING", "COMPLETING"))
    assert late.look().stage is Stage.VOID and not engines.said("never")
