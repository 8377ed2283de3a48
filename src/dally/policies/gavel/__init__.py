"""Gavel (OSDI'20): GPU time on each GPU type allocated by an objective, dealt out in rounds."""

from dally.policies.gavel.policy import Gavel

__all__ = ["Gavel"]
