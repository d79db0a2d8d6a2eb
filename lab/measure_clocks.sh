#!/bin/sh
# The records of results/clocks-h200.jsonl: what clock and power each GPU has while one of them trains, while N of them
# do without reducing, and while they reduce. From the root of the tree, after `make`:
#   DATA=/data/coco GPUS=2 sh lab/measure_clocks.sh >>records.jsonl
# Only asks nvidia-smi, every 20 ms; a GPU counts while it draws more than 560 W, which is while it steps.
set -eu
N=${GPUS:-2} B=${B:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# sampled NAME OPTIONS: a line for each GPU that was at work.
sampled() {
  name=$1
  shift
  nvidia-smi --query-gpu=index,power.draw.instant,clocks.sm --format=csv,noheader,nounits -lms 20 >"$work/samples" &
  smi=$!
  "$B/train" --data "${DATA:?a COCO data set}" --model maskrcnn-r50-fpn --amp --norm frozen-bn --trainable-layers 3 \
    --batch 4 --full-masks --lr 1e-5 --eval-every never --benchmark 150 "$@" >"$work/record"
  kill "$smi"
  awk -F', ' -v name="$name" -v img_s="$(sed 's/.*"img_s": \([0-9.]*\).*/\1/' "$work/record")" '
    $2 > 560 { n[$1]++; w[$1] += $2; c[$1] += $3; cc[$1] += $3 * $3 }
    END {
      for (g in n) if (n[g] > 20)
        printf "{\"bench\": \"clocks\", \"case\": \"%s\", \"gpu\": %d, \"samples\": %d, \"mhz\": %.0f, \"mhz_sd\": %.0f, \"watts\": %.0f, \"img_s\": %.1f}\n",
          name, g, n[g], c[g] / n[g], sqrt(cc[g] / n[g] - (c[g] / n[g]) ^ 2), w[g] / n[g], img_s
    }' "$work/samples"
}

for _ in 1 2 3; do
  sampled one
  sampled "not reducing" --gpus "$N" --same-images --reduce none --reserve 0
  sampled reducing --gpus "$N" --same-images
done
