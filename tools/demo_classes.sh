#!/bin/sh
# make demo-classes: makes a data set of grey shapes in MNIST's format, trains a ResNet-18 on it, scores it on unseen
# images. Uses a GPU if there is one; two CPU cores take less than two minutes. B is the build folder, P that of the
# programs.
set -eu
B=${B:-build} P=${P:-$B}
D=$B/demo-classes
rm -rf "$D"
"$P/shapes" --idx --out "$D/data" --train 4000 --val 300 --seed 1
"$P/train" --model resnet18 --data "$D/data" --size 28 --out "$D/run" --batch 32 --epochs 4 --optimizer adam \
  --schedule cosine
echo
"$P/infer" --weights "$D/run/model.safetensors" --data "$D/data" --batch 32 --out "$D/found" >"$D/scores.txt"
cat <<EOF
classes of each image: $D/found/classes.jsonl
report:                $D/run/report.html
confusion matrix:      $D/found/confusion.txt
the run in figures:    $D/run/run.json
EOF
tail -n 1 "$D/scores.txt"
