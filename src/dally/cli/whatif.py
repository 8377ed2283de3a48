"""`dally simulate --snapshot`: what would happen to today's queue under other policies, as a table or JSON."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from dally.core.errors import UserError

if TYPE_CHECKING:
    from dally.live.forecast import Known, Saved
    from dally.live.whatif import Prospect, WhatIf

_TAKEN = ("network", "seed")  # options of a simulation that mean something here


def go_on(source: str, policies: str, samples: int, *, as_json: bool, quiet: bool, **options: Any) -> None:
    """Read the snapshot, go on from it under each policy, print."""
    from dally.live.whatif import compare, plain, read_snapshot
    from dally.policies.options import split_policies

    idle = [name for name, value in options.items() if value is not None and name not in _TAKEN]
    if idle and idle[0] in ("trace", "scenario", "cluster"):
        raise UserError(f"--{idle[0]} and --snapshot are both given; give one of them")
    if idle:
        raise UserError(f"--{idle[0].replace('_', '-')} goes with a trace, not with --snapshot")
    if not policies:
        raise UserError("no policy is given: write --policies with those that might take over")
    names = split_policies(policies)
    state = read_snapshot(source)
    found = compare(state, names, _known(state, options.get("network")), samples=samples, seed=options.get("seed") or 0,
                    report=None if quiet or not sys.stderr.isatty() else _progress)  # fmt: skip
    if as_json:
        json.dump({"source": source, "time": state["time"], **plain(found, _against)}, sys.stdout, indent=2)
        print()
        return
    _print(found)
    if not quiet:
        from dally.cli.printing import print_notes

        print_notes(_notes(found))


def _known(state: Saved, network: str | None) -> Known:
    """Speeds are known where a network model is named, for jobs that were profiled."""
    from dally.core.topology_text import topology_from_plain
    from dally.live.forecast import Known

    if network is None:
        return Known()
    from dally.network.registry import make_network
    from dally.simulator.profiles import Profiles

    if not any("reference" in plain["job"] for plain in state["jobs"]):
        raise UserError("--network says how fast profiled jobs are, and no job of this snapshot has a profile")
    topology = topology_from_plain(state["topology"])
    model = make_network(network, topology)
    return Known(Profiles(model, topology), network=model)


def _against(one: Prospect, in_charge: Prospect) -> dict[str, Any] | None:
    """Mean remaining time over that of the policy in charge, future by future."""
    from dally.experiments.sweeps.statistics import paired

    if one is in_charge:
        return None
    figures = [{number: outcome.remaining for number, outcome in enumerate(each.outcomes)} for each in (one, in_charge)]
    ratio = paired(*figures)
    if ratio is None:
        return None
    verdict = "too few futures" if ratio.low is None else ratio.verdict
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "verdict": verdict}


def _print(found: WhatIf) -> None:
    from dally.cli.printing import print_table
    from dally.core.units import show_time

    rows = []
    for prospect in found.prospects:
        low, high = prospect.range(lambda outcome: outcome.remaining)
        rows.append((
            prospect.policy + (" (in charge)" if prospect.in_charge else ""), prospect.told,
            f"{show_time(prospect.mean(lambda outcome: outcome.remaining))} ({show_time(low)} … {show_time(high)})",
            _verdict(_against(prospect, found.prospects[0])),
            show_time(prospect.mean(lambda outcome: outcome.last_end)),
            f"{prospect.mean(lambda outcome: outcome.preemptions):.3g}",
            ", ".join(prospect.first) or "–",
        ))  # fmt: skip
    held = f", {found.held:,} held" if found.held else ""
    print_table(("policy", "told", "avg remaining JCT", "against the one in charge", "last end", "preemptions",
                 "starts first"), rows, f"{found.running:,} running, {found.waiting:,} waiting{held}")  # fmt: skip


def _verdict(against: dict[str, Any] | None) -> str:
    if against is None:
        return "–"
    if against["low"] is None:
        return f"× {against['ratio']:.3g} (too few futures to tell)"
    if against["verdict"] == "same":
        return "the same"
    within = ", within noise" if against["verdict"] == "noise" else ""
    return f"× {against['ratio']:.3g} ({against['low']:.3g} … {against['high']:.3g}{within})"


def _notes(found: WhatIf) -> list[str]:
    count = len(found.prospects[0].outcomes)
    notes = [f"{count} possible futures, the same for every policy; {found.basis}",
             "nobody submits anything more, nothing breaks, preempted jobs leave at once and lose nothing"]  # fmt: skip
    left = {each.policy: max(outcome.unended for outcome in each.outcomes) for each in found.prospects}
    notes += [f"{name}: {count:,} jobs do not end, as far as was looked; they are not in its figures"
              for name, count in left.items() if count]  # fmt: skip
    return notes


def _progress(policy: str, future: int) -> None:
    print(f"{policy}: future {future}", file=sys.stderr)
