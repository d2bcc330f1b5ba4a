#!/bin/bash
# A scoring run in seven shards, one task of an array each, on a file system that all nodes mount.
#   job=$(sbatch --parsable docker/slurm-array.sh panel/ out/ --product forecasts)
#   sbatch --dependency=afterok:$job --time=00:30:00 --wrap "saga score --merge out/"
# The arguments are those of `saga score`. A task that is stopped or requeued continues.
#SBATCH --job-name=saga-score
#SBATCH --array=0-6
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --output=saga-score-%A-%a.log
set -euo pipefail

exec saga score "$@" --workers "${SLURM_CPUS_PER_TASK:-1}" \
    --shard "$((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN))/$SLURM_ARRAY_TASK_COUNT"
