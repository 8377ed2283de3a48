"""What a job that declines GPUs is told: what it waits for, what the offer would cost it and the others, how good
forecasts were."""

from __future__ import annotations

import math
from typing import Final

from dally.core.active import ActiveJob
from dally.core.plan import Wait
from dally.core.reasons import Reason, Token
from dally.core.units import show_time
from dally.policies.dally.forecast import ValueMemory
from dally.policies.dally.tiers import Tiers
from dally.policies.dally.timers import NO_LIMIT
from dally.policies.dally.waiting import Declined

_LITTLE: Final = 0.1  # of the wait: the price of GPU time moves a little with every event, not worth a line each


def tell(tiers: Tiers, memory: ValueMemory, job: ActiveJob, said: Declined, before: Reason | None,
         now: float) -> Wait | None:  # fmt: skip
    """Its own reason; None where it was told as much. The evidence: the tier it waits for, the one it was offered, and
    when the first is expected or for how long it waits as somebody says."""
    tier, offered = tiers.names[said.tier], tiers.names[said.offered]
    until = said.until if said.until < math.inf else None
    if said.expected is not None and before is not None and before.evidence[:2] == (tier, offered) and _about(
            before.until, until, job.last_change):  # fmt: skip
        return None
    wants = f"for one {tier}" if said.tier < said.offered else "for fewer machines of it"
    begin = f"offered {job.gpus} GPUs of one {offered}, it waits {wants}, "
    if said.expected is None:
        wait = said.until - job.last_change
        owner = job.demand.where is not None and job.demand.wait is not None
        evidence: tuple[str | float, ...] = (tier, offered, NO_LIMIT if until is None else wait)
        long = NO_LIMIT if until is None else f"for {show_time(wait)}"
        sentence = f"{begin}{long}, as {'its owner' if owner else 'the option waits'} says"
        return Wait(job.id, Reason(Token.WAITING_FOR_LOCALITY, sentence, until, evidence))
    evidence = (tier, offered, said.expected if said.expected < math.inf else NO_LIMIT)
    foreseen = f"expected in {show_time(said.expected - now)}" if said.expected < math.inf else "nobody can say when"
    sentence = f"{begin}{foreseen}{_record(memory, job, said.tier)}"
    if said.slower > 1.0:
        sentence += f"; here it would run {said.slower:.3g} times as long, {show_time(said.longer)} more"
        if said.others > 0:
            sentence += f", and put off the others by {show_time(said.others)} in sum"
    if until is not None:
        sentence += (f"; that is worth a wait of {show_time(until - job.last_change)}, "
                     f"of which {show_time(until - now)} are left")  # fmt: skip
    return Wait(job.id, Reason(Token.WAITING_FOR_LOCALITY, sentence, until, evidence))


def _about(before: float | None, until: float | None, since: float) -> bool:
    if before is None or until is None:
        return before is None and until is None
    return abs(before - until) < _LITTLE * (until - since)


def _record(memory: ValueMemory, job: ActiveJob, tier: int) -> str:
    """How often such forecasts came true."""
    kept, made = memory.forecasts.get((job.demand, tier), (0, 0))
    return f" ({kept} of {made} such forecasts came true)" if made else ""
