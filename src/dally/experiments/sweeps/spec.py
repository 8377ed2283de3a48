"""What a sweep is made of: axes and their values in a file, and the cells they multiply to (docs/sweep.md)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.experiments.provenance import policy_record
from dally.simulator.digests import text_digest
from dally.simulator.experiment import as_policy
from dally.simulator.scenario import Scenario, read_mapping
from dally.simulator.sweep import AnyPolicy

KEYS = ("name", "scenario", "policies", "vary", "cases", "seeds", "baseline", "figures")
DEFAULT_FIGURES = ("avg_jct", "p95_jct", "makespan")
_FIELDS = {each.name for each in fields(Scenario)}


@dataclass(frozen=True, slots=True)
class Entrant:
    """A policy as it takes part: its label in tables, and what of the scenario is its own."""

    label: str
    policy: AnyPolicy
    overrides: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    scenario: Scenario
    entrant: Entrant
    coordinates: tuple[tuple[str, Any], ...]  # its place on every axis, without policy and seed

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """All that decides the result."""
        return {**self.scenario.identity(), "policy": policy_record(self.entrant.policy)}

    @cached_property
    def key(self) -> str:
        """The cell by its content: the same configuration is the same cell, in whatever sweep it is asked for."""
        return text_digest(self.configuration)[:32]

    @property
    def label(self) -> str:
        place = ", ".join(f"{axis} {value}" for axis, value in self.coordinates)
        return f"{self.entrant.label} ({f'{place}, ' if place else ''}seed {self.scenario.seed})"


@dataclass(frozen=True)
class SweepSpec:
    """Everything a sweep asks for. `vary` and `cases` multiply; each of the entrants runs on each seed of each."""

    base: Mapping[str, Any]
    entrants: tuple[Entrant, ...]
    vary: Mapping[str, Sequence[Any]]
    cases: tuple[Mapping[str, Any], ...]
    seeds: tuple[int, ...]
    baseline: str
    figures: tuple[str, ...] = DEFAULT_FIGURES
    name: str = "sweep"

    @classmethod
    def read(cls, path: str | Path) -> SweepSpec:
        values = read_mapping(path, "sweep")
        return cls.of({"name": Path(path).stem, **values}, str(path))

    @classmethod
    def of(cls, values: Mapping[str, Any], where: str = "sweep") -> SweepSpec:
        """From plain data, or one sentence on what is wrong with it."""
        for key in values:
            if key not in KEYS:
                raise UserError(f"{where}: there is no {key!r} in a sweep; it has {', '.join(KEYS)}")
        base = values.get("scenario") or {}
        if isinstance(base, str):
            base = read_mapping(base, "scenario")
        base = _fields(base, f"{where}, scenario")
        vary = {axis: _values(found, f"{where}, vary, {axis}")
                for axis, found in _fields(values.get("vary") or {}, f"{where}, vary").items()}  # fmt: skip
        for axis in vary:
            if axis == "seed":
                raise UserError(f"{where}, vary: seeds pair the runs and have a place of their own: write seeds: 5")
            if axis in base:
                raise UserError(f"{where}: {axis} is given in scenario and in vary; give it in one of them")
        listed = _values(values.get("cases") or [{}], f"{where}, cases")
        cases = tuple(_fields(case, f"{where}, cases") for case in listed)
        entrants = _entrants(_values(values.get("policies"), f"{where}, policies"), where)
        labels = [entrant.label for entrant in entrants]
        baseline = str(values.get("baseline") or labels[0])
        if baseline not in labels:
            raise UserError(f"{where}: the baseline {baseline!r} is not one of the policies: {', '.join(labels)}")
        figures = tuple(map(str, _values(values.get("figures") or list(DEFAULT_FIGURES), f"{where}, figures")))
        _check_figures(figures, where)
        made = cls(base, entrants, vary, cases, _seeds(values.get("seeds"), base, where), baseline, figures,
                   str(values.get("name") or "sweep"))  # fmt: skip
        next(iter(made.cells()))  # what is missing or misspelt is said before anything runs
        return made

    @property
    def axes(self) -> dict[str, list[Any]]:
        """Axes with more than one value, policy and seed apart."""
        return {axis: list(values) for axis, values in self.vary.items() if len(values) > 1} | (
            {"case": [_case_name(case) for case in self.cases]} if len(self.cases) > 1 else {}
        )

    @property
    def labels(self) -> list[str]:
        return [entrant.label for entrant in self.entrants]

    def __len__(self) -> int:
        places = len(self.cases)
        for values in self.vary.values():
            places *= len(values)
        return places * len(self.seeds) * len(self.entrants)

    def cells(self) -> Iterator[Cell]:
        """In the order of the spec, entrants innermost: those that share a scenario come one after the other."""
        for case in self.cases:
            for place in itertools.product(*self.vary.values()):
                varied = dict(zip(self.vary, place, strict=True))
                for axis in varied:
                    if axis in case:
                        raise UserError(f"sweep: {axis} is given in cases and in vary; give it in one of them")
                coordinates = ({"case": _case_name(case)} if len(self.cases) > 1 else {}) | varied
                for seed in self.seeds:
                    for entrant in self.entrants:
                        values = {**self.base, **case, **varied, "seed": seed, **dict(entrant.overrides)}
                        yield Cell(Scenario.of(values), entrant, tuple(coordinates.items()))

    def as_dict(self) -> dict[str, Any]:
        """Plain data that makes the same sweep again, where the policies are texts."""
        policies = [{"policy": policy_record(each.policy)["policy"], "name": each.label, **dict(each.overrides)}
                    for each in self.entrants]  # fmt: skip
        return {"name": self.name, "scenario": dict(self.base), "policies": policies,
                "vary": {axis: list(values) for axis, values in self.vary.items()},
                "cases": [dict(case) for case in self.cases], "seeds": list(self.seeds), "baseline": self.baseline,
                "figures": list(self.figures)}  # fmt: skip


def _fields(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: it must be a mapping of fields to values, not {values!r}")
    for name in values:
        if name not in _FIELDS:
            from difflib import get_close_matches

            near = get_close_matches(str(name), _FIELDS, n=1)
            raise UserError(f"{where}: a scenario has no field {name!r}{f'; did you mean {near[0]}?' if near else ''}")
    return dict(values)


def _values(found: Any, where: str) -> list[Any]:
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise UserError(f"{where}: it must be a list with at least one value, not {found!r}")
    return list(found)


def _seeds(found: Any, base: Mapping[str, Any], where: str) -> tuple[int, ...]:
    """`5`: five of them, from the scenario's seed on; or a list."""
    first = base.get("seed", 0)
    if found is None:
        return (first,)
    if isinstance(found, int) and not isinstance(found, bool) and found >= 1:
        return tuple(range(first, first + found))
    if isinstance(found, Sequence) and not isinstance(found, str) and found and len(set(found)) == len(found) and all(
        isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in found
    ):
        return tuple(found)
    raise UserError(f"{where}, seeds: write how many (5), or a list of different ones, not {found!r}")


def _entrants(found: list[Any], where: str) -> tuple[Entrant, ...]:
    made = [entrant for each in found for entrant in _entrant(each, where)]
    labels = [entrant.label for entrant in made]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"{where}, policies: {label!r} is there twice; give one of them another name")
    return tuple(made)


def _entrant(each: Any, where: str) -> Iterator[Entrant]:
    """Text; `{dally: {timers: [auto, value]}}`, one for every choice; `{policy: …, name: …, knowledge: none}`."""
    if not isinstance(each, Mapping):
        yield Entrant(as_policy(each).name, each)
    elif "policy" in each:
        own = _fields({k: v for k, v in each.items() if k not in ("policy", "name")}, f"{where}, policies")
        for taken in ("trace", "cluster", "seed", "load", "jobs"):
            if taken in own:
                raise UserError(f"{where}, policies: {taken} is the same for all policies of a comparison")
        told = "".join(f", {key} {value}" for key, value in own.items())
        name = as_policy(each["policy"]).name
        yield Entrant(str(each.get("name") or name + told), each["policy"], tuple(own.items()))
    elif len(each) == 1 and isinstance(choices := next(iter(each.values())), Mapping):
        name = next(iter(each))
        lists = [value if isinstance(value, list) else [value] for value in choices.values()]
        for place in itertools.product(*lists):
            options = ",".join(f"{key}={_word(value)}" for key, value in zip(choices, place, strict=True))
            text = f"{name}[{options}]" if options else str(name)
            yield Entrant(as_policy(text).name, text)
    else:
        raise UserError(f"{where}, policies: {dict(each)!r} is neither {{policy: …, name: …}} nor "
                        "{name: {option: [values]}}")  # fmt: skip


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _case_name(case: Mapping[str, Any]) -> str:
    return " ".join(f"{value}" if axis in ("trace", "cluster", "fabric") else f"{axis}={value}"
                    for axis, value in case.items()) or "–"  # fmt: skip


def _check_figures(figures: Sequence[str], where: str) -> None:
    from dally.report.metrics import Summary

    known = [each.name for each in fields(Summary) if each.type in ("float | None", "int", "float")]
    for figure in figures:
        if figure not in known:
            raise UserError(f"{where}, figures: there is no figure {figure!r}; there are {', '.join(known)}")
