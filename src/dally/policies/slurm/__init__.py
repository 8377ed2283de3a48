"""Slurm's own scheduling: multifactor priority, backfill with reservations, topology/tree."""

from dally.policies.slurm.policy import Slurm

__all__ = ["Slurm"]
