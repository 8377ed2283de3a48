"""Gandiva (Xiao et al., OSDI'18): time-slicing, packing, migration and growth by introspection."""

from dally.policies.gandiva.policy import Gandiva

__all__ = ["Gandiva"]
