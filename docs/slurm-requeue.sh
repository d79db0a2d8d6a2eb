#!/bin/sh
# As docs/slurm.sh, for runs that are longer than a job's time limit: before the time is up, and when the job is
# preempted or loses a node, it is queued again and resumes from the last checkpoint until the run is complete.
#   DATA=/data/coco sbatch docs/slurm-requeue.sh --epochs 24
#SBATCH --job-name=maskrcnn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=4:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -eu
MASKRCNN_JOB=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') # the secret by which ranks know each other
export MASKRCNN_JOB

# SIGTERM, two minutes before the end, makes all tasks save and exit with status 1. Without a checkpoint, --resume starts
# from the beginning.
status=0
srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-12}" \
  ./train --data "${DATA:?set it to the data set, on a file system that all nodes see}" \
  --batch 4 --amp --out "${OUT:-runs/slurm}" --resume "$@" || status=$?

# Status 2 is a mistake on the command line or in the data, which would only happen again.
case $status in 0 | 2) exit "$status" ;; esac
[ "${SLURM_RESTART_COUNT:-0}" -lt "${RESTARTS:-20}" ] || exit "$status"
scontrol requeue "$SLURM_JOB_ID"
