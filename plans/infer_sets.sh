#!/bin/sh
# Makes the inputs of plans/inference.plan: the landscape images of a data set, 4,608 images made of them by repetition,
# photographs made from them, and weights trained on them. Does nothing if all of it exists.
#   sh plans/infer_sets.sh DATA WORK PHOTOGRAPHS LARGE BIN
set -eu
data=$1 work=$2 photographs=$3 large=$4 bin=$5
if [ ! -e "$work/landx" ]; then
  rm -rf "$work"
  mkdir -p "$work"
  python3 lab/infer_sets.py "$data" "$work" "$photographs" "$large"
  python3 plans/large_set.py --data "$work/land" --out "$work/landx" --train 4608 --val 0
fi
TRAIN=$bin/train sh plans/learned.sh "$work/land" "$work/learned" none --model maskrcnn-r50-fpn --norm bn --batch 8 \
  --amp --iters 1500 --val-split train
