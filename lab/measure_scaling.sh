#!/bin/sh
# The records of results/scaling-h200.jsonl, on any machine: steps on one GPU and on N in turns, with and without what
# scaling loses, and all-reduces alone. From the root of the tree, after `make`:
#   DATA=/data/coco GPUS=4 sh lab/measure_scaling.sh >>records.jsonl
#   python3 lab/scaling.py --check records.jsonl
# STEPS: of each record, after half as many. A setting takes some seconds; all of it five minutes and more.
set -eu
N=${GPUS:-2} STEPS=${STEPS:-80} B=${B:-build}
said=$(mktemp)
trap 'rm -f "$said"' EXIT
frozen="--norm frozen-bn --trainable-layers 3"

# step OPTIONS: a record on stdout; its setting on stderr.
step() {
  echo "$*" >&2
  # shellcheck disable=SC2086 # words of options
  "$B/train" --data "${DATA:?a COCO data set of many more images than a step has}" --model maskrcnn-r50-fpn --amp \
    --lr 1e-5 --eval-every never --benchmark "$STEPS" "$@" 2>"$said" || tail -n 1 "$said" >&2
}

# What is lost, part by part: results/scaling.md.
losses() {
  step "$@"
  step "$@" --gpus "$N" --same-images --reduce none --reserve 0
  step "$@" --gpus "$N" --same-images --reduce none
  step "$@" --gpus "$N" --same-images
  step "$@" --gpus "$N"
  step "$@"
}

# shellcheck disable=SC2086 # words of options
{
  losses $frozen --batch 4
  losses $frozen --batch 4 --full-masks
  losses --norm gn --batch 4 --full-masks
  losses $frozen --batch 1
  for mb in 4 12 50; do step $frozen --batch 4 --full-masks --gpus "$N" --same-images --bucket $mb; done
  for ctas in 8 24; do
    step $frozen --batch 4 --full-masks --gpus "$N" --same-images --ctas $ctas --reduce none
    step $frozen --batch 4 --full-masks --gpus "$N" --same-images --ctas $ctas
  done
  step $frozen --batch 4 --full-masks --gpus "$N" --same-images --reduce bf16
  NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 step $frozen --batch 4 --gpus "$N" # sockets, as between nodes
}
"$B/bench_reduce" --gpus "$N" --ctas 8,16,24
