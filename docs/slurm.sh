#!/bin/sh
# Trains on two nodes of eight GPUs under Slurm:  DATA=/data/coco sbatch docs/slurm.sh
# One task per GPU; they meet at the first node of the job. More options of ./train may follow:
#   sbatch docs/slurm.sh --epochs 24
#SBATCH --job-name=maskrcnn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=12:00:00
#SBATCH --output=%x-%j.log
set -eu
MASKRCNN_JOB=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') # the secret by which ranks know each other
export MASKRCNN_JOB

# Every task sees all GPUs of its node and uses its own: with --gpus-per-task NCCL could not use NVLink.
# --kill-on-bad-exit: Slurm ends tasks that do not end by themselves after another one has failed.
exec srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-12}" \
  ./train --data "${DATA:?set it to the data set, on a file system that all nodes see}" \
  --batch 4 --amp --out "${OUT:-runs/slurm}" "$@"
