"""An existing Slurm as an engine: attempts are its jobs, its word on who lives counts, its nodes are the machines."""
