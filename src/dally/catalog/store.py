"""The catalog itself: built-in data files with a user's folders layered over them, found by name or alias."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.catalog.entries import Entry
    from dally.catalog.gpu import Gpu
    from dally.catalog.machine import Fabric, Instance, Machine
    from dally.catalog.model import Model

T = TypeVar("T")

BUILT_IN = Path(__file__).parent / "data"
VARIABLE = "DALLY_CATALOG"  # folders of the user, separated like PATH
# `clusters` is read by the cluster loader; it may stand in the same files.
SECTIONS = ("models", "gpus", "machines", "fabrics", "instances", "efficiencies", "clusters")
_BATCH = re.compile(r"\s*\(batch size (\d+)\)\s*$", re.IGNORECASE)  # as Gavel writes job types

_chosen: tuple[Path, ...] = ()


def use_directories(directories: Iterable[str | Path]) -> None:
    """Layer these folders over the built-in data and over those of the environment variable."""
    global _chosen
    paths = tuple(Path(directory) for directory in directories)
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such catalog folder")
    _chosen = paths


class Section(Mapping[str, T], Generic[T]):
    """The things of one kind by name, each built from its entry when it is first asked for."""

    def __init__(self, what: str, entries: dict[str, Entry], build: Callable[[str, Entry], T]) -> None:
        self._what, self._entries, self._build = what, entries, build
        self._built: dict[str, T] = {}
        self._names: dict[str, str] = {}
        for name, entry in entries.items():
            for alias in entry.texts("aliases"):
                self._add(alias, name, entry)
        for name, entry in entries.items():
            self._add(name, name, entry)

    def _add(self, alias: str, name: str, entry: Entry) -> None:
        key = normalise(alias)
        other = self._names.get(key, name)
        # A user's entry may take an alias away from a built-in one; inside one file it is a mistake.
        if other != name and self._entries[other].path == entry.path:
            raise entry.fail(f"{alias!r} is also a name of {other!r}")
        self._names[key] = name

    def __getitem__(self, name: str) -> T:
        if name not in self._built:
            self._built[name] = self._build(name, self._entries[name])
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # without building it

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def written(self, name: str, key: str) -> str:
        """A text of an entry as it stands there, without building the entry."""
        return self._entries[name].text(key)

    def resolve(self, text: str) -> str | None:
        """The name that this name or alias stands for; None where there is none."""
        if text in self._entries:
            return text
        if _BATCH.search(text):  # Gavel's names may mean another network than the same word elsewhere
            gavel = self._names.get(normalise(f"gavel:{text}"))
            if gavel is not None:
                return gavel
        return self._names.get(normalise(text))

    def find(self, text: str) -> T:
        """By name or alias, however it is written; near matches are offered when there is none."""
        name = self.resolve(text)
        if name is None:
            from difflib import get_close_matches

            near = get_close_matches(normalise(text), self._names, n=8, cutoff=0.5)
            names = list(dict.fromkeys(self._names[key] for key in near))[:4]
            hint = f"did you mean {' or '.join(names)}?" if names else f"known are {', '.join(self)}"
            raise UserError(f"there is no {self._what} {text!r} in the catalog; {hint}")
        return self[name]


def normalise(text: str) -> str:
    """`ResNet-50 (batch size 64)`, `resnet_50` and `ResNet50` are the same name."""
    return re.sub(r"[^a-z0-9]", "", _BATCH.sub("", text).lower())


def batch_in_name(text: str) -> int | None:
    """The batch size in a job type as Gavel writes it: `LM (batch size 80)` → 80."""
    match = _BATCH.search(text)
    return int(match[1]) if match else None


def models() -> Section[Model]:
    return _models(_folders())


def gpus() -> Section[Gpu]:
    return _gpus(_folders())


def machines() -> Section[Machine]:
    return _machines(_folders())


def fabrics() -> Section[Fabric]:
    return _fabrics(_folders())


def instances() -> Section[Instance]:
    return _instances(_folders())


def find_model(name: str) -> Model:
    """By name or alias; a path of a measured profile (`dally profile run`) is a model too."""
    if name.endswith((".yaml", ".yml")):
        return _profiled(Path(name).resolve(), _folders())
    return models().find(name)


def knows_model(name: str) -> bool:
    """Whether `find_model` finds it. A path of a profile that cannot be read is an error, not an unknown name."""
    if name.endswith((".yaml", ".yml")):
        find_model(name)
        return True
    return models().resolve(name) is not None


def find_gpu(name: str) -> Gpu:
    return gpus().find(name)


def find_machine(name: str) -> Machine:
    return machines().find(name)


def find_fabric(name: str) -> Fabric:
    return fabrics().find(name)


def efficiencies() -> Mapping[tuple[str, str, str], float]:
    """(family, GPU generation, arithmetic) → share of the peak."""
    return _efficiencies(_folders())


def efficiency(family: str, generation: str, mode: str) -> float:
    """Share of the peak that a family of models reaches; unknown families and generations get `default`."""
    table = efficiencies()
    for known in (family, "default"):
        for row in (generation, "default"):
            if (known, row, mode) in table:
                return table[known, row, mode]
    raise UserError(f"the catalog has no efficiency for {family!r} on {generation!r} with {mode!r}")


def _folders() -> tuple[Path, ...]:
    listed = os.environ.get(VARIABLE, "")
    named = tuple(Path(part) for part in listed.split(os.pathsep) if part)
    for path in named:
        if not path.is_dir():
            raise UserError(f"{path}: there is no such catalog folder ({VARIABLE})")
    return named + _chosen


@lru_cache(maxsize=64)
def _user_files(folder: Path) -> tuple[dict[str, dict[str, Entry]], ...]:
    from dally.catalog.entries import is_profile, read_profiled, read_sections

    files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    return tuple(
        {"models": dict([read_profiled(path)])} if is_profile(path) else read_sections(path, SECTIONS) for path in files
    )


def _entries(section: str, folders: tuple[Path, ...]) -> dict[str, Entry]:
    """Entries of a section; a later folder replaces an entry of the same name as a whole."""
    from dally.catalog.entries import read_sections

    merged = dict(read_sections(BUILT_IN / f"{section}.yaml", SECTIONS)[section])
    for folder in folders:
        for sections in _user_files(folder):
            merged.update(sections.get(section, {}))
    return merged


@lru_cache(maxsize=8)
def _models(folders: tuple[Path, ...]) -> Section[Model]:
    def build(name: str, entry: Entry) -> Model:
        from dally.catalog.builders import build_model

        return build_model(name, entry, lambda text: _gpus(folders).resolve(text))

    return Section("model", _entries("models", folders), build)


@lru_cache(maxsize=64)
def _profiled(path: Path, folders: tuple[Path, ...]) -> Model:
    from dally.catalog.builders import build_model
    from dally.catalog.entries import is_profile, read_profiled

    if not is_profile(path):
        raise UserError(f"{path}: is not a profile; a profile begins with `dally-profile: 1`")
    name, entry = read_profiled(path)
    return build_model(name, entry, lambda text: _gpus(folders).resolve(text))


@lru_cache(maxsize=8)
def _gpus(folders: tuple[Path, ...]) -> Section[Gpu]:
    def build(name: str, entry: Entry) -> Gpu:
        from dally.catalog.builders import build_gpu

        return build_gpu(name, entry)

    return Section("GPU", _entries("gpus", folders), build)


@lru_cache(maxsize=8)
def _machines(folders: tuple[Path, ...]) -> Section[Machine]:
    def build(name: str, entry: Entry) -> Machine:
        from dally.catalog.builders import build_machine

        return build_machine(name, entry, _gpus(folders).resolve)

    return Section("machine", _entries("machines", folders), build)


@lru_cache(maxsize=8)
def _fabrics(folders: tuple[Path, ...]) -> Section[Fabric]:
    def build(name: str, entry: Entry) -> Fabric:
        from dally.catalog.builders import build_fabric

        return build_fabric(name, entry)

    return Section("fabric", _entries("fabrics", folders), build)


@lru_cache(maxsize=8)
def _instances(folders: tuple[Path, ...]) -> Section[Instance]:
    def build(name: str, entry: Entry) -> Instance:
        from dally.catalog.builders import build_instance

        return build_instance(name, entry, _machines(folders).resolve)

    return Section("instance", _entries("instances", folders), build)


@lru_cache(maxsize=8)
def _efficiencies(folders: tuple[Path, ...]) -> dict[tuple[str, str, str], float]:
    """(family, generation, arithmetic) → share of the peak."""
    table = {}
    for family, entry in _entries("efficiencies", folders).items():
        for row in entry.entries("rows"):
            key = (family, row.text("generation"), row.choice("mode", ["fp32", "tf32", "fp16"]))
            table[key] = row.number("value", low=1e-6, high=1.0)
            row.text("source")
            row.finish(None)
        entry.finish(None)
    return table
