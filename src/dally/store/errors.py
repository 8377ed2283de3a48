"""What can go wrong with a store that others may write to as well, or that may be away for a while."""

from __future__ import annotations


class StoreUnavailableError(Exception):
    """The store does not answer, or cannot take more (a full disk). What was asked for may or may not have been done;
    asking again later tells."""


class FencedError(Exception):
    """Somebody else leads now. Whoever is told so must touch nothing any more."""
