"""Tiresias (Gu et al., NSDI'19): least attained service in queues, Gittins index, placement by model profile."""

from dally.policies.tiresias.policy import Tiresias

__all__ = ["Tiresias"]
