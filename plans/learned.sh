#!/bin/sh
# Makes weights trained on a data set, so that a benchmark has as many positives as a trained network. Plans call it
# before they measure. From the root of the tree, after `make`:
#   sh plans/learned.sh DATA FILE [WEIGHTS [OPTIONS of ./train]]
# FILE becomes a link to WEIGHTS or, if that is none, to an R50-FPN that ./train trains on DATA's train split, in a
# minute or two on a GPU: enough to overfit about a hundred images. A second call does nothing, an interrupted one continues.
# If FILE was made from other data or weights, it stops and says so.
set -eu
data=${1:?DATA} file=${2:?FILE} weights=${3:-none}
[ $# -le 3 ] && set -- || shift 3
T=${TRAIN:-./train}
mkdir -p "$(dirname "$file")"
from="$(cd "$data" && pwd) $weights $*"
if [ -e "$file.from" ] && [ "$(cat "$file.from")" != "$from" ]; then
  echo "$file was made of $(cat "$file.from"), not of $from: remove it and $file.from, or give another folder" >&2
  exit 2
fi
[ ! -e "$file" ] || exit 0
printf '%s\n' "$from" >"$file.from"
if [ "$weights" = none ]; then
  weights=$file.run/model.safetensors
  [ $# -gt 0 ] || set -- --model maskrcnn-r50-fpn --norm bn --batch 8 --amp --iters 1500
  [ -e "$weights" ] || "$T" --data "$data" --eval-every never --checkpoint-every 300 "$@" --out "$file.run" --resume >&2
fi
[ -e "$weights" ] || { echo "$weights: no such file; give --set weights=FILE, or none" >&2; exit 2; }
ln -sf "$(realpath "$weights")" "$file"
