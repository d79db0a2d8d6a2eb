#!/bin/sh
# Trains on two nodes of eight GPUs under Slurm:  DATA=/data/coco sbatch docs/slurm.sh
# One task for each GPU; they meet at the first node, by what Slurm says of the job. Further options of ./train may
# follow:  sbatch docs/slurm.sh --epochs 24
#SBATCH --job-name=maskrcnn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=12:00:00
#SBATCH --output=%x-%j.log
set -eu

# Every task sees all GPUs of its node and takes the one of its place: with --gpus-per-task NCCL would not find NVLink.
# --kill-on-bad-exit: Slurm ends what is left when a task has failed, should it not end by itself.
exec srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-12}" \
  ./train --data "${DATA:?set it to the data set, on a file system that all nodes see}" \
  --batch 4 --amp --out "${OUT:-runs/slurm}" "$@"
