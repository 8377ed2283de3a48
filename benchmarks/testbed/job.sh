#!/bin/bash
# A benchmark job under plain Slurm: the ranks meet on the first node.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
exec srun --kill-on-bad-exit=1 --mpi=none "$@"
