"""A scenario: everything that is run except the policy, as plain data that can be written down and read again.

The command line, the Python API, sweeps and re-runs all make one of these and call `prepare()`: what they simulate
is the same because it is made in one place.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from dally.core.errors import UserError
from dally.core.job import DurationMeans
from dally.core.nested import MOST, written_out
from dally.core.records import dataclass
from dally.core.topology import Topology
from dally.core.units import seconds
from dally.simulator.digests import digest_of, trace_digest
from dally.simulator.experiment import Experiment, FaultRules
from dally.simulator.faults import Outages, StartRules
from dally.traces.trace import Trace
from dally.version import __version__

_TIME = {"kind": "time"}
_FILE = {"kind": "file"}
_SELDOM = {"kind": "file", "seldom": True}  # not written down where it is not given
SYNTH = "synth:"
DEFAULT_JOBS = 1000  # of a synthesised trace


@dataclass(frozen=True, slots=True)
class Scenario:
    """Times are seconds (`of` also takes `30d`), files are named as their user named them."""

    trace: str | Trace = field(metadata=_FILE)  # a file, `-`, synth:NAME, or a trace in memory
    cluster: str | Topology = field(metadata=_FILE)  # a shape, pools, a preset, a file, or a topology in memory
    jobs: int | None = None  # to synthesise or to draw; of a file otherwise the first so many
    load: float | None = None  # offered load: gaps between submissions are scaled until it is met
    resample: bool = False  # draw the jobs of a file anew, by seed
    warm_start: bool | None = None  # the stream's own past is still running at its begin; None: where a load is asked
    window: str | None = None  # whose jobs are measured; None: 10%..90% where a load is asked, else all
    fabric: str | None = None
    nodes: str | None = field(default=None, metadata=_FILE)
    network: str | None = None  # None: analytic, or ideal with a table of throughputs
    contention: bool = True
    throughputs: str | None = field(default=None, metadata=_FILE)  # a table of measured speeds, or `catalog`
    model_mix: str | None = field(default=None, metadata=_FILE)
    duration_means: str | None = None
    traced_cluster: str | None = field(default=None, metadata=_FILE)
    preemption_cost: str = "model"
    seed: int = 0
    knowledge: str = "auto"  # of durations: what a real cluster has, time limits where the trace has any, else nothing
    slices: str = "fluid"
    interference: str = field(default="auto", metadata=_FILE)
    measurement_noise: float = 0.02
    outages: str | None = field(default=None, metadata=_FILE)
    mtbf: float | None = field(default=None, metadata=_TIME)
    mttr: float = field(default=4 * 3600.0, metadata=_TIME)
    job_mtbf: float | None = field(default=None, metadata=_TIME)
    retries: int = 3
    checkpoint_interval: float = field(default=1800.0, metadata=_TIME)
    start_latency: float = field(default=0.0, metadata=_TIME)  # mean seconds until a start is answered
    start_failures: float = 0.0  # share of starts that are refused
    queues: str | None = field(default=None, metadata=_SELDOM)  # a file of queues with weights and limits
    bound: bool | None = field(default=None, metadata={"seldom": True})  # False: no lower bound is computed

    def __post_init__(self) -> None:
        hints = _hints()
        for each in fields(self):
            value = _typed(each.name, getattr(self, each.name), hints[each.name], each.metadata.get("kind"))
            object.__setattr__(self, each.name, value)
        self._check()

    def _check(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"scenario, jobs: a trace has at least one job, not {self.jobs}")
        if self.load is not None and not self.load > 0:
            raise UserError(f"scenario, load: an offered load is above 0, not {self.load:g}")
        if self.seed < 0:
            raise UserError(f"scenario, seed: a seed is 0 or above, not {self.seed}")
        if self.retries < 0:
            raise UserError(f"scenario, retries: a job survives 0 crashes or more, not {self.retries}")
        if self.outages is not None and self.mtbf is not None:
            raise UserError("--outages and --mtbf both say when machines fail; give one of them")
        if self.mtbf == 0 or self.job_mtbf == 0 or self.mttr == 0:
            raise UserError("--mtbf, --mttr and --job-mtbf are mean times and must be above 0")
        if self.slices not in ("fluid", "quanta"):
            raise UserError(f"slices are run fluid or quanta, not {self.slices!r}")
        StartRules(self.start_latency, self.start_failures)
        known = [means.value for means in DurationMeans]
        if self.duration_means is not None and self.duration_means not in known:
            raise UserError(f"scenario, duration_means: write {', '.join(known)}, not {self.duration_means!r}")
        if self.resample and isinstance(self.trace, str) and self.trace.startswith(SYNTH):
            raise UserError("--resample draws jobs of a file; a synthesised trace is drawn anew by every seed")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Scenario:
        """A scenario from names and values as people write them; None stands for the default."""
        known = [each.name for each in fields(cls)]
        for name in values:
            if name not in known:
                from difflib import get_close_matches

                near = get_close_matches(str(name), known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
                raise UserError(f"a scenario has no field {name!r}; {hint}")
        given = {name: value for name, value in values.items() if value is not None}
        for needed in ("trace", "cluster"):
            if needed not in given:
                raise UserError(f"a scenario needs a {needed}")
        return cls(**given)

    @classmethod
    def read(cls, path: str | Path, **changes: Any) -> Scenario:
        """A scenario file in YAML or JSON; `changes` win over what it says."""
        values = read_mapping(path, "scenario")
        return cls.of(values | {name: value for name, value in changes.items() if value is not None})

    def having(self, **changes: Any) -> Scenario:
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Every field as plain JSON; a trace or a cluster in memory is named by its digest."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)
                if not each.metadata.get("seldom") or getattr(self, each.name) is not None}  # fmt: skip

    def changed(self) -> dict[str, Any]:
        """The fields that differ from their default: the shortest dictionary that makes this scenario again."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)
                if getattr(self, each.name) != each.default}  # fmt: skip

    def arguments(self) -> list[str]:
        """The command line options that make this scenario again."""
        words: list[str] = []
        for name, value in self.changed().items():
            if isinstance(value, bool):
                words.append({"contention": "--no-contention", "resample": "--resample",
                              "bound": "--bound" if value else "--no-bound"}.get(
                    name, "--warm-start" if value else "--cold-start"))  # fmt: skip
            else:
                words += ["--" + name.replace("_", "-"), f"{value:g}" if isinstance(value, float) and
                          float(f"{value:g}") == value else str(value)]  # fmt: skip
        return words

    def files(self) -> dict[str, str]:
        """Digests of the files and folders this scenario reads, by field."""
        found = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.metadata.get("kind") == "file" and isinstance(value, str):
                digest = digest_of(value)
                if digest is not None:
                    found[each.name] = digest
        return found

    def identity(self) -> dict[str, Any]:
        """What decides the result: the configuration, the contents of the files it names, and the version."""
        return {"dally": __version__, "scenario": self.as_dict(), "files": self.files()}

    def describe(self, trace: Trace | None = None) -> dict[str, Any]:
        """All that is needed to run this again and to know that it is the same: plain JSON.

        `trace`: the prepared one where there is one already; otherwise it is made to take its digest.
        """
        made = trace if trace is not None else self.prepare().trace
        return {**self.identity(), "jobs": len(made), "trace_digest": trace_digest(made)}

    @property
    def is_stream(self) -> bool:
        """Whether somebody asked for a load, and so for a cluster that is at work before and after the measurement."""
        return self.load is not None

    def prepare(self) -> Experiment:
        """Load what the fields name, check that it fits together, and fix every job: nothing is decided later."""
        from dally.simulator.preparing import prepare_scenario

        return prepare_scenario(self)

    def fault_rules(self, topology: Topology, origin: str | None, notes: list[str]) -> FaultRules:
        outages: Outages = {}
        if self.outages:
            from dally.simulator.outages import read_outages

            outages = read_outages(Path(self.outages), topology, origin, notes)
        return FaultRules(outages, self.mtbf, self.mttr, self.job_mtbf, self.retries, self.checkpoint_interval)


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Scenario)


def read_mapping(path: str | Path, what: str) -> dict[str, Any]:
    """A YAML or JSON file that holds one mapping."""
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise UserError(f"{what} {path} cannot be read: {reason}") from None
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f", line {where.line + 1}" if where is not None else ""
        raise UserError(f"{what} {path}{line}: it is not YAML: {getattr(error, 'problem', error)}") from None
    except (ValueError, RecursionError) as error:  # a date such as 2026-02-31
        raise UserError(f"{what} {path}: it is not YAML: {error}") from None
    if (size := written_out(found)) > MOST:
        how = "refers to itself" if math.isinf(size) else f"stands for {size:.0e} values: its parts hold each other"
        raise UserError(f"{what} {path}: it {how}")
    try:
        json.dumps(found)
    except TypeError:  # YAML makes dates, sets and lists as keys of what is not in quotation marks
        raise UserError(f"{what} {path}: it holds a date, or another value that is neither a number nor text; put it "
                        "in quotation marks") from None  # fmt: skip
    except (ValueError, RecursionError):
        raise UserError(f"{what} {path}: it refers to itself, or is nested too deeply") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise UserError(f"{what} {path}: it must be a mapping of names to values")
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Trace):
        return f"in memory: {value.name}, {len(value):,} jobs, {trace_digest(value)}"
    if isinstance(value, Topology):
        return f"in memory: {value.name}, {value.gpus:,} GPUs"
    return value


def _typed(name: str, value: Any, hint: Any, kind: str | None) -> Any:
    """The value as its field's type, or one sentence."""
    choices = get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value is None and type(None) in choices:
        return None
    if any(each is not float and isinstance(each, type) and isinstance(value, each) for each in choices) and not (
        isinstance(value, bool) and bool not in choices
    ):
        return value
    if float in choices and kind == "time":
        found = seconds(value)
        if found < 0:
            raise UserError(f"{value!r} is not a time from now on: it is negative")
        return found
    if float in choices and isinstance(value, (int, float)) and not isinstance(value, bool) and value == value:
        return float(value)
    if str in choices and isinstance(value, (Path, int, float)) and not isinstance(value, bool):
        return str(value)
    wanted = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}
    names = " or ".join(wanted[each] for each in choices if each in wanted)
    raise UserError(f"scenario, {name}: it must be {names}, not {value!r}")
