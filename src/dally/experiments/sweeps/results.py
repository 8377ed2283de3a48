"""What a sweep found: every cell in one Parquet, and the policies against the baseline with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dally.core.records import dataclass
from dally.experiments.results import flat
from dally.experiments.sweeps.cells import CellStore
from dally.experiments.sweeps.spec import Cell, SweepSpec
from dally.experiments.sweeps.statistics import Ratio, paired
from dally.report.groups import grouped
from dally.simulator.digests import code_digest

if TYPE_CHECKING:
    import polars as pl

RESULTS = "results.parquet"
_CHUNK = 1000  # rows held as Python objects at a time
TIMING_PREFIX = "timing."
HELD = "measured.gpus_held"


@dataclass(frozen=True, slots=True)
class Line:
    """One policy at one place of the sweep, over all seeds."""

    place: tuple[tuple[str, Any], ...]
    policy: str
    seeds: int
    means: dict[str, float | None]  # figure → mean over the seeds
    ratios: dict[str, Ratio | None]  # figure → against the baseline; None for itself, and where there is no ratio
    held: float | None  # GPUs held while it was measured, mean over the seeds
    by_seed: dict[str, dict[int, float]]
    told: str  # of the future


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The table in memory, its summary, and what failed."""

    spec: SweepSpec
    folder: Path
    cells: pl.DataFrame
    lines: tuple[Line, ...]
    failures: tuple[tuple[str, str], ...]  # cell, why
    alarms: tuple[tuple[str, str], ...]  # cell, what it did that is proved impossible
    missing: int  # cells that have not been run
    interrupted: bool
    notes: tuple[str, ...]

    @property
    def summary(self) -> pl.DataFrame:
        """One row per place and policy: means, ratio to the baseline with its interval, and the verdict."""
        import polars as pl

        rows = []
        for line in self.lines:
            row: dict[str, Any] = {**dict(line.place), "policy": line.policy, "told": line.told,
                                   "seeds": line.seeds}
            for figure in self.spec.figures:
                ratio = line.ratios.get(figure)
                row |= {figure: line.means[figure], f"{figure}.ratio": ratio.value if ratio else None,
                        f"{figure}.low": ratio.low if ratio else None, f"{figure}.high": ratio.high if ratio else None,
                        f"{figure}.verdict": ratio.verdict if ratio else None}  # fmt: skip
            rows.append(row | {"gpus_held": line.held})
        return pl.DataFrame(rows, infer_schema_length=None)

    def to_pandas(self) -> Any:
        from dally.experiments.results import to_pandas

        return to_pandas(self.summary)

    def places(self) -> dict[tuple[tuple[str, Any], ...], list[Line]]:
        found: dict[tuple[tuple[str, Any], ...], list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.place, []).append(line)
        return found

    def headlines(self, lines: Sequence[Line], figure: str) -> list[str]:
        """At one place, for each group that was told the same: who is first, who is second, and whether that is more
        than noise. The first of all groups is not named: it may only have been told more."""
        groups = grouped(lines, [line.told for line in lines])
        said = []
        for group in groups:
            sentence = _first_before_second(group.members, figure)
            if sentence is not None:
                said.append(f"told {group.told}, {sentence}" if len(groups) > 1 else sentence)
        return said


def _first_before_second(lines: Sequence[Line], figure: str) -> str | None:
    known = [(line, mean) for line in lines if (mean := line.means[figure]) is not None]
    if len(known) < 2:
        return f"{known[0][0].policy} is alone" if known else None
    first, second = (line for line, _ in sorted(known, key=lambda each: each[1])[:2])
    ratio = paired(first.by_seed[figure], second.by_seed[figure])
    if ratio is None:
        return None
    if ratio.low is None or ratio.high is None:
        few = "one run, no interval" if ratio.seeds == 1 else "too few seeds to tell from noise"
        return f"{first.policy} before {second.policy}: {ratio.value:.3f}×, {few}"
    span = f"{ratio.value:.3f}× [{ratio.low:.3f}, {ratio.high:.3f}]"
    if ratio.verdict in ("noise", "more"):
        return f"{first.policy} and {second.policy} are within noise of each other: {span}"
    return f"{first.policy} before {second.policy}: {span}"


def collect(spec: SweepSpec, store: CellStore, out: Path, *, interrupted: bool = False) -> SweepResult:
    """Read the cells of this sweep back, write them as one table, and sum up."""
    failures, alarms, missing, codes = [], [], 0, set()

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal missing
        for cell in spec.cells():
            found = store.find(cell)
            if found is None:
                failure = store.find_failure(cell)
                if failure is None:
                    missing += 1
                else:
                    failures.append((cell.label, str(failure["error"])))
                    yield _row(cell, {"error": failure["error"]})
                continue
            codes.add(found.get("code"))
            if found["figures"].get("alarm"):
                alarms.append((cell.label, str(found["figures"]["alarm"])))
            timing = {f"{TIMING_PREFIX}{name}": value for name, value in found["timing"].items()}
            yield _row(cell, {"error": None, **found["figures"], **timing})

    frame = _gathered(rows())
    part = out / f"{RESULTS}.new"
    frame.write_parquet(part)
    part.replace(out / RESULTS)
    notes = []
    if codes - {code_digest()}:
        notes.append("some cells were made by another state of the program's code; take a new folder to run them anew")
    return SweepResult(spec, out, frame, tuple(_lines(spec, frame)), tuple(failures), tuple(alarms), missing,
                       interrupted, tuple(notes))  # fmt: skip


def _row(cell: Cell, found: dict[str, Any]) -> dict[str, Any]:
    """Place, policy and seed, the whole configuration, then what was found."""
    import json

    configuration = {f"scenario.{name}": _text(value) for name, value in cell.configuration["scenario"].items()}
    return {"key": cell.key, "label": cell.entrant.label, "seed": cell.scenario.seed,
            **{f"at.{axis}": _text(value) for axis, value in cell.coordinates}, **configuration,
            "configuration": json.dumps(cell.configuration, sort_keys=True), **found}  # fmt: skip


def _text(value: Any) -> Any:
    """Axes may hold numbers and words; a column of a table holds one of them."""
    return None if value is None else str(value)


def _gathered(rows: Iterator[dict[str, Any]]) -> pl.DataFrame:
    import polars as pl

    parts = []
    while chunk := list(islice(rows, _CHUNK)):
        parts.append(pl.DataFrame([flat(row) for row in chunk], infer_schema_length=None))
    return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()


def _lines(spec: SweepSpec, frame: pl.DataFrame) -> Iterator[Line]:
    """Means and paired ratios of every policy at every place."""
    found = _by_place(spec, frame)
    told = _told(frame)
    places = dict.fromkeys(cell.coordinates for cell in spec.cells())
    axes = spec.axes
    for place in places:
        texts = tuple(_text(value) for _, value in place)
        base = found.get((texts, spec.baseline), {})
        for entrant in spec.entrants:
            mine = found.get((texts, entrant.label), {})
            held = list(mine.get(HELD, {}).values())
            seeds = {figure: mine.get(figure, {}) for figure in spec.figures}
            means = {figure: sum(values.values()) / len(values) if values else None for figure, values in seeds.items()}
            ratios = {figure: None if entrant.label == spec.baseline else paired(seeds[figure], base.get(figure, {}))
                      for figure in spec.figures}  # fmt: skip
            yield Line(tuple((axis, value) for axis, value in place if axis in axes), entrant.label,
                       max((len(values) for values in seeds.values()), default=0), means, ratios,
                       sum(held) / len(held) if held else None, seeds,
                       " / ".join(told.get((texts, entrant.label), ())) or "?")  # fmt: skip


def _told(frame: pl.DataFrame) -> dict[tuple[Any, str], list[str]]:
    """(place, policy) → what it was told there; in words, several where cells differ or did not write it down."""
    axes = [name for name in frame.columns if name.startswith("at.")]
    found: dict[tuple[Any, str], list[str]] = {}
    if "told" in frame.columns:
        for label, told, *place in frame.select("label", "told", *axes).iter_rows():
            mine = found.setdefault((tuple(place), label), [])
            if told and told not in mine:
                mine.append(told)
    return found


def _by_place(spec: SweepSpec, frame: pl.DataFrame) -> dict[tuple[Any, str], dict[str, dict[int, float]]]:
    """(place, policy) → figure → seed → value, of the cells that have it."""
    axes = [name for name in frame.columns if name.startswith("at.")]
    figures = [name for name in (*spec.figures, HELD) if name in frame.columns]
    found: dict[tuple[Any, str], dict[str, dict[int, float]]] = {}
    if not figures:
        return found
    for label, seed, *rest in frame.select("label", "seed", *axes, *figures).iter_rows():
        mine = found.setdefault((tuple(rest[: len(axes)]), label), {})
        for figure, value in zip(figures, rest[len(axes) :], strict=True):
            if value is not None:
                mine.setdefault(figure, {})[int(seed)] = float(value)
    return found
