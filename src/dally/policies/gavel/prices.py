"""Prices of GPUs by the hour, for objectives that count money: from the catalog's instances, or as the user says."""

from __future__ import annotations

from dally.catalog.prices import dollars_per_hour
from dally.core.errors import UserError


def parse_pairs(text: str, option: str) -> dict[str, float]:
    """`V100:2.5/K80:0.4` → a number per name."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split("/"))):
        name, _, value = part.partition(":")
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not name.strip() or not 0 < number < float("inf"):
            raise UserError(f"policy 'gavel': {option}={text!r} is not a list of name:number; write a:2/b:1")
        found[name.strip()] = number
    return found


def prices_of(gpu_types: tuple[str, ...], said: dict[str, float]) -> tuple[tuple[float, ...], list[str]]:
    """One price per type, and a note for each that nobody knows: it counts as the average of the others, or as 1."""
    found = [dollars_per_hour(kind, said) for kind in gpu_types]
    known = [price for price in found if price is not None]
    usual = sum(known) / len(known) if known else 1.0
    notes = [f"no price is known for GPU type {kind}: counted as {usual:g} dollars an hour (prices={kind}:…)"
             for kind, price in zip(gpu_types, found, strict=True) if price is None]  # fmt: skip
    return tuple(usual if price is None else price for price in found), notes
