#!/bin/sh
# Inference on one GPU as docs/results.md has it: weights that learn the images, batches of 1, 8 and 24 through the
# library with their nodes, torchvision on the same, then data sets and loose photographs from files. From the root of
# the tree, after `make`; python3 with torch, torchvision and Pillow; two to four minutes:
#   sh lab/measure_infer.sh COCO FOLDER
# COCO: a small set in COCO's layout. FOLDER, which is made: infer.jsonl, torchvision.jsonl, nodes-BATCH.txt, and of
# what comes from files what ./infer said, SET.txt. PEER=: without torchvision. PHOTOGRAPHS, LARGE: how many.
set -eu
data=${1:?a data set in the layout of COCO} out=${2:?where the records go}
B=${B:-build} PEER=${PEER-python3} PHOTOGRAPHS=${PHOTOGRAPHS:-10000} LARGE=${LARGE:-128}
mkdir "$out"
python3 lab/infer_sets.py "$data" "$out" "$PHOTOGRAPHS" "$LARGE"
python3 plans/large_set.py --data "$out/land" --out "$out/landx" --train 4608 --val 0
weights=$out/learned.safetensors
TRAIN=$B/train sh plans/learned.sh "$out/land" "$weights" none --model maskrcnn-r50-fpn --norm bn --batch 8 --amp \
  --iters 1500 --val-split train

for batch in 1 8 24; do
  case $batch in 1) steps=600 ;; 8) steps=150 ;; *) steps=80 ;; esac
  "$B/infer" --weights "$weights" --amp --data "$out/landx" --split train --score 0 --batch "$batch" --canvases 1 \
    --benchmark "$steps" --profile >"$out/nodes-$batch.txt"
  grep '^{' "$out/nodes-$batch.txt" >>"$out/infer.jsonl"
done
[ -z "$PEER" ] || "$PEER" test/peers/infer_torchvision.py "$weights" "$out/land" >"$out/torchvision.jsonl"

search() {
  name=$1
  shift
  "$B/infer" --weights "$weights" --amp --score 0.05 --overlays 0 --out "$out/$name-found" "$@" >"$out/$name.txt" 2>&1
  echo "$name: $(grep 'images/s$' "$out/$name.txt" | tail -n 1)"
}
search set --batch 8 --data "$out/landx" --split train
search photographs "$out/photos"
search large "$out/large"
