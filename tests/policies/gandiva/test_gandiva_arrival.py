"""Gandiva's five steps, one after the other, and what a departure does."""

from __future__ import annotations

import pytest

from builders import Played, Spec, cluster, job, mixed_cluster, outages, play, watched_steps
from dally.catalog.interference import CatalogInterference
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.scheduler import Scheduler
from dally.core.topology import Topology
from dally.policies.gandiva import Gandiva
from dally.policies.options import make_policy


def run(specs: list[Spec], topology: Topology, options: str = "packing=false", **more: object) -> Played:
    return play(specs, topology, f"gandiva[{options}]", interference=CatalogInterference(), **more)  # type: ignore[arg-type]


def where(played: Played, job_id: str, kind: type = pl.Start) -> str:
    (_, action), *_ = played.of(kind, job_id)
    return str(action.placement.text())  # type: ignore[union-attr]


def test_a_job_goes_to_the_least_loaded_server_for_its_size_before_a_server_for_no_size() -> None:
    played = run([job("a", 2, 100), job("b", 2, 100, 1), job("c", 1, 100, 2), job("d", 1, 100, 3)], cluster(3, 4))
    assert where(played, "a") == "0:3"
    assert where(played, "b") == "0:c"  # step 1: the server for jobs of two
    assert where(played, "c") == "1:1"  # step 2: a server for no size yet, not the third for anybody
    assert where(played, "d") == "1:2"


def test_among_servers_for_its_size_the_one_with_most_free_gpus_is_taken() -> None:
    early = [job(f"e{i}", 1, 500, 0.01 * i) for i in range(8)]
    ends = [job("x", 1, 50, 1)]  # goes to the third server, and is gone at 51
    played = run([*early, *ends, job("late", 1, 10, 60)], cluster(2, 6), "packing=false,migration=false")
    assert where(played, "e6").startswith("1:")
    assert where(played, "late").startswith("1:")  # four of six are free there, none on server 0


def test_any_free_gpus_come_before_taking_turns() -> None:
    played = run([job("a", 3, 100), job("b", 3, 100, 1), job("c", 2, 100, 2)], cluster(2, 4))
    assert where(played, "c") == "0:8,1:8"  # step 3: one GPU of each, though servers are for jobs of three


def test_without_free_gpus_a_job_takes_turns_on_the_gpus_of_a_job_of_its_size() -> None:
    played = run([job("a", 4, 100), job("b", 4, 100, 10)], cluster(4), "packing=false,quantum=60")
    assert where(played, "b") == where(played, "a")
    assert played.end("a") == pytest.approx(190, abs=1)  # 10 s alone, then half of the time
    assert played.end("b") == pytest.approx(200, abs=1)


def test_a_job_without_a_server_of_its_size_waits_and_says_why() -> None:
    reasons: list[str] = []

    def look(scheduler: Scheduler, now: float) -> None:
        if now == 10:
            reason = scheduler.reason("b")
            assert reason is not None
            reasons.append(reason.sentence)

    with watched_steps(look):
        played = run([job("a", 4, 100), job("b", 2, 100, 10)], cluster(4))
    assert played.times(pl.Start, "b") == [100]
    assert reasons == ["fewer than 2 GPUs are free, and no server for jobs of 2 has fewer than 4 taking turns"]


def test_turns_end_at_the_height_limit_and_the_next_job_waits_for_a_departure() -> None:
    jobs = [job(f"j{i}", 4, 100, i) for i in range(3)]
    played = run(jobs, cluster(4), "packing=false,height=2")
    assert played.times(pl.Start, "j1") == [1]
    assert played.times(pl.Start, "j2") == [played.end("j0")]


def test_the_group_with_the_fewest_turns_is_taken() -> None:
    jobs = [job(f"j{i}", 2, 1000, i) for i in range(6)]
    played = run(jobs, cluster(4), "packing=false,migration=false")
    held = [where(played, f"j{i}") for i in range(6)]
    assert held == ["0:3", "0:c", "0:3", "0:c", "0:3", "0:c"]


def test_a_job_of_higher_priority_has_longer_turns() -> None:
    specs = [Spec(Job("a", 0.0, 4), Truth(100.0)), Spec(Job("b", 0.0, 4, priority=2), Truth(100.0))]
    played = run(specs, cluster(4))
    assert played.end("b") == pytest.approx(100 * 4 / 3, abs=1)  # three quarters of the time


def test_without_slicing_nobody_takes_turns() -> None:
    played = run([job("a", 4, 100), job("b", 4, 100, 10)], cluster(4), "packing=false,slicing=false")
    assert played.times(pl.Start, "b") == [100]


def test_a_gang_larger_than_a_server_takes_whole_servers_and_others_take_turns_with_it() -> None:
    played = run([job("a", 8, 100), job("b", 8, 100, 1)], cluster(2, 4))
    assert where(played, "a") == where(played, "b") == "0:f,1:f"
    assert played.end("b") == pytest.approx(200, abs=1)


def test_gpu_types_are_kept_apart() -> None:
    tree = mixed_cluster(V100=(4,), P100=(4,))
    specs = [job("a", 4, 100, gpu_type="P100"), job("b", 4, 100, 1, gpu_type="P100"), job("c", 4, 100, 2)]
    played = run(specs, tree)
    assert where(played, "a") == where(played, "b") == "1:f"
    assert where(played, "c") == "0:f"


def test_a_departure_starts_who_waits_before_anybody_is_moved() -> None:
    specs = [job("a", 2, 50), job("b", 2, 500), job("c", 2, 500, 1), job("w", 4, 10, 2)]
    played = run(specs, cluster(4))
    assert played.times(pl.Start, "c") == [1]  # takes turns with one of them
    # w wants the whole server: it gets it when all are gone, and nobody is moved on its GPUs in between
    assert played.times(pl.Start, "w") == [max(played.end(j) or 0 for j in "bc")]


def test_a_departure_lowers_heights_by_migration() -> None:
    specs = [job("a", 2, 400), job("b", 2, 100), job("c", 2, 400, 1)]
    played = run(specs, cluster(4))
    assert where(played, "c") == where(played, "a") == "0:3"
    assert played.times(pl.Migrate) == [played.end("b")]
    assert where(played, "c", pl.Migrate) == "0:c"  # who came last to take turns gets the GPUs that are free
    kept = run(specs, cluster(4), "packing=false,migration=false")
    assert not kept.of(pl.Migrate)
    assert sum(v or 0 for v in played.jcts().values()) < sum(v or 0 for v in kept.jcts().values())


def test_jobs_of_a_machine_that_goes_down_are_placed_again_and_all_end() -> None:
    tree = cluster(2, 4)
    jobs = [job(f"j{i}", 2, 200, i) for i in range(8)]
    played = run(jobs, tree, "height=4", faults=outages(tree, {0: [(50.0, 400.0)]}, checkpoint_interval=0.0))
    assert {played.outcome(f"j{i}") for i in range(8)} == {"finished"}
    assert played.of(ev.Interrupted)
    again = [e for t, e in played.of(pl.Start) if t == 50.0]
    assert again and all(e.placement.slices[0][0] == 1 for e in again)  # type: ignore[union-attr]


def test_what_makes_no_sense_and_what_would_do_nothing_is_refused() -> None:
    for text in ("quantum=0", "height=0", "minibatches=0", "defragment=2", "starvation=0",
                 "slicing=false,height=2", "variant=dally-paper,packing=false", "migration=false,defragment=0.5",
                 "grow_shrink=false,grow_after=1m"):  # fmt: skip
        with pytest.raises(UserError, match="policy 'gandiva'"):
            make_policy(f"gandiva[{text}]")


def test_heights_and_affinities_follow_the_jobs() -> None:
    policy = make_policy("gandiva[packing=false,migration=false]")
    assert isinstance(policy, Gandiva)
    seen: dict[float, tuple[int, int, int]] = {}

    def look(scheduler: Scheduler, now: float) -> None:
        assert policy.servers is not None
        seen[now] = (policy.servers.affinity(0), policy.servers.height(0), policy.servers.affinity(1))

    with watched_steps(look):
        play([job("a", 4, 100), job("b", 4, 50, 1), job("c", 1, 100, 2)], cluster(2, 4), policy)
    assert seen[0] == (4, 1, 0)
    assert seen[1] == (4, 1, 4)  # a second server before turns are taken
    assert seen[2] == (4, 1, 4)  # c waits: no server is for jobs of one, and none is free
    assert seen[51] == (4, 1, 1)
