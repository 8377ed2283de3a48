"""Making a folder of results again, and comparing old and new byte for byte."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.experiments.folder import result_folder, write_folder
from dally.experiments.naming import slug
from dally.experiments.provenance import TRACE, command_of, policy_record, read_provenance
from dally.experiments.results import JOURNAL, run_policies
from dally.simulator.digests import code_digest, digest_of
from dally.simulator.pool import Report
from dally.simulator.scenario import Scenario
from dally.version import __version__


@dataclass(frozen=True, slots=True)
class Rerun:
    """Every file that must be the same, and whether it is; None: it is not there on one side."""

    files: dict[str, bool | None]
    notes: tuple[str, ...]

    @property
    def same(self) -> bool:
        return all(self.files.values())


def run_again(folder: Path, out: Path | None = None, *, workers: int | None = None, report: Report | None = None,
              force: bool = False) -> Rerun:  # fmt: skip
    """`out`: keep what is made; otherwise it is thrown away once compared."""
    folder, out = folder.resolve(), None if out is None else out.resolve()
    about = read_provenance(folder)
    if "reproduce" in about or "twin" in about:
        raise UserError(f"{folder} is of `{command_of(about)}`: `dally rerun` makes it again, Python does not")
    if "sweep" in about:
        return _sweep_again(folder, about, out, workers, force)
    with tempfile.TemporaryDirectory() as scratch, _inside(about.get("folder")):
        target = Path(scratch) / "again" if out is None else out
        policies = _policies(about)
        scenario = scenario_of(about, folder)
        many = bool(about["many"])
        with result_folder(target, scenario, policies, many=many, force=force) as output:
            assert output is not None
            made = run_policies(scenario, policies, out=output.part, many=many, workers=workers, report=report,
                                resumable=True)  # fmt: skip
            if made.interrupted:
                raise KeyboardInterrupt
            write_folder(made.experiment, made.results, output.part, many=many, failures=made.failures,
                         policies=policies)  # fmt: skip
            output.swap_in()
        return Rerun(_compared(folder, target, [each.policy for each in made.results], about["many"]),
                     _state_notes(about))  # fmt: skip


def _sweep_again(folder: Path, about: dict[str, Any], out: Path | None, workers: int | None, force: bool) -> Rerun:
    """Every cell again; of each, the configuration and the figures must be the same, text for text."""
    from dally.experiments.sweeps.cells import CellStore
    from dally.experiments.sweeps.running import run_sweep
    from dally.experiments.sweeps.spec import SweepSpec

    with tempfile.TemporaryDirectory() as scratch, _inside(about.get("folder")):
        target = Path(scratch) / "again" if out is None else out
        spec = SweepSpec.of(about["sweep"], str(folder))
        if run_sweep(spec, target, workers=workers, quiet=True, force=force).interrupted:
            raise KeyboardInterrupt
        old, new = CellStore(folder), CellStore(target)
        files: dict[str, bool | None] = {}
        for cell in spec.cells():
            before, after = old.find(cell), new.find(cell)
            kept = [{name: each[name] for name in ("configuration", "figures")} for each in (before, after) if each]
            files[f"cells/{cell.key}.json"] = kept[0] == kept[1] if len(kept) == 2 else None
        return Rerun(files, _state_notes(about))


def made_again(folder: Path, about: dict[str, Any], make: Callable[[Path], None], out: Path | None = None) -> Rerun:
    """A folder of `dally reproduce` or `dally twin`; `make` runs that command again into another folder."""
    folder, out = folder.resolve(), None if out is None else out.resolve()
    with tempfile.TemporaryDirectory() as scratch, _inside(about.get("folder")):
        target = Path(scratch) / "again" if out is None else out
        for name, digest in about["files"].items():
            if name != "-":  # what came through a pipe is in the folder
                _check_unchanged(folder, name, digest, digest_of(name))
        make(target)
        return Rerun({name: _same(folder / name, target / name) for name in about["pages"]}, _state_notes(about))


def scenario_of(about: dict[str, Any], folder: Path) -> Scenario:
    """The scenario of a record, or one sentence on why it cannot be made again."""
    values = dict(about["scenario"])
    if str(values.get("cluster", "")).startswith("in memory:"):
        raise UserError(f"{folder} was made on a cluster that was in memory only: it cannot be made again from here")
    if str(values.get("trace", "")).startswith("in memory:"):
        from dally.traces import load_trace

        values["trace"] = load_trace(folder / TRACE)
    scenario = Scenario.of(values)
    found = scenario.files()
    for name, digest in about.get("files", {}).items():
        _check_unchanged(folder, values[name], digest, found.get(name))
    return scenario


def _check_unchanged(folder: Path, name: str, then: str, now: str | None) -> None:
    if now is None:
        raise UserError(f"{folder} was made from {name}, which is not there any more")
    if now != then:
        raise UserError(f"{name} has changed since {folder} was made from it (sha256 {then[:12]}… then, "
                        f"{now[:12]}… now)")  # fmt: skip


def _state_notes(about: dict[str, Any]) -> tuple[str, ...]:
    if about["dally"] != __version__:
        return (f"it was made by dally {about['dally']}; this is {__version__}",)
    if about.get("code") != code_digest():
        return ("it was made by another state of this version's code",)
    return ()


def _policies(about: dict[str, Any]) -> list[str]:
    names = []
    for record in about["policies"]:
        if "class" in record:
            raise UserError(f"policy {record['policy']!r} was a class in Python, {record['class']}: run it there again")
        if policy_record(record["policy"]) != record:
            raise UserError(f"the file of policy {record['policy']!r} has changed since")
        names.append(record["policy"])
    return names


def _compared(old: Path, new: Path, policies: list[str], many: bool) -> dict[str, bool | None]:
    names = ["summary.json", "report.html"]
    for policy in policies:
        home = f"{slug(policy)}/" if many else ""
        names += [f"{home}jobs.csv", f"{home}{JOURNAL}"]
    return {name: _same(old / name, new / name) for name in names}


def _same(old: Path, new: Path) -> bool | None:
    if not old.is_file() or not new.is_file():
        return None
    return old.read_bytes() == new.read_bytes()


@contextmanager
def _inside(folder: str | None) -> Iterator[None]:
    """In the folder the command was given in, so that names of files mean what they meant."""
    if folder is None or not Path(folder).is_dir():
        yield
        return
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
