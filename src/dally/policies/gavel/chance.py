"""Random choices that can be taken up again: a seed and how many words of it were drawn say everything."""

from __future__ import annotations

import random


class Chance(random.Random):
    """Python's generator, which counts the words it hands out."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.first = seed
        self.drawn = 0

    def getrandbits(self, k: int, /) -> int:
        self.drawn += 1  # of at most 32 bits each: nobody here chooses among more
        return super().getrandbits(k)

    def after(self, drawn: int) -> Chance:
        """This one if so many words were drawn of it, else another from the same seed that was brought there."""
        if drawn == self.drawn:
            return self
        other = Chance(self.first)
        while other.drawn < drawn:
            other.getrandbits(32)
        return other
