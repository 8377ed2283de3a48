"""Dally (arXiv 2401.16492): wait for near GPUs, but not for ever."""

from dally.policies.dally.policy import Dally

__all__ = ["Dally"]
