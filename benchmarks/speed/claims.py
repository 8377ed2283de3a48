"""The claims by name."""

from __future__ import annotations

from speed import parts, runs
from speed.base import Claim

CLAIMS = {
    claim.name: claim
    for claim in (
        Claim(
            "queueing",
            "Under queueing: 20,000 jobs on 640 GPUs at load 0.9 and 1.1",
            runs.queueing_cells,
            runs.queueing,
        ),
        Claim("philly", "Philly's own jobs on 448 GPUs (7x8x8), as they arrived", runs.philly_cells, runs.philly),
        Claim("jobs", "Ten times the jobs at equal load: 640 GPUs, load 0.9", runs.jobs_cells, runs.jobs),
        Claim("gpus", "More GPUs at equal load: 20,000 jobs, load 0.9", runs.gpus_cells, runs.gpus),
        Claim("load", "Longer queues: 20,000 jobs on 640 GPUs, by load", runs.load_cells, runs.load),
        Claim(
            "memory",
            "A million jobs on 10,240 GPUs at load 0.9: time, memory",
            runs.million_cells,
            runs.memory,
        ),
        Claim("setup", "All of `dally simulate`, on 640 GPUs at load 0.9", parts.setup_cells, parts.setup),
        Claim("network", "Training steps asked of the analytic network", parts.network_cells, parts.network),
        Claim(
            "contention",
            "One gang leaves and enters elsewhere, 90 % of gangs inside a rack",
            parts.contention_cells,
            parts.contention,
        ),
        Claim("lp", "Gavel's max-min allocation from nothing, no two jobs alike", parts.lp_cells, parts.lp),
        Claim("live", "One live decision on 10,240 GPUs that are full", parts.live_cells, parts.live),
    )
}
