"""When a job will start, asked of a snapshot: what is said must be what then happens, and asking must change nothing."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

import pytest

from builders import cluster, job, mixed_cluster, trace
from dally.core import events as ev
from dally.core import plan as pl
from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.journal import Decided, Instant, Journal, flat
from dally.core.policy import PolicyBase
from dally.core.reasons import Reason, Token
from dally.core.scheduler import Scheduler
from dally.core.snapshot import save
from dally.core.states import State
from dally.core.topology import Topology
from dally.live import forecast
from dally.live.durations import NOBODY_KNOWS, Exact, History, Past
from dally.live.forecast import Estimate, Futures, Known, alternatives, dry_run, estimate_start
from dally.network.model import NetworkModel
from dally.network.registry import make_network
from dally.policies.options import make_policy
from dally.simulator.knowledge import tell
from dally.simulator.profiles import Profiles
from dally.simulator.workload import Workload, prepare
from dally.simulator.world import SimulatedWorld

TREE = cluster(2, 2, 4)
POLICIES = ("fifo", "fifo[backfill=true]", "srtf", "las", "las[quantum=1m]", "dally", "tiresias", "gavel")
NETWORKS = ("ideal", "analytic[contention=off]")


class Obliging:
    """A world in which what is told to start runs, and nothing else happens."""

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Any) -> list[ev.Event]:
        return [ev.Started(action.job) for action in decided if isinstance(action, pl.Start)]


def queue(jobs: list[Job], topology: Topology = TREE, policy: str = "fifo", now: float = 1.0) -> dict[str, Any]:
    """The snapshot of a cluster to which these jobs were submitted at time 0, in this order."""
    scheduler = Scheduler(topology, make_policy(policy), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(each) for each in jobs])
    scheduler.step(now, [ev.TimerDue()])
    return plain(scheduler)


def plain(scheduler: Scheduler) -> dict[str, Any]:
    """As it comes over the wire."""
    found: dict[str, Any] = json.loads(json.dumps(save(scheduler)))
    return found


class Simulation:
    """A simulated run that can be stopped on its way."""

    def __init__(self, seed: int, policy: str, network: str = "ideal", jobs: int = 40) -> None:
        chance = random.Random(seed)
        models = (None,) if network == "ideal" else ("resnet50", "vgg16", "bert-large")
        specs = [job(f"j{i}", chance.choice((1, 1, 2, 4, 8, 8)), chance.uniform(20, 900), chance.uniform(0, 100),
                     model=chance.choice(models)) for i in range(jobs)]  # fmt: skip
        self.network: NetworkModel = make_network(network, TREE)
        self.workload: Workload = tell(prepare(trace(specs), TREE, self.network), "declared")
        self.estimates = Profiles(self.network, TREE)
        self.seen: list[Instant] = []
        world = SimulatedWorld(self.workload, TREE, self.network)
        self.scheduler = Scheduler(TREE, make_policy(policy), world, Journal(self.seen.append), self.estimates)

    @property
    def known(self) -> Known:
        return Known(self.estimates, network=self.network)

    def until(self, time: float) -> dict[str, Any]:
        self.scheduler.run(lambda now: now < time)
        return plain(self.scheduler)


def decisions(instants: list[Instant]) -> list[tuple[float, Decided]]:
    kinds = (pl.Start, pl.Preempt, pl.Migrate, pl.Extend)
    return [(round(time, 6), entry) for time, entry in flat(instants) if isinstance(entry, kinds)]  # type: ignore[misc]


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_with_exact_durations_the_forecast_is_what_the_simulator_then_does(policy: str, network: str) -> None:
    for seed in (11, 12, 13):
        for stop in (101.0, 400.0, 1500.0):
            run = Simulation(seed, policy, network)
            state = run.until(stop)
            before = len(run.seen)
            ahead, _ = Futures(state, known=run.known, durations=Exact(run.workload.work)).begin()
            foreseen: list[Instant] = []
            ahead.journal = Journal(foreseen.append)
            ahead.run()
            run.scheduler.run()
            assert decisions(foreseen) == decisions(run.seen[before:])
            assert {each.id: each.state for each in ahead.jobs.values()} == {
                each.id: each.state for each in run.scheduler.jobs.values()}  # fmt: skip


@pytest.mark.parametrize("policy", ["fifo", "las", "dally", "tiresias"])
def test_with_exact_durations_a_job_starts_when_it_was_said_to(policy: str) -> None:
    run = Simulation(21, policy)
    state = run.until(200.0)
    now = state["time"]
    waiting = [each.id for each in run.scheduler.view.waiting]
    assert waiting
    said = {each: estimate_start(state, each, known=run.known, samples=1, durations=Exact(run.workload.work), budget=60.0)
            for each in waiting}  # fmt: skip
    before = len(run.seen)
    run.scheduler.run()
    for each in waiting:
        start = next(time for time, entry in flat(run.seen[before:]) if isinstance(entry, pl.Start) and entry.job == each)
        assert said[each].median == pytest.approx(start - now)
        assert (said[each].low, said[each].high, said[each].samples) == (said[each].median, said[each].median, 1)


def test_time_slices_are_foreseen_but_for_what_switching_costs() -> None:
    run = Simulation(5, "gandiva")
    state = run.until(110.0)
    before = len(run.seen)
    ahead, _ = Futures(state, known=run.known, durations=Exact(run.workload.work)).begin()
    foreseen: list[Instant] = []
    ahead.journal = Journal(foreseen.append)
    ahead.run()
    run.scheduler.run()
    ends = [{entry.job: time for time, entry in flat(each) if isinstance(entry, ev.Finished)}
            for each in (foreseen, run.seen[before:])]  # fmt: skip
    assert ends[0].keys() == ends[1].keys()
    assert all(ends[0][each] == pytest.approx(ends[1][each], rel=0.02) for each in ends[0])


@pytest.mark.parametrize("policy", POLICIES)
def test_asking_leaves_no_trace_in_the_snapshot_or_in_the_scheduler(policy: str) -> None:
    asked, quiet = Simulation(31, policy), Simulation(31, policy)
    state = asked.until(150.0)
    quiet.until(150.0)
    before = deepcopy(state)
    some = next(iter(asked.scheduler.view.waiting)).id
    estimate_start(state, some, samples=2)
    alternatives(state, some, samples=2)
    dry_run(state, Job("more", 0.0, 2), samples=2)
    assert state == before
    assert plain(asked.scheduler) == before
    asked.scheduler.run()
    quiet.scheduler.run()
    assert asked.seen == quiet.seen


def test_the_same_seed_gives_the_same_answer_and_another_one_another() -> None:
    jobs = [Job(f"j{i}", 0.0, 8, declared_duration=100.0 * (i + 1)) for i in range(12)]
    state = queue(jobs)
    said = [estimate_start(state, "j9", seed=seed, budget=60.0) for seed in (3, 3, 4)]
    assert said[0] == said[1]
    assert said[0].starts != said[2].starts
    low, median, high = said[0].low, said[0].median, said[0].high
    assert low is not None and median is not None and high is not None and low < median < high


def test_a_job_that_fits_starts_at_once_in_every_future_however_little_is_known() -> None:
    state = queue([Job("a", 0.0, 8)])
    answer = dry_run(state, Job("b", 0.0, 4))
    assert answer["starts"] == "now"
    assert answer["level"] == "machine"
    assert [len(gpus) for gpus in answer["machines"].values()] == [4]


def test_where_nothing_is_known_of_durations_nothing_is_said() -> None:
    state = queue([Job("a", 0.0, 16), Job("b", 0.0, 4)])
    said = estimate_start(state, "b")
    assert (said.low, said.median, said.high) == (None, None, None)
    assert said.basis == NOBODY_KNOWS


def test_where_one_blocks_whom_nobody_knows_the_others_declarations_stand_in() -> None:
    state = queue([Job("a", 0.0, 16), Job("b", 0.0, 16, declared_duration=600.0)])
    said = estimate_start(state, "b")
    assert said.median is not None and said.median > 0
    assert "none has ended yet" in said.basis


def test_a_job_without_a_declaration_runs_as_long_as_those_of_its_name_did() -> None:
    state = queue([Job("a", 0.0, 16, user="ann"), Job("b", 0.0, 16)])
    past = [Past("ann", "long", 16, None, 5000.0 + i) for i in range(6)] + [Past("bob", "short", 16, None, 10.0 + i) for i in range(6)]
    long = estimate_start(state, "b", known=Known(history=History(past, {"a": "long"})))
    some = estimate_start(state, "b", known=Known(history=History([*past, *past[6:], *past[6:]], {})))
    assert long.low is not None and 4998.0 <= long.low <= 5005.0
    # ann has six ended jobs of other names: hers are still more like hers than bob's
    assert some.low is not None and 4998.0 <= some.low <= 5005.0


def test_declarations_are_as_wrong_as_they_were_before() -> None:
    state = queue([Job("a", 0.0, 16, declared_duration=1000.0), Job("b", 0.0, 16)])
    past = [Past(None, None, 1, 100.0, 200.0)] * 8
    said = estimate_start(state, "b", known=Known(history=History(past)))
    assert said.median == pytest.approx(2000.0 - 1.0)


def test_a_job_that_has_run_so_long_already_is_not_thought_to_have_ended() -> None:
    past = History([Past(None, None, 1, None, float(ran)) for ran in (10, 20, 30, 1000, 2000)])
    early, late = (queue([Job("a", 0.0, 16), Job("b", 0.0, 16)], now=now) for now in (1.0, 500.0))
    soon = estimate_start(early, "b", known=Known(history=past))
    later = estimate_start(late, "b", known=Known(history=past))
    assert soon.low is not None and soon.low < 30
    assert later.low is not None and later.low >= 500.0
    beyond = estimate_start(queue([Job("a", 0.0, 16), Job("b", 0.0, 16)], now=9000.0), "b", known=Known(history=past))
    assert beyond.median is not None and 0.0 < beyond.median < 20 * 9000.0


def test_of_jobs_that_ended_in_the_snapshot_itself_something_is_known() -> None:
    run = Simulation(41, "fifo")
    state = run.until(1500.0)
    assert any(each["state"] == "finished" for each in state["jobs"])
    for each in state["jobs"]:
        each["job"].pop("work", None)
    some = next(iter(run.scheduler.view.waiting)).id
    said = estimate_start(state, some, samples=3)
    assert said.median is not None
    assert "that ended" in said.basis


def test_ten_thousand_waiting_jobs_are_cut_off_by_the_budget_and_it_is_said() -> None:
    chance = random.Random(7)
    jobs = [Job(str(i), 0.0, chance.choice((1, 2, 4, 8)), declared_duration=chance.uniform(60, 36000)) for i in range(10_000)]
    state = queue(jobs, cluster(4, 8, 8))
    said = estimate_start(state, "9999", budget=0.05)
    assert said.cut_off
    assert said.samples <= 1
    if not said.samples:
        assert said.median is None and said.horizon_reached and "time was up" in said.basis
    near = estimate_start(state, state["waiting"][0][0], samples=2, budget=60.0)
    assert (near.samples, near.cut_off) == (2, False)


def test_a_job_for_which_room_is_never_made_is_not_promised_a_start() -> None:
    topology = cluster(2, 4)
    scheduler = Scheduler(topology, make_policy("fifo"), Obliging(), Journal())
    scheduler.step(0.0, [ev.MachineDown(topology.machine_names[0]), ev.Arrived(Job("a", 0.0, 8, declared_duration=10.0))])
    said = estimate_start(plain(scheduler), "a")
    assert said.median is None and said.horizon_reached
    assert "not before machines come back" in said.basis


@pytest.mark.parametrize("what", ["starting", "yielding", "lost"])
def test_jobs_in_between_are_taken_up(what: str) -> None:
    scheduler = Scheduler(TREE, make_policy("srtf"), Mute(), Journal())
    scheduler.step(0.0, [ev.Arrived(Job("a", 0.0, 16, declared_duration=1000.0))])
    if what != "starting":
        scheduler.step(1.0, [ev.Started("a")])
    if what == "lost":
        scheduler.step(2.0, [ev.ContactLost("a")])
    scheduler.step(3.0, [ev.Arrived(Job("b", 3.0, 16, declared_duration=5.0))])
    assert scheduler.jobs["a"].state is State(what)
    state = plain(scheduler)
    work = Exact({"a": 1000.0, "b": 5.0})
    ahead, _ = Futures(state, durations=work).begin()
    ahead.run()
    assert {each.state for each in ahead.jobs.values()} == {State.FINISHED}


class Mute:
    """Never answers."""

    def next_events(self) -> None:
        return None

    def carry_out(self, now: float, decided: Any) -> list[ev.Event]:
        return []


def test_what_runs_cannot_start_and_what_has_ended_never_will() -> None:
    state = queue([Job("a", 0.0, 8), Job("b", 0.0, 16)])
    assert estimate_start(state, "a").basis == "it has its GPUs already"
    with pytest.raises(UserError, match="nobody knows a job 'x'"):
        estimate_start(state, "x")
    run = Simulation(41, "fifo")
    state = run.until(1500.0)
    ended = next(each["job"]["id"] for each in state["jobs"] if each["state"] == "finished")
    with pytest.raises(UserError, match="is finished: it will not start any more"):
        estimate_start(state, ended)


# --- what would help ------------------------------------------------------------------------------------------------


def test_fewer_gpus_are_offered_only_where_they_start_sooner() -> None:
    jobs = [Job("a", 0.0, 12, declared_duration=1000.0), Job("b", 0.0, 8, declared_duration=50.0)]
    state = queue(jobs, policy="fifo[backfill=true]")
    found = alternatives(state, "b")
    assert [each["change"] for each in found] == ["8 → 4 GPUs"]
    assert found[0]["estimate"]["high"] == 0.0
    blocked = queue([Job("a", 0.0, 16, declared_duration=1000.0), Job("b", 0.0, 8)])
    assert alternatives(blocked, "b") == []


def test_another_gpu_type_is_offered_where_it_is_free() -> None:
    topology = mixed_cluster(v100=(4, 4), a100=(4, 4))
    state = queue([Job("a", 0.0, 8, "a100", declared_duration=1000.0), Job("b", 0.0, 8, "a100")], topology)
    found = alternatives(state, "b")
    assert found[0]["change"] == "type v100 instead of a100"
    assert found[0]["estimate"]["median"] == 0.0


def test_a_wider_level_is_offered_where_it_is_free() -> None:
    """One GPU is free on each of four machines."""
    jobs = [Job(f"a{i}", 0.0, 3, within="machine", declared_duration=1000.0) for i in range(4)]
    found = alternatives(queue([*jobs, Job("b", 0.0, 2, within="machine")]), "b")
    assert found[0]["change"] == "within the rack instead of the machine"
    assert found[0]["estimate"]["median"] == 0.0


def test_a_job_that_would_wait_for_ever_for_its_level_is_told_not_to() -> None:
    """One GPU is free on each of four machines; for Dally a job may wait by its own will."""
    jobs = [Job(f"a{i}", 0.0, 3, within="machine", declared_duration=1000.0) for i in range(4)]
    scheduler = Scheduler(TREE, make_policy("dally"), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(each) for each in jobs])
    scheduler.step(1.0, [ev.Arrived(Job("b", 1.0, 2, prefers="machine", wait=float("inf"), declared_duration=900.0))])
    state = plain(scheduler)
    assert estimate_start(state, "b").low != 0.0
    found = alternatives(state, "b")
    assert found[0]["change"] == "without waiting for a machine"
    assert found[0]["estimate"]["median"] == 0.0


def test_a_job_that_insists_on_too_small_a_domain_is_told_a_wider_one() -> None:
    answer = dry_run(queue([]), Job("b", 0.0, 8, within="machine"))
    assert answer["starts"] == "never"
    assert [each["change"] for each in answer["alternatives"]][:1] == ["within the rack instead of the machine"]
    assert "8 → 4 GPUs" in [each["change"] for each in answer["alternatives"]]


def test_a_change_loses_its_place_in_the_queue_as_it_would() -> None:
    """There is no other way to change a job than to submit it anew."""
    jobs = [Job("a", 0.0, 16, declared_duration=100.0), *(Job(f"q{i}", 0.0, 16, declared_duration=100.0) for i in range(5))]
    state = queue([jobs[0], Job("b", 0.0, 16, declared_duration=100.0), *jobs[1:]])
    assert alternatives(state, "b") == []


# --- one job more ---------------------------------------------------------------------------------------------------


def test_a_job_that_asks_for_too_much_is_told_the_nearest_thing_that_would_fit() -> None:
    state = queue([])
    answer = dry_run(state, Job("b", 0.0, 24))
    assert (answer["starts"], answer["reason"]) == ("never", "ExceedsCapacity")
    assert answer["alternatives"][0]["change"] == "24 → 16 GPUs"
    assert answer["alternatives"][0]["estimate"]["high"] == 0.0
    wrong = dry_run(state, Job("b", 0.0, 4, "h100"))
    assert (wrong["starts"], wrong["reason"]) == ("never", "NoMatchingGpuType")
    assert wrong["alternatives"][0]["change"] == "type gpu instead of h100"


def test_a_job_that_has_to_wait_is_told_how_long() -> None:
    state = queue([Job("a", 0.0, 16, declared_duration=1000.0)])
    answer = dry_run(state, Job("b", 0.0, 4), durations=Exact({"a": 1000.0}))
    assert answer["starts"] == "later"
    assert answer["estimate"]["median"] == pytest.approx(999.0)
    assert answer["reason"] == "WaitingForGpus"


def test_a_dry_run_says_whom_it_would_put_out() -> None:
    state = queue([Job("a", 0.0, 16, declared_duration=1000.0)], policy="srtf")
    answer = dry_run(state, Job("b", 0.0, 16, declared_duration=10.0))
    assert (answer["starts"], answer["preempts"]) == ("now", ["a"])


def test_a_name_that_is_taken_is_refused() -> None:
    state = queue([Job("a", 0.0, 16)])
    with pytest.raises(UserError, match="there is a job 'a' already"):
        dry_run(state, Job("a", 0.0, 1))


def test_the_expected_speed_is_what_a_profile_says() -> None:
    run = Simulation(51, "fifo", "analytic[contention=off]", jobs=3)
    state = run.until(10_000.0)
    answer = dry_run(state, Job("b", 0.0, 8, model="vgg16", reference=0.2), known=run.known)
    assert answer["starts"] == "now"
    assert answer["speed"] is not None and answer["speed"] > 0


def test_an_estimate_is_plain_data() -> None:
    said = Estimate(1.0, 2.0, None, 3, True, "x", False, (1.0, 2.0, float("inf")))
    assert json.loads(json.dumps(said.plain(), allow_nan=False)) == {
        "low": 1.0, "median": 2.0, "high": None, "samples": 3, "horizon_reached": True, "basis": "x", "cut_off": False}  # fmt: skip


@pytest.mark.parametrize("busy", [False, True])
def test_where_what_is_up_is_too_small_that_is_what_is_said(busy: bool) -> None:
    """Nobody knows how long jobs run, and it makes no difference."""
    scheduler = Scheduler(cluster(2, 4), make_policy("fifo"), Obliging(), Journal())
    first = [ev.Arrived(Job("runs", 0.0, 1))] if busy else []
    scheduler.step(0.0, [ev.MachineDrained("m1"), *first, ev.Arrived(Job("large", 0.0, 8))])
    said = estimate_start(save(scheduler), "large")
    assert (said.median, said.basis) == (None, "not before machines come back: it asks for 8 GPUs; 4 are on machines that are up")


class Never(PolicyBase):
    name = "fifo"  # so that the snapshot knows whom to put in charge; the test puts in this one

    def plan(self, view: Any, memory: Any, now: float) -> list[Any]:
        return [pl.Wait(demand, Reason(Token.PRIORITY, "not today")) for demand in view.waiting.buckets]


def test_where_nothing_could_start_it_nobody_speaks_of_durations(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(cluster(2, 4), Never(), Obliging(), Journal())
    scheduler.step(0.0, [ev.Arrived(Job("waits", 0.0, 8))])
    monkeypatch.setattr(forecast, "make_policy", lambda name: Never())
    said = estimate_start(save(scheduler), "waits")
    assert said.basis == "it does not start as long as nothing changes, or not within 30 days (not today)"
