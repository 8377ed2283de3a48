"""Jobs on shared links."""

from __future__ import annotations

import pytest
from fabrics import GPUS, MACHINES, RACKS, cluster, place
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.core.job import Job
from dally.core.placement import Placement
from dally.network.analytic import Analytic
from dally.network.contention import Links, _Member, fair_shares
from dally.network.model import Step
from dally.network.step import StepProfile

MODELS = ("vgg16", "resnet50", "bert-base", "dlrm", "gpt2-xl")
TOPOLOGY = cluster(nic=1.25e9, uplink=2.5e9)
ISLANDS = cluster(machine=10e9, nic=1.25e9, uplink=2.5e9, islands=True)
FAST = cluster(machine=300e9, nic=25e9, uplink=50e9, islands=True)


def bisected(others: list[float], capacity: float) -> float:
    """w + Σ min(u_k, w) = capacity, found by halving."""
    low, high = 0.0, capacity
    for _ in range(200):
        middle = (low + high) / 2
        if middle + sum(min(u, middle) for u in others) > capacity:
            high = middle
        else:
            low = middle
    return low


@given(st.lists(st.floats(1e3, 1e9), min_size=1, max_size=12), st.floats(0.1, 3.0))
def test_a_share_is_what_max_min_fairness_leaves_to_a_taker(demands: list[float], load: float) -> None:
    demands = sorted(demands)
    capacity = max(max(demands), sum(demands) * load)
    for index, share in enumerate(fair_shares(demands, capacity)):
        others = demands[:index] + demands[index + 1 :]
        assert share == pytest.approx(bisected(others, capacity), rel=1e-9)
        assert share >= capacity / len(demands) * (1 - 1e-12)
        assert share <= capacity


CROWDS = st.lists(
    st.tuples(st.floats(1e3, 1e9), st.integers(1, 4)), min_size=1, max_size=6, unique_by=lambda d: d[0]
)


@given(CROWDS)
def test_jobs_of_equal_demand_may_be_counted_together(groups: list[tuple[float, int]]) -> None:
    groups.sort()
    capacity = max(2e9, sum(u * n for u, n in groups) / 2)
    together = fair_shares([u for u, _ in groups], capacity, [n for _, n in groups])
    apart = fair_shares([u for u, n in groups for _ in range(n)], capacity)
    spread = [share for share, (_, n) in zip(together, groups, strict=True) for _ in range(n)]
    assert spread == pytest.approx(apart, rel=1e-9)


@st.composite
def gangs(draw: st.DrawFn) -> list[tuple[Job, Placement]]:
    """Up to eight jobs on GPUs of their own."""
    owner = draw(st.lists(st.integers(0, 8), min_size=RACKS * MACHINES * GPUS, max_size=RACKS * MACHINES * GPUS))
    found = []
    for number in range(1, 9):
        masks: dict[int, int] = {}
        for gpu, who in enumerate(owner):
            if who == number:
                masks[gpu // GPUS] = masks.get(gpu // GPUS, 0) | 1 << gpu % GPUS
        if masks:
            placement = Placement.of(masks.items())
            job = Job(f"job{number}", 0.0, placement.gpus, model=draw(st.sampled_from(MODELS)))
            found.append((job, placement))
    return found


NETWORKS = {"plain": Analytic(TOPOLOGY), "islands": Analytic(ISLANDS), "fast": Analytic(FAST)}  # step times are remembered between examples


def fresh(which: str = "plain") -> Analytic:
    network = NETWORKS[which]
    network.links = Links(network.topology)
    return network


@given(gangs(), st.sampled_from(["plain", "islands"]))
@settings(max_examples=40, deadline=None)
def test_adding_a_job_never_speeds_up_another(jobs, which) -> None:
    network = fresh(which)
    now: dict[str, float] = {}
    for job, placement in jobs:
        changed = network.moved([], [(job, placement)], 0.0)
        assert job.id in changed
        for name, step in changed.items():
            assert step.seconds >= now.get(name, step.alone) * (1 - 1e-12)
            assert step.seconds >= step.alone
            assert step.exposed == pytest.approx(step.seconds - step.compute)
            now[name] = step.seconds


@given(gangs(), st.data(), st.sampled_from(["plain", "islands"]))
@settings(max_examples=40, deadline=None)
def test_what_happened_before_does_not_matter(jobs, data, which) -> None:
    network = fresh(which)
    now: dict[str, float] = {}
    for gang in jobs:
        now |= {name: step.seconds for name, step in network.moved([], [gang], 0.0).items()}
    leaving = data.draw(st.sets(st.sampled_from([job.id for job, _ in jobs]))) if jobs else set()
    for name, step in network.moved(sorted(leaving), [], 0.0).items():
        assert step.seconds != now[name], "a job that did not change is not reported"
        now[name] = step.seconds
    stayed = [(job, placement) for job, placement in jobs if job.id not in leaving]
    again = fresh(which).moved([], stayed, 0.0)
    assert {name: step.seconds for name, step in again.items()} == {job.id: now[job.id] for job, _ in stayed}


def test_two_equal_jobs_on_one_nic_get_half_of_it_each() -> None:
    network = fresh()
    a, b = Job("a", 0, 8, model="vgg16"), Job("b", 0, 8, model="vgg16")
    alone = network.moved([], [(a, place((0, 4), (1, 4)))], 0.0)["a"]
    other = Placement.of([(0, 0xF0), (1, 0xF0)])
    both = network.moved([], [(b, other)], 0.0)
    assert set(both) == {"a", "b"}
    profile = network.profile("vgg16", other)
    demand = profile.bytes_per_level[1] / profile.alone
    left = max(1.25e9 / 2, 1.25e9 - demand)
    assert both["a"].seconds == both["b"].seconds == profile.seconds([1.0, 1.25e9 / left, 1.0]) > alone.seconds
    assert both["a"].neighbours == both["a"].seconds / alone.seconds
    assert network.moved(["b"], [], 0.0)["a"] == alone


def test_jobs_on_different_links_do_not_meet() -> None:
    network = fresh()
    network.moved([], [(Job("a", 0, 8, model="vgg16"), place((0, 4), (1, 4)))], 0.0)
    far = network.moved([], [(Job("b", 0, 8, model="vgg16"), place((3, 4), (4, 4)))], 0.0)
    assert set(far) == {"b"}
    assert far["b"].seconds == far["b"].alone


def test_gangs_inside_a_machine_use_no_shared_link() -> None:
    network = fresh()
    network.moved([], [(Job("a", 0, 4, model="vgg16"), place((0, 4)))], 0.0)
    inside = network.moved([], [(Job("b", 0, 4, model="vgg16"), Placement.of([(0, 0xF0)]))], 0.0)
    assert inside == {"b": network.step_time(Job("b", 0, 4, model="vgg16"), place((0, 4)), 0.0)}


def test_two_jobs_across_the_islands_of_a_machine_share_their_ports() -> None:
    network = fresh("islands")
    network.moved([], [(Job("a", 0, 4, model="vgg16"), Placement.of([(0, 0b00110011)]))], 0.0)
    both = network.moved([], [(Job("b", 0, 4, model="vgg16"), Placement.of([(0, 0b11001100)]))], 0.0)
    assert set(both) == {"a", "b"}
    assert both["b"].seconds > both["b"].alone


def test_an_oversubscribed_uplink_is_shared_by_gangs_on_different_machines() -> None:
    network = fresh()
    jobs = [(Job(str(m), 0, 16, model="vgg16"), place((m, 8), (m + 3, 8))) for m in range(3)]
    steps = network.moved([], jobs, 0.0)
    profile = network.profile("vgg16", jobs[0][1])
    assert profile.bytes_per_level[2] > 0
    assert all(step.seconds > step.alone for step in steps.values())


def test_a_migrated_job_is_counted_once() -> None:
    network = fresh()
    job = Job("a", 0, 8, model="vgg16")
    network.moved([], [(job, place((0, 4), (1, 4)))], 0.0)
    step = network.moved(["a"], [(job, place((0, 4), (2, 4)))], 0.0)["a"]
    assert step.seconds == step.alone
    other = Placement.of([(1, 0x10), (3, 1)])
    assert network.moved([], [(Job("b", 0, 2, model="vgg16"), other)], 0.0).keys() == {"b"}


def test_contention_can_be_switched_off() -> None:
    network = Analytic(TOPOLOGY, contention=False)
    halves = [Placement.of([(0, mask), (1, mask)]) for mask in (0xF, 0xF0)]
    jobs = [(Job(str(i), 0, 8, model="vgg16"), placement) for i, placement in enumerate(halves)]
    assert all(step.seconds == step.alone for step in network.moved([], jobs, 0.0).values())
    assert network.moved(["0"], [], 0.0) == {}


class PlainLinks(Links):
    """What `Links` says, said by sharing out every link that a change touches, and by looking at everybody on it."""

    def __init__(self, topology) -> None:
        super().__init__(topology)
        self.on: dict[int, dict[str, float]] = {}  # by link: who asks for how much
        self.slower: dict[int, dict[str, float]] = {}
        self.jobs: dict[str, tuple[StepProfile, list[tuple[int, int]]]] = {}  # profile; links and their levels
        self.slowest: dict[str, list[float]] = {}
        self.steps: dict[str, float] = {}

    def change(self, left, entered):
        touched: dict[int, None] = {}
        answer = {}
        for job in left:
            self.go(job, touched)
        for job, placement, profile in entered:
            self.go(job, touched)
            member = _Member(job, profile)
            self._enters(member, placement, [])
            numbers = {id(link): number for number, link in self._links.items()}
            uses = [(numbers[id(use.link)], use) for use in member.uses]
            for number, use in uses:
                self.on.setdefault(number, {})[job] = use.demand
                touched[number] = None
            if uses:
                self.jobs[job] = profile, [(number, use.link.level) for number, use in uses]
                self.slowest[job], self.steps[job] = [0.0] * self._levels, profile.alone
            answer[job] = profile.step
        affected: dict[str, None] = {}
        for number in touched:
            asked, before = self.on[number], self.slower.get(number, {})
            link = self._links[number]
            demands = sorted(set(asked.values()))
            counts = [sum(demand == each for each in asked.values()) for demand in demands]
            shares = dict(zip(demands, fair_shares(demands, link.capacity, counts), strict=True))
            now = self.slower[number] = {job: link.capacity / shares[demand] for job, demand in asked.items()}
            for job in sorted(asked, key=asked.__getitem__):
                slowest = self.slowest[job][link.level]
                if now[job] > slowest or (before.get(job) == slowest and now[job] != slowest):
                    affected[job] = None
        for job in affected:
            profile, links = self.jobs[job]
            slower = self.slowest[job] = [1.0] * self._levels
            for number, level in links:
                slower[level] = max(slower[level], self.slower[number][job])
            seconds = profile.seconds(slower) if max(slower) > 1.0 else profile.alone
            if seconds != self.steps[job]:
                self.steps[job] = seconds
                answer[job] = Step(seconds, profile.compute, seconds - profile.compute, profile.alone)
        return answer

    def go(self, job, touched) -> None:
        _, links = self.jobs.pop(job, (None, []))
        for number, _ in links:
            del self.on[number][job]
            self.slower[number].pop(job, None)
            touched[number] = None


@given(gangs(), st.data(), st.sampled_from(["plain", "islands", "fast"]))
@settings(max_examples=80, deadline=None)
def test_to_look_only_at_links_that_are_not_calm_changes_nothing_nor_the_order_in_which_it_is_said(jobs, data, which) -> None:
    network = fresh(which)
    plain = PlainLinks(network.topology)
    inside: set[str] = set()
    for _ in range(data.draw(st.integers(1, 12))):
        left = data.draw(st.lists(st.sampled_from(sorted(inside)), unique=True, max_size=3)) if inside else []
        outside = [gang for gang in jobs if gang[0].id not in inside]
        moved = data.draw(st.lists(st.sampled_from(jobs), unique_by=lambda gang: gang[0].id, max_size=3)) if outside else []
        entered = [(job.id, placement, network.profile(job.model, placement)) for job, placement in moved]
        inside = (inside - set(left)) | {job.id for job, _ in moved}
        assert list(network.links.change(left, entered).items()) == list(plain.change(left, entered).items())
