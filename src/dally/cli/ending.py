"""How a command that ran something ends: the same alarm and the same exit codes for all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

FAILED = 1  # exit code where something was not run to its end
INTERRUPTED = 130  # exit code after Ctrl-C
BELOW_BOUND = 3  # exit code of a run that is below what is proved impossible


def end(alarms: Iterable[str], *, failed: bool = False) -> None:
    """Every alarm (`report.alarm`; empty ones are none) on standard error, and out where something is wrong."""
    raised = [alarm for alarm in alarms if alarm]
    for alarm in raised:
        print(f"dally: {alarm}", file=sys.stderr)
    if failed or raised:
        sys.exit(FAILED if failed else BELOW_BOUND)
