#!/bin/bash
# A benchmark job under plain Slurm: the ranks meet on the first node. As under dally, three crashes are survived; a job
# that was asked to leave (143) is not begun again here.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
for attempt in 1 2 3 4; do
    srun --kill-on-bad-exit=1 --mpi=none "$@"
    code=$?
    [ $code = 0 ] || [ $code = 143 ] && exit $code
done
exit $code
