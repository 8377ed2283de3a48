"""What-ifs on a profile: what a step would take with more workers, a cache, other links, another GPU, another batch.

The compute and exchange of a step come from the network model on links that explain what was measured; data from the
differences the profile has, as DS-Analyzer does: a step waits for the slowest of devices and prepared batches, and for
what the disk adds. fetch(x) = (1 − x) · fetch + x · bytes / memory bandwidth for a cache of a share x of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.profiler.predict import predict

if TYPE_CHECKING:
    from dally.catalog import Machine, Model
    from dally.network.step import StepOptions
    from dally.profiler.document import Profile

_MEMORY_RATE = 5e9  # bytes per second from the page cache, estimated
_SLOWEST, _FASTEST = 1e5, 1e13  # bytes per second between which the link that explains a measurement is looked for


@dataclass(frozen=True, slots=True)
class Change:
    """What is different; None: as it was."""

    workers: int | None = None
    cache: float | None = None  # share of the data in memory
    disk: float | None = None  # bytes per second
    interconnect: float | None = None  # bytes per second of a device's port inside the machine
    network: float | None = None  # bytes per second of a machine's port
    gpu: str | None = None
    machines: int | None = None
    batch: int | None = None
    compression: float | None = None  # gradients shrink by this factor; its own cost is not counted
    bucket: float | None = None  # bytes

    def text(self) -> str:
        from dally.core.units import show_bytes

        shown = {
            "workers": f"{self.workers} workers",
            "cache": f"{100 * (self.cache or 0):g} % of the data cached",
            "disk": f"disk of {show_bytes(self.disk or 0)}/s",
            "interconnect": f"interconnect of {show_bytes(self.interconnect or 0)}/s",
            "network": f"network of {show_bytes(self.network or 0)}/s",
            "gpu": f"{self.gpu}",
            "machines": f"{self.machines} machines",
            "batch": f"batch of {self.batch}",
            "compression": f"gradients compressed {self.compression:g} ×" if self.compression else "",
            "bucket": f"buckets of {show_bytes(self.bucket or 0)}",
        }
        return ", ".join(words for key, words in shown.items() if getattr(self, key) is not None) or "as measured"


@dataclass(frozen=True, slots=True)
class Answer:
    """A step, predicted, and where its time goes; `compute` is one device without exchange."""

    change: str
    seconds: float  # with cold data
    compute: float
    interconnect: float
    network: float
    prep: float
    fetch: float
    samples_per_second: float

    @property
    def next_stall(self) -> str:
        parts = {"interconnect": self.interconnect, "network": self.network, "CPU": self.prep, "disk": self.fetch}
        worst = max(parts, key=lambda name: parts[name])
        return worst if parts[worst] > 0.01 * self.seconds else "none: the devices compute"


def what_if(profile: Profile, model: Model, change: Change) -> Answer:
    """`model` is the profile's, from the catalog."""
    together = profile.runs.get("all") or profile.runs.get("one")
    if together is None or profile.batch is None:
        raise UserError("this profile has no run with synthetic data: there is nothing to start a what-if from")
    if change.cache is not None and not 0 <= change.cache <= 1:
        raise UserError(f"a cache holds between 0 and 1 of the data, not {change.cache:g}")
    if change.gpu is not None:
        _check_gpu(model, change.gpu)
    batch = change.batch or profile.batch
    processes = together.processes
    machines = change.machines or 1
    machine = _explaining(profile, model, processes)
    if change.interconnect is not None:
        inner = machine.levels[0]
        machine = replace(machine, levels=(replace(inner, link=replace(inner.link, bandwidth=change.interconnect)),))
    if change.network is not None:
        machine = replace(machine, nic_bandwidth=change.network)
    if change.gpu is not None:
        from dally.catalog import find_gpu

        machine = replace(machine, gpu=find_gpu(change.gpu).name)
    step = predict(_squeezed(model, change), machine, machines, batch, _options(change))
    prep = _prep(profile, change, batch, step.seconds)
    fetch = _fetch(profile, change, batch)
    seconds = step.seconds + prep + fetch
    return Answer(
        change.text(),
        seconds,
        step.compute,
        step.interconnect,
        step.network,
        prep,
        fetch,
        batch * processes * machines / seconds,
    )


def _check_gpu(model: Model, name: str) -> None:
    from dally.catalog import find_gpu

    find_gpu(name)
    if not any(layer.forward_flops for layer in model.layers):
        raise UserError("this profile counts no FLOPs: its times cannot be carried over to another GPU")


def _squeezed(model: Model, change: Change) -> Model:
    if change.compression is not None and change.compression < 1:
        raise UserError(f"a compression shrinks gradients by a factor of at least 1, not {change.compression:g}")
    by = change.compression or 1.0
    layers = tuple(replace(layer, gradient_bytes=round(layer.gradient_bytes / by)) for layer in model.layers)
    buckets = () if change.bucket is not None else tuple(max(1, round(size / by)) for size in model.buckets)
    return replace(model, layers=layers, buckets=buckets)


def _options(change: Change) -> StepOptions:
    from dally.network.cuts import BUCKET
    from dally.network.step import StepOptions

    return StepOptions(algorithm="ring", bucket=BUCKET if change.bucket is None else change.bucket)


@lru_cache(maxsize=16)
def _cached_machine(
    model: Model, gpu: str, processes: int, target: float, batch: int, apart: float, far: int
) -> Machine:
    from dally.catalog.machine import InnerLevel, Machine
    from dally.core.topology import Level, LinkKind

    def machine(inside: float, outside: float) -> Machine:
        link = Level("machine", LinkKind.SWITCH, inside, 20e-6)
        return Machine("measured", gpu, processes, (InnerLevel(processes, link),), 1, outside, "explains a profile")

    def search(step: Callable[[float], float], wanted: float) -> float:
        low, high = _SLOWEST, _FASTEST
        for _ in range(60):
            middle = (low * high) ** 0.5
            if step(middle) > wanted:
                low = middle
            else:
                high = middle
        return float((low * high) ** 0.5)

    options = _options(Change())
    inside = _FASTEST
    if processes > 1:
        inside = search(lambda rate: predict(model, machine(rate, 1e10), 1, batch, options).seconds, target)
    outside = 1.25e9  # 10 Gbit/s, where nobody measured
    if apart > 0:
        each = replace(
            machine(inside, 1e10),
            gpus=processes // far,
            levels=(InnerLevel(processes // far, machine(inside, 1e10).levels[0].link),),
        )
        outside = search(
            lambda rate: predict(model, replace(each, nic_bandwidth=rate), far, batch, options).seconds, apart
        )
    return machine(inside, outside)


def _explaining(profile: Profile, model: Model, processes: int) -> Machine:
    """A machine whose links make the network model's step the measured one; nobody's links are looked at."""
    together = profile.runs.get("all") or profile.runs["one"]
    apart = profile.apart[-1] if profile.apart and profile.apart[-1].processes == processes else None
    return _cached_machine(
        model,
        model.measured_on or "CPU",
        processes,
        together.step,
        profile.batch or model.batch_size,
        apart.step if apart is not None and processes % apart.machines == 0 else 0.0,
        apart.machines if apart else 1,
    )


def _prep(profile: Profile, change: Change, batch: int, step: float) -> float:
    """Seconds a step waits for prepared batches."""
    cached, together = profile.runs.get("cached"), profile.runs.get("all") or profile.runs.get("one")
    stall = profile.stalls.get("prep")
    if cached is None or together is None or stall is None or not stall.clear or profile.batch is None:
        return 0.0
    grown = batch / profile.batch
    now = profile.workers or 0
    then = now if change.workers is None else change.workers
    # Without workers a batch is prepared between steps; with them while the step before computes.
    alone = stall.seconds * grown if now == 0 else cached.step * grown * now
    if then == 0:
        return alone
    cores = profile.device.cores / cached.processes
    return max(0.0, alone / min(then, max(1.0, cores)) - step)


def _fetch(profile: Profile, change: Change, batch: int) -> float:
    """Seconds a step waits for the disk."""
    stall, cold = profile.stalls.get("fetch"), profile.runs.get("cold")
    if stall is None or cold is None or not stall.clear or profile.batch is None:
        return 0.0
    seconds = stall.seconds * batch / profile.batch
    if change.disk is not None:
        if not cold.read:
            raise UserError("this profile does not know how much was read: another disk cannot be imagined")
        seconds *= (cold.read / stall.seconds) / change.disk
    share = change.cache or 0.0
    return (1 - share) * seconds + share * (cold.read or 0.0) * batch / profile.batch / _MEMORY_RATE


def usual(profile: Profile) -> list[Change]:
    """The what-ifs a page shows: each one step in a direction somebody may go."""
    batch = profile.batch or 1
    found = [Change(), Change(batch=2 * batch), Change(compression=4.0), Change(bucket=5e6)]
    if "prep" in profile.stalls:
        found.append(Change(workers=max(2, 2 * (profile.workers or 1))))
    if "fetch" in profile.stalls:
        found += [Change(cache=0.5), Change(cache=1.0)]
    together = profile.runs.get("all")
    if together is not None and together.processes > 1:
        found.append(Change(interconnect=1e10))
    found += [Change(machines=2), Change(machines=2, network=12.5e9), Change(machines=4)]
    return found
