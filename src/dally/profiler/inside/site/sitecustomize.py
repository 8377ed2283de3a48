"""Run by Python itself at the start of a profiled script and of every Python process that it starts.

It asks for the hooks to be set as soon as the process imports torch. It must never be the reason that a script
fails: what goes wrong here is written to standard error and the script goes on unprofiled.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _chain() -> None:
    """Run the sitecustomize that this one hides, if the installation has one."""
    for folder in sys.path:
        other = Path(folder or ".") / "sitecustomize.py"
        if other.parent.resolve() != _HERE and other.is_file():
            spec = importlib.util.spec_from_file_location("_hidden_sitecustomize", other)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


def _ask_for_hooks() -> None:
    # The script's interpreter need not have Dally installed: what runs inside needs torch and the standard library.
    source = str(_HERE.parents[3])
    if source not in sys.path:
        sys.path.append(source)
    from dally.profiler.inside.arrival import when_torch_comes

    when_torch_comes()


_chain()
if os.environ.get("DALLY_PROFILE_TASK"):
    try:
        _ask_for_hooks()
    except Exception as error:
        print(f"dally: this process is not profiled: {error!r}", file=sys.stderr)
