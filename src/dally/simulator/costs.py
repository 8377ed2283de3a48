"""What preemption costs: saving a checkpoint and loading it again."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dally.core.errors import UserError
from dally.core.job import Job
from dally.core.spec import Spec, parse_spec
from dally.core.units import bandwidth, seconds

UNKNOWN_MODEL_BYTES = 1e9  # a checkpoint of a job whose model nobody named; an assumption, said in the docs
STORAGE_BANDWIDTH = 2e9  # bytes per second a job gets from shared storage; an assumption, said in the docs


# Seconds from the end of one time slice to the beginning of the next: Gandiva, OSDI'18, suspends and
# resumes at the memory minimum of a mini-batch in about 100 ms.
SUSPEND_RESUME = 0.1


class PreemptionCost(Protocol):
    def save(self, job: Job) -> float:
        """Seconds between the decision and the GPUs being free."""
        ...

    def restore(self, job: Job) -> float:
        """Seconds a job that has run before holds its GPUs before it makes progress again."""
        ...


class Constant:
    """The same price for every job: paid when it comes back."""

    def __init__(self, price: float) -> None:
        self.price = price

    def save(self, job: Job) -> float:
        return 0.0

    def restore(self, job: Job) -> float:
        return self.price


class Original:
    """The rule of Dally's authors: freed GPUs come back 1 s × number of GPUs later; loading is free."""

    def save(self, job: Job) -> float:
        return 1.0 * job.gpus

    def restore(self, job: Job) -> float:
        return 0.0


@runtime_checkable
class MigrationCost(Protocol):
    """A cost that knows better what moving or resizing a running job takes than to save and to restore."""

    def migrate(self, job: Job, gpus: int) -> float:
        """Seconds without progress; `gpus` is the larger of the numbers before and after."""
        ...


class Gandiva:
    """Gandiva, OSDI'18: about 100 ms to suspend and to resume (§5.1); 1 to 2 s to migrate a job of one GPU and about
    35 s one of eight (§5.1, figure 9), a line through both for other sizes."""

    ONE_GPU = 1.5
    EIGHT_GPUS = 35.0

    def __init__(self, suspend: float = SUSPEND_RESUME) -> None:
        self.switch = suspend

    def save(self, job: Job) -> float:
        return self.switch

    def restore(self, job: Job) -> float:
        return self.switch

    def migrate(self, job: Job, gpus: int) -> float:
        return self.ONE_GPU + (gpus - 1) * (self.EIGHT_GPUS - self.ONE_GPU) / 7


class FromModelSize:
    """Checkpoint bytes over storage bandwidth, once to save and once to load."""

    def __init__(self, storage: float = STORAGE_BANDWIDTH) -> None:
        self.storage = storage
        self._bytes: dict[str | None, float] = {None: UNKNOWN_MODEL_BYTES}

    def _seconds(self, job: Job) -> float:
        size = self._bytes.get(job.model)
        if size is None:
            size = self._bytes[job.model] = self._checkpoint_bytes(job.model)
        return size / self.storage

    @staticmethod
    def _checkpoint_bytes(name: str | None) -> float:
        from dally.catalog import find_model

        try:
            return float(find_model(name or "").checkpoint_bytes)
        except UserError:
            return UNKNOWN_MODEL_BYTES

    def save(self, job: Job) -> float:
        return self._seconds(job)

    def restore(self, job: Job) -> float:
        return self._seconds(job)


def make_cost(text: str) -> PreemptionCost:
    """`0`, `30s`: the same for all; `model`, `model[storage=5GB/s]`: from its size; `original`: Dally's authors';
    `gandiva`, `gandiva[suspend=50ms]`: Gandiva's."""
    if text.strip().partition("[")[0] in ("original", "model", "gandiva"):
        return _named(parse_spec(text, "preemption cost"), text)
    try:
        price = seconds(text)
    except UserError:
        known = "0, a time such as 30s, model, model[storage=5GB/s], original or gandiva[suspend=100ms]"
        raise UserError(f"preemption cost {text!r}: write {known}") from None
    if price < 0:
        raise UserError(f"preemption cost {text!r} must not be negative")
    return Constant(price)


def _named(spec: Spec, text: str) -> PreemptionCost:
    known = {"model": {"storage": "5GB/s"}, "gandiva": {"suspend": "100ms"}}.get(spec.name, {})
    options = spec.values("preemption cost", known)
    if spec.bracketed and not options:
        raise UserError(f"preemption cost {text!r}: the brackets are empty")
    if spec.name == "original":
        return Original()
    if spec.name == "model":
        storage = bandwidth(options["storage"]) if options else STORAGE_BANDWIDTH
        if storage <= 0:
            raise UserError(f"preemption cost {text!r}: the storage must have a bandwidth above 0")
        return FromModelSize(storage)
    suspend = seconds(options["suspend"]) if options else SUSPEND_RESUME
    if suspend < 0:
        raise UserError(f"preemption cost {text!r}: to suspend must not take a negative time")
    return Gandiva(suspend)


def switch_cost(cost: PreemptionCost) -> float:
    """What one switch between time slices takes under this cost: its own word, else Gandiva's 100 ms."""
    return cost.switch if isinstance(cost, Gandiva) else SUSPEND_RESUME
