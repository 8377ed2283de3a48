"""What the properties draw from: every registered policy with several options, small worlds, and a replay."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from builders import Flat, Played, Spec, cluster, job, mixed_cluster, play
from dally.core.journal import Entry
from dally.core.topology import Topology
from dally.experiments.checks.replay import Replay as JournalReplay
from dally.experiments.checks.replay import work_by_journal
from dally.experiments.checks.worlds import variants
from dally.policies.options import all_policies
from dally.simulator.faults import Faults, StartRules

NAMES = [name for name, _ in all_policies()]
CLUSTERS = [cluster(4), cluster(2, 4), cluster(2, 2, 2), cluster(1, 2, 4, islands=(2, 2)),
            mixed_cluster(v100=(4, 2), a100=(4, 4))]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One small world; the policy is put in by the test."""

    policy: str
    jobs: list[Spec]
    topology: Topology
    network: str
    cost: tuple[float, float]
    faulty: int | None  # the seed, where things break
    scale: float
    starts: StartRules = StartRules()

    def faults(self) -> Faults | None:
        if self.faulty is None:
            return None
        return Faults(len(self.topology.machines), mtbf=500 * self.scale, mttr=20 * self.scale,
                      job_mtbf=300 * self.scale, retries=10_000, checkpoint_interval=5 * self.scale,
                      seed=self.faulty)  # fmt: skip

    def play(self) -> Played:
        return play(self.jobs, self.topology, self.policy, network=self.network, cost=Flat(*self.cost),
                    faults=self.faults(), instants=30_000, starts=self.starts)  # fmt: skip


@st.composite
def cases(draw: st.DrawFn, policy: str, faults: bool | None = None) -> Case:
    topology = draw(st.sampled_from(CLUSTERS))
    scale = draw(st.sampled_from([1.0, 60.0]))
    lengths = st.integers(0, 40) | st.floats(0.01, 40.0)
    rows = st.tuples(st.sampled_from([1, 1, 1, 2, 2, 3, 4, 8]), lengths, st.integers(0, 30) | st.floats(0, 30),
                     st.sampled_from((None, None, *topology.gpu_types)))  # fmt: skip
    drawn = draw(st.lists(rows, min_size=1, max_size=12))
    jobs = [job(f"j{i}", gpus, duration * scale, submit * scale, gpu_type=kind)
            for i, (gpus, duration, submit, kind) in enumerate(drawn)]  # fmt: skip
    if draw(st.booleans()):
        jobs = [with_wishes(spec, topology, draw, scale) for spec in jobs]
    faulty = draw(st.integers(0, 99)) if faults or (faults is None and draw(st.booleans())) else None
    return Case(draw(st.sampled_from(variants(policy))), jobs, topology,
                draw(st.sampled_from(["ideal", "level-penalty"])),
                draw(st.sampled_from([(0.0, 0.0), (0.0, 2.0), (1.5, 2.5)])), faulty, scale,
                draw(st.sampled_from([StartRules(), StartRules(), StartRules(2.0), StartRules(1.0, 0.3, 1)])))  # fmt: skip


def with_wishes(spec: Spec, topology: Topology, draw: st.DrawFn, scale: float) -> Spec:
    """The same job, which may have to be inside one domain of a level, prefer one, or keep its GPUs."""
    levels = st.sampled_from([None, None, *(level.name for level in topology.levels)])
    return replace(spec, job=replace(
        spec.job, within=draw(levels), prefers=draw(levels), preemptible=draw(st.sampled_from([True, True, True, False])),
        wait=draw(st.sampled_from([None, None, 0.0, 7.0 * scale, math.inf]))))


def runnable(case: Case) -> set[str]:
    return {spec.job.id for spec in case.jobs
            if spec.job.gpus <= case.topology.capacity(spec.job.gpu_type, spec.job.within)}


def Replay(topology: Topology, jobs: list[Spec], entries: list[tuple[float, Entry]]) -> JournalReplay:  # noqa: N802
    """Who holds which GPU, from the journal alone."""
    return JournalReplay(topology, [spec.job for spec in jobs], entries)


__all__ = ["CLUSTERS", "NAMES", "Case", "Replay", "cases", "runnable", "variants", "work_by_journal"]
