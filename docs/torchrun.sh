#!/bin/sh
# Trains on several nodes with torchrun; run it on each node with the same options:
#   NODES=2 HOST=node1 DATA=/data/coco sh docs/torchrun.sh
# HOST is one of the nodes, where torchrun's agents meet. --no-python: torchrun starts a program, not a script. More
# options of ./train may follow. Set MASKRCNN_JOB to the same secret text on each node: ranks know each other by it.
set -eu
exec torchrun --no-python --nnodes "${NODES:-1}" --nproc-per-node "${GPUS:-8}" \
  --rdzv-backend c10d --rdzv-endpoint "${HOST:-localhost}:${PORT:-29500}" --rdzv-id "${JOB:-maskrcnn}" \
  ./train --data "${DATA:?set it to the data set, on a file system that all nodes see}" \
  --batch 4 --amp --out "${OUT:-runs/torchrun}" "$@"
