"""Threads that numpy would start for nothing.

Its linear algebra (OpenBLAS) starts one for every core but the first as it is imported, and they wait for work at full
speed: on two cores, half of what `import numpy` costs. Nothing here multiplies matrices so large that they would help.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONE_THREAD = "OPENBLAS_NUM_THREADS"
_UNDIVIDED = 10_000  # numbers that OpenBLAS never shares out among threads


def import_numpy() -> None:
    """With one thread, unless somebody asks for another number; for programs that are ours alone. Nothing is left in
    the environment, which jobs and other programs inherit."""
    if ONE_THREAD in os.environ:
        return
    os.environ[ONE_THREAD] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[ONE_THREAD]


def inner(first: NDArray[Any], second: NDArray[Any]) -> float:
    """`first @ second`, to the last digit the same whatever the number of threads: a longer one is shared out among
    them, and then added up in another order."""
    return float(sum(first[at : at + _UNDIVIDED] @ second[at : at + _UNDIVIDED]
                     for at in range(0, len(first), _UNDIVIDED)))  # fmt: skip
