"""Threads that numpy would start for nothing.

Its linear algebra (OpenBLAS) starts one for every core but the first as it is imported, and they wait for work at full
speed: on two cores, half of what `import numpy` costs. Nothing here multiplies matrices so large that they would help,
and sums that are split among threads are other ones on other machines.
"""

from __future__ import annotations

import os

ONE_THREAD = "OPENBLAS_NUM_THREADS"


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
