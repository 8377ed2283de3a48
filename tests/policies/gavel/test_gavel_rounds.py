"""Rounds as published: who runs, on which GPUs, and what that costs."""

from __future__ import annotations

import pytest

from builders import Played, SilentWorld, calls, cluster, job, mixed_cluster, play
from dally.catalog.throughputs import Throughputs
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job, Truth
from dally.core.journal import Journal
from dally.core.reasons import Token
from dally.core.scheduler import Scheduler
from dally.policies.options import make_policy
from dally.simulator.experiment import Experiment
from dally.simulator.run import Run
from dally.traces.trace import Trace


def two_jobs_one_gpu(options: str = "") -> Played:
    return play([job("a", 1, 3600.0), job("b", 1, 3600.0)], cluster(1), f"gavel[{options}]")


def test_two_equal_jobs_on_one_gpu_take_turns_of_one_round() -> None:
    played = two_jobs_one_gpu()
    assert played.times(pl.Start, "a")[:3] == [0.0, 720.0, 1440.0]
    assert played.times(pl.Start, "b")[:3] == [360.0, 1080.0, 1800.0]


def test_the_length_of_a_round_is_an_option() -> None:
    assert two_jobs_one_gpu("round=10m").times(pl.Start, "b")[0] == 600.0


def test_a_job_that_keeps_its_gpus_pays_nothing_at_a_boundary() -> None:
    played = play([job("a", 2, 3000.0)], cluster(2), "gavel", cost="100s")
    assert played.end("a") == pytest.approx(3000.0)
    assert len(played.of(pl.Start)) == 1 and not played.of(pl.Preempt) and not played.of(pl.Migrate)


def test_an_arrival_waits_for_the_boundary_unless_free_gpus_are_given_out_between() -> None:
    jobs = [job("a", 1, 1000.0), job("b", 1, 100.0, submit=50.0)]
    assert play(jobs, cluster(2), "gavel").times(pl.Start, "b") == [360.0]
    assert play(jobs, cluster(2), "gavel[backfill=true]").times(pl.Start, "b") == [50.0]


def test_the_first_arrival_at_an_idle_cluster_starts_at_once() -> None:
    jobs = [job("a", 1, 100.0), job("b", 1, 100.0, submit=5000.0)]
    assert play(jobs, cluster(2), "gavel").times(pl.Start, "b") == [5000.0]


def test_rounds_that_would_deal_the_same_are_not_looked_at_and_arrivals_still_meet_a_boundary() -> None:
    jobs = [job("a", 1, 100_000.0), job("b", 1, 500.0, submit=50_000.0), job("c", 1, 100.0, submit=60_480.0)]
    played = play(jobs, cluster(2), "gavel")
    assert played.times(pl.Start, "b") == [50_040.0]  # the 139th boundary from 0
    assert played.times(pl.Start, "c") == [60_480.0]  # it came at one
    assert played.end("a") == pytest.approx(100_000.0)
    assert len(played.of(ev.TimerDue)) < 20  # of 277 boundaries


def test_an_arrival_after_a_departure_that_changed_nothing_is_dealt_gpus_at_the_next_boundary() -> None:
    jobs = [job("a", 1, 20_000.0), job("b", 1, 5_000.0), job("c", 2, 300.0, submit=5_100.0)]
    played = play(jobs, cluster(2), "gavel")
    assert played.times(pl.Start, "c")[0] == 5_400.0
    assert played.outcome("a") == played.outcome("c") == "finished"


def test_a_job_waits_with_its_share_of_time_as_the_reason() -> None:
    reasons = [wait for _, wait in two_jobs_one_gpu().of(pl.Wait) if isinstance(wait, pl.Wait) and wait.who == "b"]
    assert reasons and reasons[0].reason.token is Token.WAITING_FOR_ROUND
    assert "50% of its time on gpu" in reasons[0].reason.sentence


def test_rounds_shorter_than_loading_still_get_everybody_through() -> None:
    played = play([job("a", 1, 50.0), job("b", 1, 50.0)], cluster(1), "gavel[round=5s]", cost="20s")
    assert played.outcome("a") == played.outcome("b") == "finished"


# --- unlike GPUs ------------------------------------------------------------------------------------------

TABLE = Throughputs(
    "table",
    {"V100": {("picky", 1): 10.0, ("easy", 1): 2.0, ("wide", 4): 8.0},
     "K80": {("picky", 1): 1.0, ("easy", 1): 1.9, ("wide", 4): 7.0}}, {}, {})  # fmt: skip


def tabled(jobs: list[tuple[str, str, int, float]], options: str, *, network: str = "ideal",
           tenants: tuple[str, ...] = (), deadlines: tuple[float | None, ...] = (),
           **gpus: tuple[int, ...]) -> Run:  # fmt: skip
    made = [Job(name, 0.0, gang, model=model, declared_steps=steps, tenant=tenants[i] if tenants else None,
                deadline=deadlines[i] if deadlines else None)
            for i, (name, model, gang, steps) in enumerate(jobs)]  # fmt: skip
    trace = Trace("t", "made", made, [Truth(None, steps=row[3]) for row in jobs])
    return Experiment(trace, mixed_cluster(**gpus), network, "0", throughputs=TABLE).run(f"gavel[{options}]")


def test_aware_puts_the_job_that_gains_most_on_the_fast_gpu_and_blind_does_not() -> None:
    jobs = [("e", "easy", 1, 20_000.0), ("p", "picky", 1, 100_000.0)]
    aware = {row.job_id: row.jct for row in tabled(jobs, "objective=makespan", V100=(1,), K80=(1,)).ledger.rows}
    blind = tabled(jobs, "objective=makespan,aware=false", V100=(1,), K80=(1,)).ledger.rows
    assert aware["p"] == pytest.approx(10_000, rel=0.08)
    assert max(row.jct or 0.0 for row in blind) > 1.3 * max(value or 0.0 for value in aware.values())


def test_a_job_may_go_on_on_another_gpu_type_and_keeps_its_work() -> None:
    run = tabled([("a", "easy", 1, 9000.0), ("b", "easy", 1, 9000.0)], "", V100=(1,), K80=(1,))
    assert sum(row.migrations for row in run.ledger.rows) > 0
    kinds = {(segment.row, run.ledger.topology.machines[segment.placement.slices[0][0]].gpu_type)
             for segment in run.ledger.segments}  # fmt: skip
    assert len(kinds) == 4
    assert all(4500 <= (row.jct or 0.0) <= 5100 for row in run.ledger.rows)


@pytest.mark.parametrize("objective", ["fifo", "sjf", "makespan", "finish-time-fairness", "cost", "cost-slo",
                                       "throughput", "hierarchical", "isolated", "allox"])  # fmt: skip
def test_every_objective_gets_everybody_through(objective: str) -> None:
    jobs = [(f"j{i}", ("picky", "easy")[i % 2], 1, 3000.0 + 500 * i) for i in range(6)] + [("w", "wide", 4, 9000.0)]
    run = tabled(jobs, f"objective={objective}", V100=(2, 2), K80=(4,))
    assert {row.outcome for row in run.ledger.rows} == {"finished"}


def test_an_entity_of_twice_the_weight_gets_twice_the_time() -> None:
    jobs = [(f"j{i}", "easy", 1, 40_000.0) for i in range(6)]
    run = tabled(jobs, "objective=hierarchical,weights=big:2", tenants=("big", "small") * 3, V100=(1, 1, 1))
    by_end = {who: min(row.end or 0.0 for row in run.ledger.rows if row.tenant == who) for who in ("big", "small")}
    assert by_end["big"] < 0.8 * by_end["small"]


def test_cost_prefers_the_cheaper_gpu_where_it_is_not_much_slower() -> None:
    run = tabled([("e", "easy", 1, 4000.0)], "objective=cost", V100=(1,), K80=(1,))
    kinds = {run.ledger.topology.machines[s.placement.slices[0][0]].gpu_type for s in run.ledger.segments}
    assert kinds == {"K80"}


def test_a_deadline_draws_a_job_to_the_dear_gpu_and_one_out_of_reach_is_named() -> None:
    jobs = [("soon", "picky", 1, 10_000.0), ("never", "picky", 1, 10_000.0)]
    run = tabled(jobs, "objective=cost-slo", deadlines=(1500.0, 10.0), V100=(2,), K80=(2,))
    assert run.ledger.row("soon").end is not None and run.ledger.row("soon").end <= 1500.0
    assert any("never" in note for note in run.notes)


def test_a_consolidated_column_is_one_machine_and_a_spread_one_need_not_be() -> None:
    network = "level-penalty[machine=1,rack=3,cluster=4]"
    jobs = [("w", "wide", 4, 20_000.0), ("x", "wide", 4, 20_000.0)]
    run = tabled(jobs, "placement_sensitive=true", network=network, V100=(4, 2, 2))
    first = next(s for s in run.ledger.segments if s.start == 0.0)
    assert len(first.placement.slices) == 1
    assert {row.outcome for row in run.ledger.rows} == {"finished"}


def test_learned_throughputs_come_close_to_known_ones() -> None:
    jobs = [(f"j{i}", ("picky", "easy")[i % 2], 1, 30_000.0) for i in range(8)]
    known = tabled(jobs, "", V100=(2,), K80=(2,)).ledger.rows
    learned = tabled(jobs, "throughputs=estimated", V100=(2,), K80=(2,)).ledger.rows
    assert sum(r.jct or 0.0 for r in learned) < 1.25 * sum(r.jct or 0.0 for r in known)


def test_machines_that_go_down_are_not_counted_as_room() -> None:
    from builders import outages

    tree = cluster(2, 2)
    jobs = [job(f"j{i}", 2, 2000.0) for i in range(3)]
    played = play(jobs, tree, "gavel", faults=outages(tree, {0: [(100.0, 5000.0)]}))
    assert all(played.outcome(f"j{i}") == "finished" for i in range(3))
    assert not [e for _, e in played.of(ev.Failed)]


def test_a_job_that_lost_its_gpus_to_a_fault_starts_again_at_the_next_boundary() -> None:
    from builders import outages

    tree = cluster(2, 2)
    played = play([job("a", 2, 2000.0)], tree, "gavel", faults=outages(tree, {0: [(100.0, 200.0)]}))
    assert played.times(pl.Start, "a") == [0.0, 360.0]
    assert played.outcome("a") == "finished"


@pytest.mark.parametrize(("text", "said"), [
    ("gavel[round=0]", "a second or longer"),
    ("gavel[space_sharing=true,aware=false]", "does not go with aware=false"),
    ("gavel[space_sharing=true,objective=allox]", "does not go with objective=allox"),
    ("gavel[space_sharing=true,optimum=central]", "does not go with optimum=central"),
    ("gavel[space_sharing=true,throughputs=estimated]", "does not go with throughputs=estimated"),
    ("gavel[space_sharing=true,variant=released]", "variant=released has no"),
    ("gavel[space_sharing=true,pack_above=0.5]", "must be at least 1"),
    ("gavel[space_sharing=true,partners=0]", "at least 1 of partners"),
    ("gavel[partners=3]", "partners would do nothing here: nobody shares GPUs without space_sharing"),
    ("gavel[weights=a:x]", "weights='a:x' is not a list"),
    ("gavel[prices=V100]", "prices='V100' is not a list"),
    ("gavel[variant=released,backfill=true]", "variant=released has no"),
    ("gavel[variant=released,optimum=corner]", "variant=released has no"),
    ("gavel[objective=fifo,optimum=corner]", "optimum would do nothing here: of this objective there is one optimum"),
    ("gavel[weights=a:2]", "weights would do nothing here: only objective=hierarchical knows entities"),
    ("gavel[objective=cost,inside=fifo]", "inside would do nothing here: only objective=hierarchical knows entities"),
    ("gavel[prices=V100:2]", "prices would do nothing here: only objective=cost and cost-slo count money"),
    ("gavel[objective=hierarchical,cost_form=ratio]", "cost_form would do nothing here: only objective=cost and cost-slo"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make_policy(text)


@pytest.mark.parametrize("text", [
    "gavel[objective=hierarchical,weights=a:2,inside=fifo]", "gavel[objective=cost,prices=V100:2,cost_form=ratio]",
    "gavel[objective=cost-slo,cost_form=ratio]", "gavel[objective=makespan,optimum=central]",
])  # fmt: skip
def test_options_beside_the_objective_that_reads_them_are_taken(text: str) -> None:
    assert make_policy(text).name == text


def test_an_arrival_inside_a_round_costs_as_much_with_two_thousand_waiting_as_with_a_hundred() -> None:
    counted = []
    for queue in (100, 2_000):
        scheduler = Scheduler(cluster(1, 8, 8), make_policy("gavel"), SilentWorld(), Journal())
        scheduler.step(0.0, [ev.Arrived(Job(f"j{i}", 0.0, (1, 2, 4)[i % 3])) for i in range(queue)])
        newcomer = ev.Arrived(Job("new", 10.0, 2))
        counted.append(calls(lambda s=scheduler, n=newcomer: s.step(10.0, [n])))  # type: ignore[misc]
    assert max(counted) < 1.5 * min(counted), counted
