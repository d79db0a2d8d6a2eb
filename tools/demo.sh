#!/bin/sh
# make demo: makes a data set of shapes, trains the tiny model on two CPU cores, scores it on unseen images.
set -eu
B=${B:-build}
D=$B/demo
rm -rf "$D"
"$B/shapes" --out "$D/data" --train 4000 --val 200 --size 128 --seed 1
./train --data "$D/data" --model tiny --out "$D/run" --batch 8 --epochs 5 --lr 0.05 --schedule cosine --warmup 100 \
  --clip-grad 10 --eval-every 0
echo
./infer --weights "$D/run/model.safetensors" --data "$D/data" --batch 8 --out "$D/overlays" --eval >"$D/scores.txt"
cat <<EOF
overlays:        $D/overlays/*.png
learning curve:  $D/run/curves.svg
scores:          $D/scores.txt
EOF
tail -n 1 "$D/scores.txt"
