"""Gavel's objectives as pure functions from a problem to an allocation (OSDI'20, sections 3 and 4)."""
