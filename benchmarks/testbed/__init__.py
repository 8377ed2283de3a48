"""Real training jobs on a real Slurm: the stream, the job, the four ways to schedule it, and what was predicted."""
