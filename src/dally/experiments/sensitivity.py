"""How a comparison depends on what was assumed: the models of jobs that name none, and the fabric, one at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.experiments.results import run_policies
from dally.report.groups import first_and_second, groups_of
from dally.report.metrics import Summary
from dally.simulator.scenario import Scenario

MODELS = ("resnet50", "vgg16", "bert-large", "gpt2-xl")  # from little to much to say per step
FABRICS = ("ethernet-10g", "ethernet-25g", "ethernet-100g", "ethernet-100g-4to1", "infiniband-hdr", "infiniband-ndr")
_MIX = """mix:
  all:
    gpus: [1, null]
    duration: [0s, null]
    models: {{{model}: 1}}
    source: every job trains this model, to see what hangs on it
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing changed, and what came of it."""

    what: str  # models, fabric; "as given" for the scenario itself
    value: str
    summaries: tuple[Summary, ...]  # in the order of the policies; those that failed are left out
    failures: tuple[str, ...]

    def first(self) -> dict[str, str]:
        """What policies were told → who is first among them; several names where they read the same."""
        found = {}
        for group in groups_of(self.summaries):
            best, _ = first_and_second([self.summaries[row] for row in group.members])
            if best and len(group.members) > 1:
                found[group.told] = " = ".join(each.policy for each in best)
        return found


def settings(scenario: Scenario, policies: Sequence[str], *, models: Sequence[str] = MODELS,
             fabrics: Sequence[str] = FABRICS, workers: int | None = None,
             report: Callable[[Setting], None] | None = None) -> list[Setting]:  # fmt: skip
    """The scenario as it is, then with every job that names none training one model, then on each fabric."""
    done = []
    with tempfile.TemporaryDirectory() as scratch:
        for what, value, changed in _changes(scenario, models, fabrics, Path(scratch)):
            made = run_policies(changed, policies, out=None, many=True, workers=workers)
            found = Setting(what, value, tuple(each.measured.summary for each in made.results),
                            tuple(str(each.error) for each in made.failures))  # fmt: skip
            done.append(found)
            if report is not None:
                report(found)
    return done


def _changes(scenario: Scenario, models: Sequence[str], fabrics: Sequence[str],
             folder: Path) -> Iterator[tuple[str, str, Scenario]]:  # fmt: skip
    from dally.catalog.store import find_fabric, find_model

    for model in models:
        find_model(model)
    for fabric in fabrics:
        find_fabric(fabric)
    if models and scenario.model_mix is not None:
        raise UserError("a model mix is given: leave it out, or vary the fabric alone (--models none)")
    yield "as given", "–", scenario
    for model in models:
        path = folder / f"{model}.yaml"
        path.write_text(_MIX.format(model=model), encoding="utf-8")
        yield "models", f"all {model}", scenario.having(model_mix=str(path))
    for fabric in fabrics:
        if fabric != scenario.fabric:
            yield "fabric", fabric, scenario.having(fabric=fabric)


def conclusion(found: Sequence[Setting]) -> list[str]:
    """Whether who is first hangs on what was assumed; one sentence per group that was told the same."""
    said = []
    for told in dict.fromkeys(told for each in found for told in each.first()):
        firsts = [(each, each.first()[told]) for each in found if told in each.first()]
        names = dict.fromkeys(name for _, name in firsts)
        if len(names) == 1:
            said.append(f"Told {told}: {firsts[0][1]} is first in all {len(firsts)} settings (one run each).")
            continue
        counted = ", ".join(f"{name} in {sum(first == name for _, first in firsts)}" for name in names)
        said.append(f"Told {told}: who is first hangs on what is assumed: {counted} of {len(firsts)} settings (one run "
                    "each: differences of a few percent are noise).")  # fmt: skip
    return said
