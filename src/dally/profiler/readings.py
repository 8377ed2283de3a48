"""From the records of one run's processes to its figures: steps, waits, layer table, notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, median, pstdev
from typing import Any

from dally.profiler.document import Checkpoint, Device, Layer, ModelTable, Run

Events = Sequence[Mapping[str, Any]]
Records = Mapping[int, Events]


def ranks_of(records: Records) -> dict[int, Events]:
    """The processes that trained, by rank; whoever else imported torch is left out."""
    found: dict[int, Events] = {}
    for events in records.values():
        begin = next((e for e in events if e["event"] == "begin"), None)
        if begin is not None:
            found[int(begin["rank"])] = events
    return dict(sorted(found.items()))


def trainers(records: Records) -> int:
    return sum(any(e["event"] == "begin" for e in events) for events in records.values())


def windows(ranks: Mapping[int, Events], event: str = "window") -> list[float]:
    """Seconds per step of each window, the mean over ranks; as many windows as every rank has finished."""
    each = [[float(e["seconds"]) for e in events if e["event"] == event] for events in ranks.values()]
    count = min((len(one) for one in each), default=0)
    return [mean(one[k] for one in each) for k in range(count)]


def _all(ranks: Mapping[int, Events], key: str, event: str = "window") -> list[float]:
    return [float(e[key]) for events in ranks.values() for e in events if e["event"] == event and e[key] is not None]


def run_of(records: Iterable[Records], data: str, machines: int = 1, link: str = "") -> Run | None:
    """One measurement from one or several launches; None where not one window was finished."""
    launches = [ranks for ranks in map(ranks_of, records) if windows(ranks)]
    if not launches:
        return None
    steps = [w for ranks in launches for w in windows(ranks)]
    silent = [w for ranks in launches for w in windows(ranks, "silent")]
    waits = [w for ranks in launches for w in _all(ranks, "wait")]
    busy = [b for ranks in launches for b in _all(ranks, "cpu")]
    read = [r for ranks in launches for r in _all(ranks, "read")]
    first = [next(iter(ranks.values())) for ranks in launches]  # one rank of each launch
    return Run(
        data=data,  # type: ignore[arg-type]
        processes=len(launches[0]),
        machines=machines,
        step=median(steps),
        spread=pstdev(steps),
        windows=steps,
        steps=sum(int(e["steps"]) for events in first for e in events if e["event"] == "window"),
        wait=mean(waits) if waits else 0.0,
        silent=median(silent) if silent else None,
        silent_spread=pstdev(silent) if silent else 0.0,
        busy=mean(busy) if busy else 0.0,
        read=mean(read) if read else None,
        link=link,
    )


def first_event(records: Iterable[Records], event: str) -> Mapping[str, Any] | None:
    return next((e for one in records for events in one.values() for e in events if e["event"] == event), None)


def notes_of(records: Iterable[Records]) -> list[str]:
    return list(
        dict.fromkeys(
            str(e["text"]) for one in records for events in one.values() for e in events if e["event"] == "note"
        )
    )


def batch_of(records: Iterable[Records]) -> int | None:
    found = first_event(records, "batch")
    return int(found["samples"]) or None if found is not None else None


def device_of(records: Iterable[Records]) -> Device | None:
    found = list(records)
    begin, anatomy = first_event(found, "begin"), first_event(found, "anatomy")
    if begin is None:
        return None
    kind = "cuda" if begin["device"] == "cuda" else "cpu"
    peak, source = None, ""
    if anatomy is not None and anatomy.get("peak"):
        peak, source = float(anatomy["peak"]), "best rate of a 32-bit matrix product of 1024 × 1024 in one process here"
    name = str(begin["gpu"] or "CPU")
    if kind == "cuda":
        from dally.catalog import gpus

        known = gpu_in_catalog(name)
        if known is not None:
            peak, source = gpus()[known].tf32 or gpus()[known].fp32, f"data sheet of {known} (32-bit)"
    return Device(
        kind=kind,  # type: ignore[arg-type]
        name=name,
        threads=int(begin["threads"]),
        cores=os.cpu_count() or 1,
        backend=begin["backend"],
        peak=peak,
        peak_source=source,
    )


def gpu_in_catalog(name: str) -> str | None:
    """`NVIDIA A100-SXM4-40GB` → the catalog's name of it."""
    from dally.catalog import gpus

    for text in (name, name.removeprefix("NVIDIA "), name.removeprefix("Tesla ")):
        found = gpus().resolve(text)
        if found is not None:
            return found
    return None


def checkpoint_of(records: Iterable[Records]) -> Checkpoint | None:
    found = first_event(records, "checkpoint")
    if found is None:
        return None
    return Checkpoint(bytes=found["bytes"], save=found["save"], load=found["load"])


def memory_of(records: Iterable[Records]) -> int | None:
    found = [int(e["memory"]) for one in records for ev in one.values() for e in ev if e["event"] == "resources"]
    return max(found, default=None)


_KINDS = (
    ("conv", "conv"),
    ("linear", "linear"),
    ("embedding", "embedding"),
    ("norm", "normalisation"),
    ("attention", "attention"),
    ("lstm", "recurrent"),
    ("gru", "recurrent"),
    ("rnn", "recurrent"),
)


def table_of(
    records: Iterable[Records], runs: Mapping[str, Run], batch: int | None, device: Device, made: str
) -> tuple[ModelTable | None, float]:
    """The layer table, its times scaled so that they add up to a step without exchange; and seconds outside them."""
    found = list(records)
    anatomy, begin = first_event(found, "anatomy"), first_event(found, "begin")
    if anatomy is None or begin is None or not batch:
        return None, 0.0
    rows = anatomy["layers"]
    outside = float(anatomy["update"]) + float(anatomy["other"])
    total = sum(row["forward"] + row["backward"] for row in rows) + outside
    # Timing every layer costs time itself. What the parts must add up to is the step of a device whose neighbours are
    # at work too but that exchanges nothing with them; where that was not measured, the step of one device alone.
    one, all_ = runs.get("one"), runs.get("all")
    whole = all_.silent if all_ is not None and all_.silent is not None else one.step if one is not None else None
    scale = whole / total if whole is not None and total > 0 else 1.0
    on = "CPU" if device.kind == "cpu" else gpu_in_catalog(device.name)
    memory = memory_of(found)
    layers = [_layer(row, batch, scale) for row in rows]
    busy = min(1.0, one.busy / max(1, device.threads)) if one is not None and device.kind == "cpu" else None
    table = ModelTable(
        title=f"{anatomy['module']}, profiled",
        family=_family(rows),
        batch_size=batch,
        measured_on=on,
        optimizer="adam" if "adam" in str(begin["optimizer"]).lower() else "sgd",
        update=outside * scale,
        memory=float(memory) if memory and device.kind == "cuda" else None,
        utilization=None if busy is None or busy <= 0 else {"value": round(busy, 3), "source": "measured alone"},
        buckets=list(anatomy["buckets"]),
        source=f"measured by dally profile run, {made}",
        layers=layers,
    )
    return table, float(anatomy["other"]) * scale


def _layer(row: Mapping[str, Any], batch: int, scale: float) -> Layer:
    backward = round(row["backward_flops"] / batch)
    return Layer(
        name=row["name"],
        kind=_kind(row["kind"]),
        parameters=sum(row["tensors"]),
        tensors=row["tensors"],
        gradient_bytes=row["gradient_bytes"],
        forward_flops=round(row["forward_flops"] / batch),
        # The counter does not tell the halves of the backward pass apart; the network model adds them up.
        input_gradient_flops=backward // 2,
        weight_gradient_flops=backward - backward // 2,
        activation_elements=row["activations"] // batch,
        traffic_elements=row["traffic"] // batch,
        measured={"forward": row["forward"] * scale, "backward": row["backward"] * scale},
    )


def _kind(name: str) -> str:
    lower = name.lower()
    return next((kind for word, kind in _KINDS if word in lower), lower)


def _family(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the model is made of: decides which published efficiencies stand in on other GPUs."""
    kinds = {_kind(row["kind"]) for row in rows}
    if "conv" in kinds and "attention" not in kinds:
        return "cnn"
    if "recurrent" in kinds:
        return "recurrent"
    return "transformer" if kinds & {"attention", "embedding"} else "default"
