"""Every reason a job can have to wait, in one place: a fixed token, a sentence, evidence."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Tier(Enum):
    """From what never changes by itself to what passes in seconds."""

    STRUCTURAL = 1
    POLICY = 2
    PLACEMENT = 3
    TRANSITION = 4


class Token(Enum):
    """Every kind of reason there is, with its tier (docs/reasons.md)."""

    EXCEEDS_CAPACITY = ("ExceedsCapacity", Tier.STRUCTURAL)
    NO_MATCHING_GPU_TYPE = ("NoMatchingGpuType", Tier.STRUCTURAL)
    HELD = ("Held", Tier.STRUCTURAL)
    WAITING_FOR_QUOTA = ("WaitingForQuota", Tier.POLICY)
    PRIORITY = ("Priority", Tier.POLICY)
    WAITING_FOR_ROUND = ("WaitingForRound", Tier.POLICY)
    WAITING_FOR_GPUS = ("WaitingForGpus", Tier.PLACEMENT)
    WAITING_FOR_LOCALITY = ("WaitingForLocality", Tier.PLACEMENT)
    CHECKPOINTING = ("Checkpointing", Tier.TRANSITION)
    STARTING = ("Starting", Tier.TRANSITION)
    CONTACT_LOST = ("ContactLost", Tier.TRANSITION)

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def tier(self) -> Tier:
        return self.value[1]


class Reason(NamedTuple):
    """Why a job waits. `until` is the time at which the reason ends by itself, where there is one; `evidence` the
    figures behind the sentence, in an order the policy that gives them documents."""

    token: Token
    sentence: str
    until: float | None = None
    evidence: tuple[float | str, ...] = ()
