"""What to rent: every configuration of the instance catalog with time, cost and stalls, and the cheapest that will do.

cost = hours × price × machines. Time = samples × epochs / (batch × GPUs) steps, each as long as the slowest of what
must keep up: GPUs with their communication, and CPUs that prepare batches where a profile saw them hold training up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dally.core.errors import UserError
from dally.core.records import dataclass
from dally.profiler.predict import NETWORK_ERROR, Subject, predict

if TYPE_CHECKING:
    from dally.catalog import Instance

COUNTS = (1, 2, 4, 8, 16)
RESTART = 120.0  # seconds to get another machine and start, estimated


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be trained, how soon and for how much."""

    subject: Subject
    samples: float
    epochs: float = 1.0
    within: float = math.inf  # seconds
    budget: float = math.inf  # US dollars
    batch: int | None = None
    most: int = 8  # machines
    providers: Sequence[str] = ()
    instances: Sequence[str] = ()
    spot: bool = False
    interruptions: float = 0.05  # per machine and hour


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to rent. Seconds are per step."""

    instance: str
    provider: str
    count: int
    gpu: str
    gpus: int
    price: float  # US dollars per hour, all machines
    price_date: str
    price_estimated: bool
    step: float
    compute: float
    interconnect: float
    network: float
    prep: float
    hours: float
    hours_low: float
    hours_high: float
    cost: float
    interruptions: float  # expected in the whole training
    fits: bool
    meets: bool = False
    front: bool = False  # nothing is both faster and cheaper
    recommended: bool = False
    why: str = ""  # why it does not meet what was asked

    @property
    def offer(self) -> str:
        return f"{self.count} × {self.instance} ({self.gpus} × {self.gpu}): {self.hours:.3g} h for ${self.cost:,.2f}"


def configurations(question: Question, prices: Mapping[str, Instance] | None = None) -> list[Configuration]:
    """Cheapest first."""
    from dally.catalog import find_machine, instances

    known = dict(instances().items()) if prices is None else dict(prices)
    wanted = set(question.instances)
    for name in wanted - set(known):
        raise UserError(f"there is no instance {name!r} in the catalog; there are {', '.join(sorted(known))}")
    found = []
    for name, instance in known.items():
        if (wanted and name not in wanted) or (question.providers and instance.provider not in question.providers):
            continue
        price = instance.spot if question.spot else instance.price
        if price is None:
            continue
        machine = find_machine(instance.machine)
        for count in COUNTS:
            if count <= question.most:
                found.append(_configuration(question, instance, price, machine, count))
    if not found:
        what = " with a spot price" if question.spot else ""
        raise UserError(f"the catalog has no instance{what} of {', '.join(question.providers) or 'those asked for'}")
    return _judged(question, sorted(found, key=lambda c: (c.cost, c.hours)))


def _configuration(question: Question, instance: Instance, price: float, machine: object, count: int) -> Configuration:
    from dally.catalog import Machine, find_gpu

    assert isinstance(machine, Machine)
    subject, gpu = question.subject, find_gpu(machine.gpu)
    batch = question.batch or subject.model.batch_size
    step = predict(subject.model, machine, count, question.batch)
    gpus = machine.gpus * count
    samples = batch * step.copies
    prep = 0.0
    if subject.cpu_seconds is not None and instance.vcpus:
        prep = max(0.0, samples * subject.cpu_seconds / (instance.vcpus * count) - step.seconds)
    seconds = step.seconds + prep
    steps = max(1, math.ceil(question.samples * question.epochs / samples))
    # What comes from a cold disk comes from it once; every machine reads its own part.
    fetch = subject.fetch_seconds * question.samples / count
    work = steps * seconds + fetch
    error = steps * (step.compute * subject.error(gpu) + (step.interconnect + step.network) * NETWORK_ERROR)
    lost, broken = _interrupted(question, work, count)
    hours = (work + lost) / 3600
    scale = 1 + lost / work if work > 0 else 1.0
    return Configuration(
        instance=instance.name,
        provider=instance.provider,
        count=count,
        gpu=gpu.name,
        gpus=gpus,
        price=price * count,
        price_date=instance.spot_date if question.spot else instance.date,
        price_estimated=instance.estimated,
        step=seconds,
        compute=step.compute,
        interconnect=step.interconnect,
        network=step.network,
        prep=prep,
        hours=hours,
        hours_low=max(0.0, (work - error) * scale) / 3600,
        hours_high=(work + error) * scale / 3600,
        cost=hours * price * count,
        interruptions=broken,
        fits=step.fits,
    )


def _interrupted(question: Question, work: float, count: int) -> tuple[float, float]:
    """Seconds lost to checkpoints and interruptions, and how many interruptions are expected.

    Checkpoints every √(2 · save · time between interruptions) (Young, CACM 1974); an interruption of any machine stops
    all, loses half an interval, and costs a restart and a load.
    """
    if not question.spot or question.interruptions <= 0:
        return 0.0, 0.0
    save, load = _checkpoint(question.subject)
    between = 3600 / (question.interruptions * count)
    interval = max(math.sqrt(2 * save * between), save)
    overhead = save / interval + (interval / 2 + RESTART + load) / between
    lost = work * overhead / max(0.05, 1 - overhead) if overhead < 0.95 else math.inf
    return lost, (work + lost) / between


def _checkpoint(subject: Subject) -> tuple[float, float]:
    measured = subject.profile.checkpoint if subject.profile is not None else None
    if measured is not None:
        return max(measured.save, 1e-3), measured.load
    seconds = subject.model.checkpoint_bytes / 1e9  # a gigabyte per second of storage, estimated
    return seconds, seconds


def _judged(question: Question, found: list[Configuration]) -> list[Configuration]:
    judged = []
    best = math.inf  # hours of what is cheaper
    for each in found:
        why = []
        if not each.fits:
            why.append("a batch does not fit the GPU's memory")
        if each.hours * 3600 > question.within:
            why.append(f"takes {each.hours:.3g} h")
        if each.cost > question.budget:
            why.append(f"costs ${each.cost:,.2f}")
        front = each.fits and each.hours < best
        if front:
            best = each.hours
        judged.append(replace(each, meets=not why, front=front, why="; ".join(why)))
    chosen = next((i for i, each in enumerate(judged) if each.meets), None)
    if chosen is not None:
        judged[chosen] = replace(judged[chosen], recommended=True)
    return judged


def why_none(question: Question, found: Sequence[Configuration]) -> str | None:
    """Where nothing meets what was asked: why, and what would. None where something does."""
    if any(each.meets for each in found):
        return None
    fitting = [each for each in found if each.fits]
    if not fitting:
        return "no GPU of the catalog has the memory for this batch; a smaller one (--batch) or sharding would do"
    fastest = min(fitting, key=lambda c: c.hours)
    parts = [
        f"the fastest, {fastest.count} × {fastest.instance}, takes {fastest.hours:.3g} h and costs ${fastest.cost:,.2f}"
    ]
    in_time = [c for c in fitting if c.hours * 3600 <= question.within]
    if in_time and question.budget < math.inf:
        cheapest = min(in_time, key=lambda c: c.cost)
        parts.append(
            f"a budget of ${cheapest.cost:,.2f} would do "
            f"({cheapest.count} × {cheapest.instance}, {cheapest.hours:.3g} h)"
        )
    paid = [c for c in fitting if c.cost <= question.budget]
    if paid:
        quickest = min(paid, key=lambda c: c.hours)
        parts.append(
            f"{quickest.hours:.3g} h would do for the money "
            f"({quickest.count} × {quickest.instance}, ${quickest.cost:,.2f})"
        )
    return "nothing meets what was asked: " + "; ".join(parts)


def with_prices(path: Path) -> dict[str, Instance]:
    """The catalog's instances with prices from a file: YAML `name: price` or `name: {price, spot, date}`, or CSV."""
    import csv

    import yaml

    from dally.catalog import instances

    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".csv":
            rows: Iterable[tuple[str, object]] = [
                (row.pop("instance"), row) for row in csv.DictReader(text.splitlines())
            ]
        else:
            data = yaml.safe_load(text)
            if not isinstance(data, dict):
                raise UserError(f"{path}: must map instances to prices, such as `p3.2xlarge: 3.06`")
            rows = data.items()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except (yaml.YAMLError, KeyError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not a price list: {str(error).splitlines()[0]}") from None
    found = dict(instances().items())
    for name, given in rows:
        known = instances().resolve(str(name))
        if known is None:
            raise UserError(f"{path}: there is no instance {name!r} in the catalog")
        fields = given if isinstance(given, dict) else {"price": given}
        found[known] = replace(
            found[known],
            price=_price(path, name, fields, "price", found[known].price) or 0.0,
            spot=_price(path, name, fields, "spot", found[known].spot),
            date=str(fields.get("date") or path.name),
            spot_date=str(fields.get("date") or path.name),
            source=f"{path.name}",
            estimated=False,
        )
    return found


def _price(path: Path, name: object, fields: Mapping[object, object], key: str, default: float | None) -> float | None:
    value = fields.get(key)
    if value in (None, ""):
        return default
    try:
        price = float(str(value))
    except ValueError:
        price = -1.0
    if not 0 <= price < math.inf:
        raise UserError(f"{path}: {name}: {key} must be dollars per hour, not {value!r}")
    return price
