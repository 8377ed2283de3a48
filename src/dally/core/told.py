"""What a policy may be told of the future, by name: policies are compared with those that were told the same."""

from __future__ import annotations

DURATIONS = "durations"  # the work of every job, as the job declares it (`Estimates.work`)
SPEEDS = "speeds"  # profiles: how fast a job would be elsewhere (`Estimates.speed`, `throughput`, `together`)
DISTRIBUTION = "a distribution of durations"  # of past jobs, from a file
KINDS = (DURATIONS, SPEEDS, DISTRIBUTION)
NOTHING = "nothing"
