"""`dally twin`: what a record says, replayed and held against it; what would have been comes after."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dally.cli.main import main
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.experiments.twin.backtest import back_test, spread
from dally.experiments.twin.explaining import room_while_waiting
from dally.experiments.twin.history import History, history_of
from dally.experiments.twin.replaying import Lives, replay
from dally.experiments.twin.site import Site, recorded_cluster, with_partitions, with_rack
from dally.experiments.twin.verdict import CLOSE, OFF, grade_of
from dally.simulator.scenario import Scenario
from dally.traces import load_trace
from dally.traces.trace import Trace
from tests.twin.history import made_history, write_history
from tests.twin.other_history import write_other

JOBS = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    write_history(made, seed=21, jobs=JOBS, load=0.95)
    return made


@pytest.fixture(scope="module")
def past(folder: Path) -> History:
    return history_of(load_trace(folder / "sacct.txt"))


def trace_of(*rows: tuple[str, float, float | None, float]) -> Trace:
    """(name, submit, start, run time) of jobs of one GPU on node n1."""
    jobs = [Job(name, submit, 1) for name, submit, _, _ in rows]
    truths = [Truth(run, start=start, ran_on=(("n1", 1),) if start is not None else ()) for _, _, start, run in rows]
    return Trace("made", "test", jobs, truths)


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["twin", *words])
    return int(left.value.code or 0)


# --- the generator is one to be trusted ---------------------------------------------------------------------------


def test_the_generator_gives_no_gpu_twice_and_starts_nobody_before_it_came() -> None:
    partitions, batches = made_history(seed=5, jobs=400)
    held: dict[str, list[tuple[int, int]]] = {}
    for batch in batches:
        if batch.start is not None and batch.end is not None:
            assert batch.submit <= batch.start < batch.end and len(batch.where) == batch.nodes
            for node in batch.where:
                assert node in batch.partition.nodes
                held.setdefault(node, []).extend([(batch.start, batch.held), (batch.end, -batch.held)])
    for steps in held.values():
        used = np.cumsum([step for _, step in sorted(steps)])
        assert used.max() <= partitions[0].gpus and used.min() >= 0


# --- what a record says -------------------------------------------------------------------------------------------


def test_jobs_that_ran_when_the_record_begins_arrive_when_they_started() -> None:
    # the dump has everybody who ended after 1000: `old` ran then, `queued` waited then
    rows = [("old", 0.0, 100.0, 1500.0), ("queued", 500.0, 1600.0, 60.0), ("first", 900.0, 950.0, 50.0)]
    rows += [(f"j{n}", 1000.0 + 100 * n, 1000.0 + 100 * n, 50.0) for n in range(20)]
    found = history_of(trace_of(*rows))
    assert found.begin == 1000.0 and [each.job.id for each in found.warm] == ["old", "first"]
    arrivals = {job.id: job.submit_time for job in found.replayed().jobs}
    assert arrivals["old"] == 100.0 and arrivals["queued"] == 1000.0 and arrivals["j3"] == 1300.0
    assert not {"old", "queued", "first", "j0", "j19"} & {each.job.id for each in found.measured}


def test_a_record_without_starts_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="does not say when its jobs started"):
        history_of(trace_of(("a", 0.0, None, 60.0), ("b", 5.0, None, 60.0)))
    philly = tmp_path / "philly.csv"
    philly.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n")
    assert run("--history", str(philly), "--cluster", "1x2x8") == 2
    assert "does not say when" in capsys.readouterr().err


def test_a_job_that_still_ran_or_ran_again_is_not_measured() -> None:
    rows = [(f"j{n}", 100.0 * n, 100.0 * n, 50.0) for n in range(30)]
    trace = trace_of(*rows)
    trace.truths[15] = replace(trace.truths[15], failures=(0.5,))
    names = {each.job.id for each in history_of(trace).measured}
    assert "j14" in names and "j15" not in names


# --- the cluster --------------------------------------------------------------------------------------------------


def test_the_cluster_of_the_record_has_its_nodes_types_and_partitions(past: History) -> None:
    topology, notes = recorded_cluster(past.trace, None)
    assert topology.gpu_types == ("a100", "h100") and {machine.gpus for machine in topology.machines} == {8}
    assert topology.among("h100").bit_count() == 6 and "no cluster is described" in notes[0]


def test_nodes_without_a_type_are_as_large_as_the_fullest_of_their_partition(past: History) -> None:
    def untyped(partition: str, node: str, count: int, gpus: int) -> tuple[list[Job], list[Truth]]:
        jobs = [Job(f"{node}-{n}", 100.0 * n, gpus, partition=partition) for n in range(count)]
        return jobs, [Truth(50.0, start=100.0 * n, ran_on=((node, gpus),)) for n in range(count)]

    made = [untyped("big", "b1", 60, 8), untyped("small", "s1", 60, 4), untyped("rare", "r1", 3, 1)]
    trace = Trace("untyped", "made", [job for jobs, _ in made for job in jobs], [truth for _, truths in made for truth in truths])
    topology, notes = recorded_cluster(trace, None)
    # too little ran on r1 to say that it has no more
    assert {machine.path[-1]: machine.gpus for machine in topology.machines} == {"b1": 8, "s1": 4, "r1": 8}
    assert "1 × 4 gpu, 2 × 8 gpu" in notes[0]


def test_partitions_that_nobody_describes_are_the_nodes_their_jobs_ran_on(folder: Path, past: History) -> None:
    lines = [line for line in (folder / "slurm.conf").read_text().splitlines() if line.startswith("NodeName")]
    bare = folder / "bare"
    bare.mkdir(exist_ok=True)
    (bare / "nodes.conf").write_text("\n".join(lines) + "\n")
    topology, notes = Site(past.trace, None, bare / "nodes.conf").topology()
    assert topology.among("a100").bit_count() == 12 and any("partitions are not described" in note for note in notes)
    assert with_partitions(topology, past.trace) == (topology, [])


def test_one_more_rack_is_of_the_same_partition(folder: Path, past: History) -> None:
    topology, _ = Site(past.trace, str(folder)).topology()
    larger = with_rack(topology, "h100-s1")
    assert len(larger.machines) == len(topology.machines) + 3 and larger.among("h100").bit_count() == 9
    with pytest.raises(UserError, match="has no rack 'nowhere'; it has a100-s0"):
        with_rack(topology, "nowhere")


# --- the back-test ------------------------------------------------------------------------------------------------


def test_the_replay_of_one_job_after_another_is_what_happened() -> None:
    # two at a time on a machine of two: FIFO with nothing to decide, so that every job must come out as it was
    rows = [(f"j{n}", 50.0 * n, 50.0 * n, 80.0) for n in range(40)]
    history = history_of(trace_of(*rows))
    scenario = Scenario.of({"trace": history.trace, "cluster": "1x2", "network": "ideal"})
    test = back_test(history, replay(history, scenario, "fifo", history.measured), history.measured)
    assert test.whole.wait_error == test.whole.jct_error == 0.0 and grade_of(test) == CLOSE


def test_a_policy_that_was_not_at_work_is_found_out() -> None:
    # everybody waited 500 s although the machine was idle
    rows = [(f"j{n}", 100.0 * n, 100.0 * n + 500.0, 40.0) for n in range(60)]
    history = history_of(trace_of(*rows))
    scenario = Scenario.of({"trace": history.trace, "cluster": "1x2", "network": "ideal"})
    test = back_test(history, replay(history, scenario, "fifo", history.measured), history.measured)
    assert grade_of(test) == OFF and test.wait.bias == -500.0
    topology, _ = recorded_cluster(history.trace, None)
    room = room_while_waiting(history, topology, history.measured)
    assert room is not None and room.with_room == room.looks




def test_the_models_error_is_its_bias_and_what_blocks_of_time_leave_to_chance() -> None:
    steady = spread(np.full(100, 30.0))
    assert (steady.bias, steady.chance) == (30.0, 0.0)
    wild = spread(np.tile([60.0] * 10 + [0.0] * 10, 5))
    assert wild.bias == 30.0 and wild.chance == pytest.approx(2 * np.std([60, 0] * 5, ddof=1) / np.sqrt(10))
    assert Lives(np.array([1.0, np.nan]), np.array([3.0, np.nan])).averages == (1.0, 3.0)


def test_where_it_ran_is_no_slower_on_any_network(folder: Path, past: History) -> None:
    """Durations are those of the recorded placement: a job that is put there again takes as long, whatever the links."""
    topology, _ = Site(past.trace, str(folder)).topology()
    wide = next(each for each in past.ran.values() if len(each.truth.ran_on) > 1)
    alone = replace(past.trace, jobs=[wide.job], truths=[wide.truth])
    for network in ("ideal", "analytic"):
        made = Scenario.of({"trace": alone, "cluster": topology, "network": network, "duration_means": "as-placed"})
        run = made.prepare().run("slurm")
        assert run.ledger.rows[0].running == pytest.approx(wide.truth.duration, rel=1e-6)


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_says_the_backtest_first_and_names_what_others_rely_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--history", str(folder / "sacct.txt"), "--cluster", str(folder), "--present",
             f"slurm[conf={folder / 'slurm.conf'}]", "--policies", "fifo[backfill=any],las", "--more-racks", "h100-s0",
             "--workers", "1", "--quiet"]  # fmt: skip
    assert run(*words, "--out", str(tmp_path / "out"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    test = found["backtest"]
    assert test["jobs"] > 100 and set(test["avg_wait"]) == set(test["avg_jct"]) == {"actual", "simulated"}
    assert test["verdict"]["grade"] in ("close", "rough", "off") and test["by"]["partition"][0]["name"] == "a100"
    assert [each["policy"] for each in found["what_if"][:2]] == ["fifo[backfill=any]", "las"]
    assert found["what_if"][2]["change"] == "one h100-s0 more"
    for each in found["what_if"]:
        gap = each["wait_difference"]
        assert gap["low"] <= gap["value"] <= gap["high"] and each["makespan"] > 0
        assert each["avg_wait"] - test["avg_wait"]["simulated"] == pytest.approx(gap["value"], abs=1.0)
    assert any("placement costs no time" in text for text in found["assumptions"])
    page = (tmp_path / "out" / "twin.html").read_text()
    assert page.index("What this stands on") < page.index("does the model do") < page.index("what would have been")
    assert len((tmp_path / "out" / "jobs.csv").read_text().splitlines()) == test["jobs"] + 1
    assert json.loads((tmp_path / "out" / "twin.json").read_text()) == found


def test_outages_that_are_left_out_are_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "events.txt"
    events.write_text("NodeName|TimeStart|TimeEnd|State|Reason\na01|2026-03-02T01:00:00|2026-03-02T01:10:00|DOWN|x\n"
                      "a01|2026-03-02T03:00:00|2026-03-02T04:00:00|DRAIN|x\nzz9|2026-03-02T03:00:00|2026-03-02T04:00:00|DOWN|x\n")  # fmt: skip
    words = ["--history", str(folder / "sacct.txt"), "--cluster", str(folder), "--present", "fifo[backfill=any]", "--policies", "none"]
    assert run(*words, "--outages", str(events), "--json", "--quiet") == 0
    said = json.loads(capsys.readouterr().out)["assumptions"]
    assert "the cluster: outages: left out: 1 event of drained nodes, which end no job" in said
    assert "the cluster: outages: left out: 1 event of nodes that the cluster does not have" in said
    events.write_text("machine,down,up\nnowhere,1h,2h\n")
    assert run(*words, "--outages", str(events)) == 2
    assert "the cluster has no machine 'nowhere'" in capsys.readouterr().err


def test_without_a_configuration_the_policy_is_fitted_on_one_part_and_tested_on_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dally.experiments.twin.fitting.PASSING", ())
    monkeypatch.setattr("dally.experiments.twin.fitting.PLAIN", ("fifo[backfill=any]",))
    assert run("--history", str(folder / "sacct.txt"), "--policies", "none", "--workers", "1", "--json", "-q") == 0
    found = json.loads(capsys.readouterr().out)["backtest"]
    assert len(found["tried"]) > 1 and any(each["policy"].startswith("slurm[textbook=easy") for each in found["tried"])
    assert found["policy"] == found["tried"][0]["policy"] and "no slurm.conf" in found["how"]
    assert found["jobs"] < 0.62 * JOBS


@pytest.mark.slow
def test_over_three_histories_of_the_generator_waits_are_met_within_a_tenth_and_jct_within_a_twentieth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was changed after these seeds were seen; single ones of six days each are off by up to 14 %. The generator
    plans as textbooks do, and not as Slurm does."""
    tests = []
    for seed in (201, 202, 203):
        made = tmp_path / str(seed)
        write_history(made, seed, jobs=2000)
        present = f"slurm[conf={made / 'slurm.conf'},topology=order,one_by_one=true]"
        assert run("--history", str(made / "sacct.txt"), "--cluster", str(made), "--policies", "none", "-q", "--json",
                   "--present", present) == 0  # fmt: skip
        tests.append(json.loads(capsys.readouterr().out)["backtest"])
    for figure, allowed in (("avg_wait", 0.10), ("avg_jct", 0.05)):
        actual, simulated = (sum(test[figure][side] * test["jobs"] for test in tests) for side in ("actual", "simulated"))
        assert simulated == pytest.approx(actual, rel=allowed)
        assert all(test[figure]["simulated"] == pytest.approx(test[figure]["actual"], rel=0.15) for test in tests)


@pytest.mark.slow
def test_left_to_itself_without_a_configuration_both_generators_are_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds that nothing was chosen by."""
    write_history(tmp_path / "first", 303, jobs=2000)
    write_other(tmp_path / "other", 12, 1500)
    for words in ((str(tmp_path / "first" / "sacct.txt"),),
                  (str(tmp_path / "other" / "sacct.txt"), "--nodes", str(tmp_path / "other" / "nodes.txt"))):  # fmt: skip
        assert run("--history", *words, "--policies", "none", "-q", "--json", "--workers", "1") == 0
        found = json.loads(capsys.readouterr().out)["backtest"]
        assert found["partitions_in_order"]
        for figure, allowed in (("avg_wait", 0.10), ("avg_jct", 0.05)):
            assert found[figure]["simulated"] == pytest.approx(found[figure]["actual"], rel=allowed)
