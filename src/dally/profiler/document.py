"""The profile as it is kept: what was measured, with its spread, and what follows; versioned, checked when read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dally.core.errors import UserError
from dally.core.nested import MOST, written_out

VERSION = 1
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Run(_Part):
    """One of the five measurements: seconds per step are the median over windows of the mean over ranks."""

    data: Literal["synthetic", "cold", "cached", "own"]
    processes: Annotated[int, Field(ge=1)]
    machines: Annotated[int, Field(ge=1)] = 1
    step: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    spread: Seconds  # standard deviation over windows
    windows: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]]  # each the mean of its steps
    steps: Annotated[int, Field(ge=1)]  # measured in all windows together, per rank
    wait: Seconds = 0.0  # per step, blocked on the DataLoader
    silent: float | None = None  # the step without any exchange of gradients
    silent_spread: Seconds = 0.0
    busy: Seconds = 0.0  # CPU seconds per second of one rank's main process
    read: float | None = None  # bytes per step that storage delivered to one rank
    link: str = ""  # what joins the machines, in the words of who measured


class Stall(_Part):
    """Seconds per step; per cent of the run the method names. Spread: one standard deviation."""

    seconds: float
    percent: float
    spread: Seconds
    spread_percent: Seconds
    seen: float | None = None  # seconds by which steps were blocked longer on the DataLoader; of data stalls

    @property
    def clear(self) -> bool:
        """More than two standard deviations away from nothing, and not contradicted by what steps waited for."""
        return not self.within_noise and not self.contradicted

    @property
    def within_noise(self) -> bool:
        return self.seconds <= 2 * self.spread

    @property
    def contradicted(self) -> bool:
        """Steps took longer but did not wait for data: the host was busier, or workers took the devices' CPUs."""
        return self.seen is not None and self.seen < 0.2 * self.seconds

    @property
    def verdict(self) -> str:
        if self.within_noise:
            return "within the noise"
        return "not the data: steps did not wait for them" if self.contradicted else ""


class Device(_Part):
    kind: Literal["cpu", "cuda"]
    name: str
    threads: Annotated[int, Field(ge=1)] = 1
    cores: Annotated[int, Field(ge=1)] = 1  # of the host
    backend: str | None = None
    peak: float | None = None  # FLOP/s
    peak_source: str = ""


class Checkpoint(_Part):
    bytes: Annotated[int, Field(ge=0)]
    save: Seconds
    load: Seconds


class Layer(_Part):
    """A row of the layer table, as the catalog reads it."""

    name: str
    kind: str
    parameters: int
    tensors: list[int] = []
    gradient_bytes: int
    forward_flops: int = 0
    input_gradient_flops: int = 0
    weight_gradient_flops: int = 0
    activation_elements: int = 0
    traffic_elements: int = 0
    measured: dict[str, float] | None = None


class ModelTable(_Part):
    """A model of the catalog (docs/catalog.md)."""

    title: str = ""
    family: str = "default"
    batch_size: Annotated[int, Field(ge=1)]
    sample: str = "sample"
    measured_on: str | None = None
    optimizer: Literal["sgd", "adam"] = "sgd"
    precision: Literal["fp32", "mixed", "bf16"] = "fp32"
    update: Seconds = 0.0
    memory: float | None = None
    utilization: dict[str, Any] | None = None
    buckets: list[int] = []
    source: str
    layers: list[Layer]

    @property
    def flops(self) -> int:
        """Operations of a step, forward and backward, for the whole batch of one device."""
        each = (row.forward_flops + row.input_gradient_flops + row.weight_gradient_flops for row in self.layers)
        return self.batch_size * sum(each)

    @property
    def gradient_bytes(self) -> int:
        return sum(row.gradient_bytes for row in self.layers)


class Profile(_Part):
    """What `dally profile run` leaves behind."""

    version: Literal[1] = Field(alias="dally-profile", default=1)
    name: str
    status: Literal["complete", "partial"] = "complete"
    made: str  # when and with what
    script: str = ""
    device: Device
    batch: int | None = None  # samples per device and step
    runs: dict[str, Run] = {}  # one, all, cold, cached
    apart: list[Run] = []  # the same number of devices over several machines
    stalls: dict[str, Stall] = {}  # interconnect, network, prep, fetch
    host_share: float | None = None  # seconds of the interconnect stall that are ranks in each other's way on the host
    rates: dict[str, float] = {}  # ingestion, prep, fetch: samples per second, all devices together
    workers: int | None = None  # of each rank's DataLoader
    other: Seconds = 0.0  # per step, outside forward, backward and optimiser
    memory: int | None = None  # peak bytes of one rank
    checkpoint: Checkpoint | None = None
    mfu: float | None = None  # model FLOPs over the device's peak, in the run with all devices
    exposed: float | None = None  # per step, communication that nothing hides, from the trace
    trace: str | None = None  # Chrome trace, beside this file
    timeline: list[dict[str, Any]] = []
    notes: list[str] = []
    model: ModelTable | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def samples_per_second(self, run: str = "all") -> float | None:
        found = self.runs.get(run)
        return None if found is None or self.batch is None else self.batch * found.processes / found.step


def read_profile(path: Path) -> Profile:
    """A profile, or one sentence that names file and field."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise UserError(f"{path}{where}: {getattr(error, 'problem', None) or 'it is not YAML'}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: it is not YAML: {error}") from None
    if written_out(data) > MOST:
        raise UserError(f"{path}: its parts hold each other, and stand for more than {MOST:,} values")
    if not isinstance(data, dict) or "dally-profile" not in data:
        raise UserError(f"{path}: is not a profile; a profile begins with `dally-profile: {VERSION}`")
    if data["dally-profile"] != VERSION:
        raise UserError(
            f"{path}: is a profile of version {data['dally-profile']!r}; this Dally reads version {VERSION}"
        )
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{path}: {field}: {first['msg']}") from None


def write_profile(profile: Profile, path: Path) -> None:
    """Whole or not at all: a file that was there stays until the new one is complete."""
    import yaml

    data = profile.model_dump(by_alias=True, exclude_none=True, exclude_defaults=False)
    data = {"dally-profile": VERSION, **{key: value for key, value in data.items() if value not in ([], {}, "")}}
    text = yaml.dump(
        _rounded(data),
        sort_keys=False,
        allow_unicode=True,
        width=120,
        default_flow_style=None,
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
    )
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _rounded(value: Any) -> Any:
    """Seven digits are more than any of this is known to."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return value
