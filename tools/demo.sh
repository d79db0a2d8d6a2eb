#!/bin/sh
# make demo: makes a data set of shapes, trains the tiny model, scores it on unseen images. Uses a GPU if there is one;
# two CPU cores take minutes. B is the build folder, P the folder of the programs.
set -eu
B=${B:-build} P=${P:-$B}
D=$B/demo
rm -rf "$D"
"$P/shapes" --out "$D/data" --train 4000 --val 200 --size 128 --seed 1
"$P/train" --data "$D/data" --model tiny --out "$D/run" --batch 8 --epochs 5 --lr 0.05 --schedule cosine --warmup 100 \
  --clip-grad 10 --eval-every 0
echo
"$P/infer" --weights "$D/run/model.safetensors" --data "$D/data" --batch 8 --out "$D/overlays" --eval >"$D/scores.txt"
cat <<EOF
overlays:        $D/overlays/*.png
report:          $D/run/report.html
scores:          $D/scores.txt
EOF
tail -n 1 "$D/scores.txt"
