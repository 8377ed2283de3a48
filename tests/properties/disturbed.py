"""Runs that are disturbed in ways that must leave no trace; the package's own, under the name the tests know."""

from dally.experiments.checks.disturbed import disturbed, reborn

__all__ = ["disturbed", "reborn"]
