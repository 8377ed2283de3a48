"""Space sharing: which pairs are packed, where, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builders import Flat, Pairwise, Played, Spec, cluster, job, mixed_cluster, outages, play, watched_steps
from dally.catalog.throughputs import Throughputs
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.scheduler import Scheduler
from dally.core.sharing import Interference
from dally.core.topology import Topology
from dally.policies.gavel.pairs import dealt
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.traces.trace import Trace

SHARED = "gavel[space_sharing=true]"


def shared(jobs: Sequence[Spec], topology: Topology, interference: Interference, policy: str = SHARED,
           **more: object) -> Played:  # fmt: skip
    """Run, and look after every instant: every group is one job or one pair, and all its jobs run at once."""

    def check(scheduler: Scheduler, now: float) -> None:
        for group in scheduler.books.view.groups:
            assert len(group.turns) == 1 and len(group) <= 2, f"at {now}: {group.turns}"

    with watched_steps(check):
        return play(jobs, topology, policy, interference=interference, **more)  # type: ignore[arg-type]


def packed(played: Played) -> list[tuple[float, str, str]]:
    """(when, who, beside whom) of everybody who was put beside another."""
    return [(now, entry.job, entry.share.beside) for now, entry in played.entries
            if isinstance(entry, (pl.Start, pl.Migrate)) and entry.share and entry.share.beside]  # fmt: skip


def test_a_pair_that_gains_is_packed_and_stays_so_at_no_cost() -> None:
    jobs = [job("a", 1, 3600.0), job("b", 1, 3600.0)]
    played = shared(jobs, cluster(1), Pairwise(1.25), cost="100s")
    assert packed(played) == [(0.0, "b", "a")]
    assert len(played.of(pl.Start)) == 2 and not played.of(pl.Preempt) and not played.of(pl.Migrate)
    assert played.end("a") == played.end("b") == pytest.approx(1.25 * 3600.0)


def test_a_pair_that_would_take_as_long_as_in_turn_is_not_packed() -> None:
    played = shared([job("a", 1, 3600.0), job("b", 1, 3600.0)], cluster(1), Pairwise(2.0))
    assert not packed(played)
    assert played.times(pl.Start, "b")[0] == 360.0


def test_the_least_gain_is_an_option() -> None:
    jobs = [job("a", 1, 3600.0), job("b", 1, 3600.0)]
    assert packed(shared(jobs, cluster(1), Pairwise(1.25)))
    assert not packed(shared(jobs, cluster(1), Pairwise(1.25), "gavel[space_sharing=true,pack_above=1.6]"))


def test_jobs_whose_memory_does_not_fit_together_are_not_packed() -> None:
    played = shared([job("a", 1, 3600.0), job("b", 1, 3600.0)], cluster(1), Pairwise(1.0, most=1))
    assert not packed(played)


def test_only_gangs_of_one_size_are_packed() -> None:
    played = shared([job("a", 1, 3600.0), job("b", 2, 3600.0), job("c", 2, 3600.0)], cluster(1, 2), Pairwise(1.1))
    assert packed(played) and all({who, beside} == {"b", "c"} for _, who, beside in packed(played))


def test_nobody_is_packed_while_there_are_gpus_for_everybody() -> None:
    assert not packed(shared([job("a", 1, 3600.0), job("b", 1, 3600.0)], cluster(2), Pairwise(1.0)))


def test_when_one_of_a_pair_ends_the_other_goes_on_alone_on_its_gpus() -> None:
    played = shared([job("a", 1, 1000.0), job("b", 1, 3000.0)], cluster(1), Pairwise(1.25))
    assert played.end("a") == pytest.approx(1250.0)
    assert played.end("b") == pytest.approx(1250.0 + (3000.0 - 1000.0))
    assert len(played.of(pl.Start)) == 2 and not played.of(pl.Migrate) and not played.of(pl.Preempt)


def test_three_jobs_on_one_gpu_take_turns_in_pairs() -> None:
    jobs = [job(name, 1, 7200.0) for name in "abc"]
    played = shared(jobs, cluster(1), Pairwise(1.25))
    assert {frozenset((who, beside)) for _, who, beside in packed(played)} == {
        frozenset("ab"), frozenset("ac"), frozenset("bc")}  # fmt: skip
    assert played.of(pl.Preempt), "somebody has to make room for the third"
    alone = play(jobs, cluster(1), "gavel")
    assert max(filter(None, played.jcts().values())) < 0.7 * max(filter(None, alone.jcts().values()))


def test_a_pair_as_a_whole_makes_room_for_others() -> None:
    jobs = [job(name, 1, 7200.0) for name in "abcd"]
    played = shared(jobs, cluster(1), Pairwise(1.25), "gavel[space_sharing=true,partners=1]", cost="10s")
    at_once = [now for now in played.times(pl.Preempt) if played.times(pl.Preempt).count(now) == 2]
    assert at_once, "with one partner each there are two pairs, and they swap"
    assert {frozenset((who, beside)) for _, who, beside in packed(played)} == {frozenset("ab"), frozenset("cd")}
    assert all(played.outcome(name) == "finished" for name in "abcd")


def test_a_job_that_crashes_leaves_its_partner_running_and_comes_back() -> None:
    from dally.simulator.faults import Faults

    jobs = [job("a", 1, 3600.0), job("b", 1, 3600.0)]
    played = shared(jobs, cluster(1), Pairwise(1.25), faults=Faults(1, job_mtbf=2000.0, retries=99, seed=3))
    assert played.of(ev.Interrupted), "the faults of this seed hit somebody"
    assert all(played.outcome(name) == "finished" for name in "ab")


def test_a_machine_that_goes_down_takes_both_jobs_of_a_pair_and_both_come_back() -> None:
    tree = cluster(2, 1)
    jobs = [job(f"j{i}", 1, 3000.0) for i in range(4)]
    played = shared(jobs, tree, Pairwise(1.25), faults=outages(tree, {0: [(500.0, 900.0)]}))
    assert len(played.of(ev.Interrupted)) == 2
    assert all(played.outcome(f"j{i}") == "finished" for i in range(4))


def test_with_columns_for_spread_gangs_pairs_are_packed_too() -> None:
    jobs = [job(f"j{i}", 2, 3000.0) for i in range(5)]
    played = shared(jobs, cluster(1, 2, 2), Pairwise(1.2), "gavel[space_sharing=true,placement_sensitive=true]",
                    network="level-penalty", cost=Flat(5.0, 10.0))  # fmt: skip
    assert packed(played)
    assert all(played.outcome(f"j{i}") == "finished" for i in range(5))


def test_free_gpus_inside_a_round_are_given_out_where_that_is_asked_for() -> None:
    jobs = [job("a", 1, 1000.0), job("b", 1, 100.0, submit=50.0)]
    policy = "gavel[space_sharing=true,backfill=true]"
    assert shared(jobs, cluster(2), Pairwise(1.25), policy).times(pl.Start, "b") == [50.0]


# --- measured pairs -------------------------------------------------------------------------------------------

ALONE = {"V100": {("x", 1): 10.0, ("y", 1): 4.0}, "K80": {("x", 1): 2.0, ("y", 1): 1.0}}
BESIDE = {"V100": {(("x", 1), ("y", 1)): (8.0, 3.0), (("x", 1), ("x", 1)): (5.0, 5.0)},
          "K80": {(("x", 1), ("y", 1)): (0.0, 0.0)}}  # fmt: skip


def measured(models: str, cluster_text: str = "v100", interference: str = "auto") -> tuple[Run, dict[str, float]]:
    """The run, and how fast jobs were in company: `{"x beside y": 0.8}` of their speed alone on the best GPU."""
    topology = {"v100": mixed_cluster(v100=(1,)), "k80": mixed_cluster(k80=(1,))}[cluster_text]
    jobs = [Job(f"{model}{i}", 0.0, 1, model=model) for i, model in enumerate(models)]
    trace = Trace("made", "made", jobs, [Truth(None, steps=36_000.0) for _ in jobs])
    table = Throughputs("the table", ALONE, {}, BESIDE)
    made = Experiment(trace, topology, "ideal", "0", throughputs=table, interference=interference)
    speeds: dict[str, float] = {}

    def check(scheduler: Scheduler, now: float) -> None:
        for group in scheduler.books.view.groups:
            for job_id in group.members:
                for other in group.others(job_id):
                    speeds[f"{job_id[0]} beside {other[0]}"] = scheduler.books.jobs[job_id].speed

    with watched_steps(check):
        return made.run(SHARED), speeds


def test_packed_jobs_run_at_the_tables_speed_of_their_pair() -> None:
    run, speeds = measured("xy")
    assert speeds == {"x beside y": pytest.approx(8.0 / 10.0), "y beside x": pytest.approx(3.0 / 4.0)}
    assert max(row.end or 0.0 for row in run.ledger.rows) < 0.85 * (36_000 / 10.0 + 36_000 / 4.0)


def test_a_pair_the_table_measured_at_half_speed_is_not_packed() -> None:
    assert not measured("xx")[1]


def test_a_pair_the_table_says_does_not_run_is_not_packed() -> None:
    assert not measured("xy", "k80")[1]


def test_another_interference_overrides_the_tables_pairs_for_world_and_policy_alike() -> None:
    run, speeds = measured("xx", interference="none")
    assert speeds == {"x beside x": 1.0}
    assert run.ledger.row("x0").jct == pytest.approx(3600.0)


# --- who is considered with whom --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("sizes", [(1, 0), (2, 0), (7, 0), (8, 0), (3, 5), (6, 2), (1, 9)])
def test_every_job_is_dealt_few_partners_and_none_twice(sizes: tuple[int, int], most: int) -> None:
    ours, theirs = list(range(sizes[0])), list(range(100, 100 + sizes[1]))
    left = [most] * 200
    same = not theirs
    found = dealt(ours, ours if same else theirs, left, same=same)
    assert len({frozenset(pair) for pair in found}) == len(found)
    assert all(first != second for first, second in found)
    for place in (*ours, *theirs):
        assert sum(place in pair for pair in found) == most - left[place] <= most
    others = len(ours) - 1 if same else min(len(ours), len(theirs))
    assert len(found) >= min(most, others) * (len(ours) if same else others) // 2, "nobody is left out needlessly"


def test_pack_above_is_between_what_turns_give_and_what_nobody_reaches() -> None:
    from dally.policies.options import make_policy

    with pytest.raises(UserError, match="below 2"):
        make_policy("gavel[space_sharing=true,pack_above=2]")
