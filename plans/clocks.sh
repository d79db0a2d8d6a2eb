#!/bin/sh
# Trains while nvidia-smi samples the clock and power of each GPU every 20 ms, and prints a record for each GPU in use.
# Samples above 560 W count, which are those taken during steps.
#   sh plans/clocks.sh build/train DATA CASE [OPTIONS of train]
set -eu
train=$1 data=$2 case=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvidia-smi --query-gpu=index,power.draw.instant,clocks.sm --format=csv,noheader,nounits -lms 20 >"$work/samples" &
smi=$!
"$train" --data "$data" --model maskrcnn-r50-fpn --amp --norm frozen-bn --trainable-layers 3 --batch 4 --full-masks \
  --lr 1e-5 --eval-every never --benchmark 150 "$@" >"$work/record"
kill "$smi"
awk -F', ' -v name="$case" -v img_s="$(sed 's/.*"img_s": *\([0-9.]*\).*/\1/' "$work/record")" '
  $2 > 560 { n[$1]++; w[$1] += $2; c[$1] += $3; cc[$1] += $3 * $3 }
  END {
    for (g in n) if (n[g] > 20)
      printf "{\"bench\": \"clocks\", \"case\": \"%s\", \"gpu\": %d, \"samples\": %d, \"mhz\": %.0f, \"mhz_sd\": %.0f, \"watts\": %.0f, \"img_s\": %.1f}\n",
        name, g, n[g], c[g] / n[g], sqrt(cc[g] / n[g] - (c[g] / n[g]) ^ 2), w[g] / n[g], img_s
  }' "$work/samples"
