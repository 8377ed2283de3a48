"""What a record says of the scheduler that made it: in which order it looked at jobs, and which nodes it took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.experiments.twin.choosing import choices
from dally.experiments.twin.fitting import Search, with_options
from dally.experiments.twin.history import History, history_of
from dally.experiments.twin.limits import LimitChange
from dally.experiments.twin.ordering import Order, Uses, likeliest, orders
from dally.experiments.twin.site import Site
from dally.policies.options import make_policy
from dally.policies.slurm.priority import Usage, decayed
from dally.simulator.scenario import Scenario
from dally.traces import load_trace
from dally.traces.trace import Trace
from tests.twin.history import write_history
from tests.twin.other_history import PARTITIONS, Rules, Ticking, pieces, write_other


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    write_history(made, seed=31, jobs=900, load=0.95)
    return made


@pytest.fixture(scope="module")
def past(folder: Path) -> History:
    return history_of(load_trace(folder / "sacct.txt"))


def test_the_order_of_fair_share_and_age_is_found_with_its_weights(past: History) -> None:
    found, pairs = orders(past)
    assert pairs > 100 and found[0].agrees > 0.98 and "fair_tree=false" in found[0].options
    first_come = next(order for order in found if not order.options)
    assert first_come.agrees < 0.8
    options = dict(part.split("=") for part in found[0].options.split(","))
    aged = float(options["weight_age"]) / float(options.get("max_age", 7 * 86400)) * 86400
    assert 2500 < aged < 6000  # it was 4,000 a day
    make_policy(f"slurm[{found[0].options}]")


def test_the_nodes_that_were_taken_first_are_found(folder: Path, past: History) -> None:
    topology, _ = Site(past.trace, str(folder)).topology()
    seen = choices(past, topology)
    assert seen.ranked[0] == "order" and seen.seen > 100 and seen.agreed["order"] > 0.85 * seen.seen


def test_an_order_that_is_far_behind_is_not_tried() -> None:
    found = [Order("a", 0.99, "fair"), Order("b", 0.98, "fair"), Order("c", 0.95, "tree"), Order("", 0.5)]
    assert [order.options for order in likeliest(found, 4)] == ["a", "c", "b"]


def test_an_order_that_puts_all_pairs_right_is_alone_if_no_other_nearly_does() -> None:
    others = [Order("b", 0.99, "fair"), Order("c", 0.98, "tree")]
    assert [order.options for order in likeliest([Order("a", 1.0, "fair"), *others], 4)] == ["a"]
    assert len(likeliest([Order("a", 0.994, "fair"), *others], 4)) == 3
    assert len(likeliest([Order("a", 1.0, "fair"), Order("d", 0.998, "fair"), *others], 4)) == 4


@pytest.mark.parametrize("half_life", [0.0, 43200.0, 172800.0])
def test_usage_by_arrays_is_usage_step_by_step(past: History, half_life: float) -> None:
    times = sorted(each.start for each in past.ran.values())[::7]
    found = Uses(past, times, lambda job: job.user or "").at(half_life)
    steps = sorted((moment, gpus, each.job.user or "") for each in past.ran.values()
                   for moment, gpus in ((each.start, each.job.gpus), (each.end, -each.job.gpus)))  # fmt: skip
    usage: dict[str, Usage] = {}
    at = 0
    for moment, told in zip(times, found, strict=True):
        while at < len(steps) and steps[at][0] <= moment:
            now, gpus, who = steps[at]
            before = usage.get(who, (0.0, 0.0, now))
            usage[who] = decayed(before, now, half_life), before[1] + gpus, now
            at += 1
        came = {each.job.user or "" for each in past.ran.values() if each.job.submit_time <= moment}
        assert told.keys() == came
        assert told == pytest.approx({who: decayed(usage.get(who, (0.0, 0.0, moment)), moment, half_life)
                                      for who in came})  # fmt: skip


def test_a_record_resumed_later_has_everybody_who_runs_or_comes_then(past: History) -> None:
    begin = past.begin + 0.5 * (past.until - past.begin)
    later = past.resumed(begin, 50)
    assert {name for name, each in past.ran.items() if each.end > begin} <= set(later.ran)
    over = [each for each in later.ran.values() if each.end <= begin]
    assert 0 < len(over) <= 50
    arrived = {job.id: job.submit_time for job in later.replayed().jobs}
    assert all(arrived[name] == each.start for name, each in later.ran.items() if each.start < begin)


def test_of_a_long_record_a_stretch_that_waited_is_taken_and_few_candidates_are_tried_on_all_of_it(
        past: History, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    for name, value in (("MOST_JOBS", 120), ("SHORT", 40), ("WARM", 30)):
        monkeypatch.setattr(f"dally.experiments.twin.fitting.{name}", value)
    topology, _ = Site(past.trace).topology()
    search = Search(past, Scenario.of({"trace": past.trace, "cluster": topology, "network": "ideal"}), 1, None)
    assert search.count == 120 and len(search.rest) == len(past.measured) - 120
    assert not {each.job.id for each in search.first} & {each.job.id for each in search.rest}
    search.attempt(["fifo", "fifo[backfill=any]", "fifo[backfill=easy]"])
    assert [each.jobs for each in search.tried] == [120, 120, 40]
    assert search.best != "fifo"


def test_options_of_textbooks_take_the_place_of_slurms() -> None:
    assert with_options("slurm[bf_job_part_count_reserve=1]", ["textbook=easy"]) == "slurm[textbook=easy]"
    assert with_options("slurm[textbook=easy,topology=pack]", ["textbook=no"]) == "slurm[topology=pack]"
    assert with_options("slurm", ["weight_age=5"]) is None  # nothing is weighed


@pytest.mark.parametrize("rule", ["fullest", "emptiest", "last"])
def test_the_other_generator_gives_no_gpu_twice_and_its_nodes_are_found(rule: str, tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr("tests.twin.other_history.drawn", lambda seed: Rules("first come", "easy", rule, 0.9))
    _, jobs = write_other(tmp_path, 7, 300)
    sizes = {name: gpus for name, _, _, gpus in PARTITIONS}
    held: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for each in jobs:
        assert each.submit <= each.start and len(set(each.where)) == each.nodes
        for node in each.where:
            held.setdefault((each.partition, node), []).extend([(each.start, each.gpus), (each.end, -each.gpus)])
    for (partition, _), steps in held.items():
        assert np.cumsum([step for _, step in sorted(steps)]).max() <= sizes[partition]
    past = history_of(load_trace(tmp_path / "sacct.txt"))
    topology, _ = Site(past.trace, None, tmp_path / "nodes.txt").topology()
    assert choices(past, topology).ranked[0] == {"fullest": "pack", "emptiest": "spread", "last": "last"}[rule]


def test_least_used_first_is_found_in_a_partition_of_its_own() -> None:
    rules = Rules("least used", "conservative", "fullest", 0.95)
    name, _, nodes, gpus = PARTITIONS[0]
    mine = pieces(3, 600, rules.load)[name]
    Ticking(nodes, gpus, rules).run(mine)
    jobs = [Job(each.id, float(each.submit), each.nodes * each.gpus, user=each.user, partition=name, nodes=each.nodes,
                declared_duration=float(each.limit), limit=float(each.limit)) for each in mine]  # fmt: skip
    truths = [Truth(float(each.end - each.start), start=float(each.start)) for each in mine]
    found, pairs = orders(history_of(Trace("made", "test", jobs, truths)))
    assert pairs > 50 and found[0].agrees > 0.95 and "weight_fairshare" in found[0].options


def test_a_shape_takes_the_names_and_types_of_the_records_nodes(past: History) -> None:
    topology, notes = Site(past.trace, "18x8").topology()
    assert topology.gpu_types == ("a100", "h100") and topology.among("h100").bit_count() == 6
    assert topology.machine_by_name["a01"] == 0 and any("none of the 18 nodes" in note for note in notes)


def test_other_limits_are_no_shorter_than_the_job_took_or_end_it(past: History) -> None:
    half, said = LimitChange.of("x0.5").changed(past)
    assert said.startswith("time limits × 0.5 (")
    for before, after, truth in zip(past.trace.jobs, half.trace.jobs, past.trace.truths, strict=True):
        assert before.limit is not None and after.limit is not None and truth.duration is not None
        assert after.limit == after.declared_duration <= before.limit
        assert after.limit >= min(truth.duration, before.limit) and after.limit >= before.limit / 2
    capped, said = LimitChange.of("max=2h").changed(past)
    assert "jobs ended by it" in said and max(job.limit or 0.0 for job in capped.trace.jobs) == 7200.0


@pytest.mark.parametrize("text", ["x-1", "half", "max=0", "x", "xnan"])
def test_limits_that_are_none_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"x0\.5"):
        LimitChange.of(text)


def test_a_change_that_changes_nothing_is_refused(past: History) -> None:
    with pytest.raises(UserError, match="changes no job's limit; the longest in the record is"):
        LimitChange.of("max=90d").changed(past)
