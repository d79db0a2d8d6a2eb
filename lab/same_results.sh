#!/bin/sh
# same_results.sh BEFORE AFTER RECORD [cpu|gpu]: do two builds give the same bits? Runs the same commands by the
# programs in the folders BEFORE and AFTER, in turns, and compares what they leave: weights, checkpoints, logs without
# their times, detections, pictures, tables. RECORD gets one JSON object a comparison, as they come. Exits 1 if any
# differs, 2 if it cannot start.
#
# cpu: train, infer, shapes, doctor, cocoeval and inspect, on the tiny model, of one process and of two ranks, and on
# vgg-28. gpu: train and infer alone, R50-FPN at full size and ResNet-50, and their step times in turns.
# `make CUDA=0 B=DIR all` leaves the programs in DIR.
#
# DATA=../shared/data  a folder with coco/ and fashion/ (and for cpu cocoeval/, nuclei/ and odd_images/)
# RUNS=                where the runs go; otherwise a folder that is removed unless something differs
# SECONDS_A_RUN=300    after which a program counts as failed
# SECONDS_IN_ALL=500   gpu: after which no further check begins
# Paths hold no blanks.
set -u
usage() {
  echo "same_results.sh: $1" >&2
  exit 2
}
[ $# -eq 3 ] || [ $# -eq 4 ] || usage "expected BEFORE AFTER RECORD [cpu|gpu]"
root=$(cd "$(dirname "$0")/.." && pwd)
record=$3 mode=${4:-cpu}
case $mode in
  cpu) programs='train infer shapes doctor cocoeval inspect' ;;
  gpu) programs='train infer' ;;
  *) usage "$mode: expected cpu or gpu" ;;
esac
for folder in "$1" "$2"; do
  for program in $programs; do
    [ -x "$folder/$program" ] || usage "$folder/$program is not there; make builds it"
  done
done
[ -x "$2/machine" ] || usage "$2/machine is not there, which says where the record is made; make builds it"
data=${DATA:-$root/../shared/data}
[ -d "$data/coco/annotations" ] || usage "$data/coco is not there; DATA=DIR names the folder of data sets"
programs_before=$(cd "$1" && pwd) programs_after=$(cd "$2" && pwd) data=$(cd "$data" && pwd)
runs=${RUNS:-$(mktemp -d)}
mkdir -p "$runs" && runs=$(cd "$runs" && pwd) || exit 2
: >"$record" || exit 2
begin=$(date +%s) rows=0 different=0

# ---- running ---------------------------------------------------------------------------------------------------------

# launch SIDE NAME PROGRAM WORD…: runs a program of one side (before, after) in the folder of that side's runs; its
# output goes to NAME.out and NAME.err. In the words, @data is the folder of data sets, @out NAME, @before the folder of
# the runs before, @tree this repository, so that the paths written by programs are the same on both sides.
launch() {
  at=$runs/$1 run=$2 folder=$programs_after
  [ "$1" = before ] && folder=$programs_before
  title="$1  $2"
  shift 2
  words=$(echo "$*" | sed "s|@data|$data|g; s|@out|$run|g; s|@before|../before|g; s|@tree|$root|g")
  grep -q -e --conventions "$folder/train" || words=$(echo "$words" | sed 's/--conventions /--recipe /') # until 1.1
  mkdir -p "$at/$run"
  started=$(date +%s)
  # shellcheck disable=SC2086 # words are to be split, and patterns of files to be found
  (cd "$at" && env ${environment:-} timeout -k 5 "${SECONDS_A_RUN:-300}" "$folder/"$words >"$run.out" 2>"$run.err")
  status=$?
  echo "$(($(date +%s) - begin)) s  $title: exit code $status after $(($(date +%s) - started)) s"
  [ $status = "${expect:-0}" ] || tail -n 3 "$at/$run.err"
}

# both NAME PROGRAM WORD…: runs the program of both sides, for the comparisons that follow.
both() {
  command=$(shift && echo "$*")
  launch before "$@"
  status_before=$status
  launch after "$@"
  [ "$status_before $status" = "${expect:-0} ${expect:-0}" ] && return
  row "$1" 'exit code' "$status_before" "$status" false
}

# ---- comparing -------------------------------------------------------------------------------------------------------

# row CHECK PART BEFORE AFTER EQUAL [MORE]: one object of the record. MORE: further members.
row() {
  rows=$((rows + 1))
  [ "$5" = true ] || different=$((different + 1))
  command=$(echo "$command" | tr -s '\n ' ' ') # joins a command that was written on several lines
  echo "{\"check\": \"$mode $1\", \"part\": \"$2\", \"equal\": $5, \"before\": \"$3\", \"after\": \"$4\"${6:+, $6}," \
    "\"call\": \"${command% }\", $origin}" >>"$record"
  [ "$5" = true ] && echo "    equal: $1, $2" || echo "    DIFFERS: $1, $2: $3 and $4"
}

# The sha256 of standard input; nothing for empty input, so that two missing outputs do not count as equal.
sum() { sha256sum | cut -c 1-64 | grep -v "^$of_nothing$"; }
of_nothing=$(sha256sum </dev/null | cut -c 1-64)

# list_sums FOLDER PATTERN: the checksums of matching files.
list_sums() { (cd "$1" && find . -type f -name "$2" | sort | xargs -r sha256sum); }

# member KEY FILE: a number in a benchmark's record.
member() { sed -nE "s/.*\"$1\": ?([0-9.e+-]+).*/\1/p" "$2" | head -n 1; }

# digest KIND PATH: the sha256 of what is compared, or nothing if there is nothing to compare.
digest() {
  [ -e "$2" ] || return
  case $1 in
    file) sum <"$2" ;;
    tensors) # after the header, whose length is in the first eight bytes
      tail -c +$((9 + $(od -An -t u8 -N 8 "$2"))) "$2" | sum ;;
    log) # without times and session numbers
      grep -q '"kind":' "$2" &&
        sed -E 's/,"(img_s|wait|seconds|session)":[^,}]*//g; s/,"clock":\{[^}]*\}//' "$2" | sum ;;
    text) # without times, or progress lines, which depend on them
      sed -E '/^(start-up|(the other )?[0-9]+ images|image [0-9]+ of|(the )?decoders|latency|  (average|[0-9]+%) )/d; s/"decode_ms":[^,}]*//g' "$2" | sum ;;
    detections) # an empty list proves nothing
      grep -q '"score"' "$2" && sum <"$2" ;;
    folder) list_sums "$2" '*' | sum ;;
    pictures) list_sums "$2" '*.png' | sum ;;
    index) list_sums "$2" '*.coco' | sum ;;
    sizes) # what a benchmark's record holds besides times
      grep -q '"bench"' "$2" &&
        for key in batch canvas_h canvas_w rois positives; do echo "$key $(member $key "$2")"; done | sum ;;
  esac
}

# alike CHECK PART KIND PATH [PATH]: compares PATH of the runs before with PATH, or the second one, of the runs after.
alike() {
  one=$(digest "$3" "$runs/before/$4") two=$(digest "$3" "$runs/after/${5:-$4}")
  [ -n "$one" ] && [ "$one" = "$two" ] && same=true || same=false
  row "$1" "$2" "${one:-missing}" "${two:-missing}" "$same"
  case $same$4 in false*.safetensors) # do the numbers differ, or only the metadata?
    one=$(digest tensors "$runs/before/$4") two=$(digest tensors "$runs/after/${5:-$4}")
    [ -n "$one" ] && [ "$one" = "$two" ] && same=true || same=false
    row "$1" "$2, bytes of the tensors" "${one:-missing}" "${two:-missing}" "$same" ;;
  esac
}

# trained NAME [NAME]: compares the files of a training run.
trained() {
  alike "$1" model.safetensors file "$1/model.safetensors" "${2:-$1}/model.safetensors"
  alike "$1" checkpoint.safetensors file "$1/checkpoint.safetensors" "${2:-$1}/checkpoint.safetensors"
  alike "$1" 'log.jsonl without times' log "$1/log.jsonl" "${2:-$1}/log.jsonl"
  case $command in *fashion*) ;; # IDX files have no annotations
    *) alike "$1" 'index of the annotations' index "$1" "${2:-$1}" ;;
  esac
}
train_both() {
  both "$@"
  trained "$1"
}

# infer_both NAME WORD…: on images of a data set, with pictures.
infer_both() {
  name=$1
  shift
  both "$name" infer "$@" --json @out/detections.json --out @out
  alike "$name" detections.json detections "$name/detections.json"
  alike "$name" pictures pictures "$name"
  alike "$name" 'standard output without times' text "$name.out"
}

# resume_across WHOLE WORD…: BEFORE stops at step 30, AFTER resumes in a copy of that folder; compared with WHOLE, an
# uninterrupted run of BEFORE.
resume_across() {
  whole=$1
  shift
  launch before "$whole-stopped" "$@" --stop-after 30
  cp -R "$runs/before/$whole-stopped" "$runs/after/$whole-resumed"
  launch after "$whole-resumed" "$@" --resume
  command="$*, by BEFORE with --stop-after 30, then by AFTER with --resume; beside BEFORE's own $whole"
  alike "$whole, resumed" model.safetensors file "$whole/model.safetensors" "$whole-resumed/model.safetensors"
  alike "$whole, resumed" checkpoint.safetensors file "$whole/checkpoint.safetensors" \
    "$whole-resumed/checkpoint.safetensors"
  alike "$whole, resumed" 'log.jsonl without times' log "$whole/log.jsonl" "$whole-resumed/log.jsonl"
  rm -rf "$runs/before/$whole-stopped" "$runs/after/$whole-resumed"
}

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'; }

# speed NAME ROUNDS PROGRAM WORD…: the median time of a step, in turns; equal if within 1 %, or within half of the
# spread of the runs before, if the host's share of a step makes that larger.
speed() {
  name=$1 rounds=$2
  shift 2
  command="$*"
  : >"$runs/before/$name.times"
  : >"$runs/after/$name.times"
  for round in $(seq "$rounds"); do
    for side in before after; do
      launch $side "$name-$round" "$@"
      member step_ms "$runs/$side/$name-$round.out" >>"$runs/$side/$name.times"
    done
  done
  one=$(median <"$runs/before/$name.times") two=$(median <"$runs/after/$name.times")
  ratio=$(echo "${one:-0} ${two:-0}" | awk '{ print ($1 > 0 && $2 > 0) ? $2 / $1 : 0 }')
  spread=$(sort -g "$runs/before/$name.times" | awk -v m="${one:-1}" '{ v[NR] = $1 } END { print (v[NR] - v[1]) / m }')
  same=$(echo "$ratio $spread" | awk '{ gap = $1 > 1 ? $1 - 1 : 1 - $1; least = $2 / 2 > 0.01 ? $2 / 2 : 0.01
    print gap <= least ? "true" : "false" }')
  list() { paste -s -d , "$runs/$1/$name.times" | sed 's/,/, /g'; }
  row "$name" 'median step_ms, equal within 1 % or half the spread' "${one:-missing}" "${two:-missing}" "$same" \
    "\"ratio\": $ratio, \"spread_before\": $spread, \"all_before\": [$(list before)], \"all_after\": [$(list after)]"
  alike "$name" 'sizes and counts of the record' sizes "$name-1.out"
}

# ---- checks ----------------------------------------------------------------------------------------------------------

# Which builds were compared, on which machine, by their own records.
about() {
  command="train --data @data/coco --limit 4 --model tiny --size 64 --batch 1 --benchmark 2 --device $device"
  # shellcheck disable=SC2086
  for side in before after; do launch $side about $command; done
  text() { sed -nE "s/.*\"$1\": ?\"([^\"]*)\".*/\1/p" "$runs/$2/about.out"; }
  origin=$("$programs_after/machine" --device $device 2>/dev/null | sed 's/^{//; s/}$//')
  echo "{\"about\": \"lab/same_results.sh $mode\", \"before\": \"$(text commit before)\"," \
    "\"after\": \"$(text commit after)\", $origin}" >>"$record"
}

check_tools() {
  both shapes shapes --out @out --train 30 --val 6 --size 96 --seed 3
  alike shapes 'every file' folder shapes
  for set in coco nuclei; do
    both doctor-$set doctor --data @data/$set --json --html @out/page.html --html-images 20
    alike doctor-$set 'standard output' text doctor-$set.out
    alike doctor-$set 'pictures of the page' folder doctor-$set/page-pictures
    both doctor-$set-text doctor --data @data/$set --decode=false
    alike doctor-$set-text 'standard output' text doctor-$set-text.out
  done
  for iou in bbox segm; do
    found=@data/cocoeval/cocoapi_val2014_100
    both cocoeval-$iou cocoeval --gt $found/gt.json --dt $found/dt_$iou.json --iou $iou --json
    alike cocoeval-$iou 'standard output' text cocoeval-$iou.out
    found=@data/cocoeval/synth_coco_open_val
    both cocoeval-open-$iou cocoeval --gt @data/coco/annotations/instances_val2017.json --dt $found/dt_$iou.json \
      --iou $iou --per-category
    alike cocoeval-open-$iou 'standard output' text cocoeval-open-$iou.out
  done
}

# The tiny model: 60 steps with every norm and set of conventions, at several sizes, with other numbers of threads.
check_cpu() {
  common='--data @data/coco --model tiny --size 96 --batch 2 --iters 60 --lr 0.01 --warmup 10 --seed 3 --out @out
    --device cpu'
  gn="train $common --eval-every 30 --val-limit 20"
  train_both gn $gn
  train_both bn train $common --norm bn --eval-every -1
  train_both frozen-bn train $common --weights @before/bn/model.safetensors --norm frozen-bn --eval-every -1
  for whose in detectron2 mlperf; do train_both $whose train $common --conventions $whose --eval-every -1; done
  sizes="train $common --sizes 64,80,96,112 --canvases 3 --eval-every -1"
  train_both sizes $sizes
  for threads in 1 2; do
    environment=OMP_NUM_THREADS=$threads
    launch after threads-$threads $gn --threads $threads
    command="$environment $gn --threads $threads, by AFTER; beside BEFORE's own gn"
    environment=
    trained gn threads-$threads
  done
  resume_across gn $gn
  resume_across sizes $sizes
  train_both two-ranks $gn --gpus 2
  train_both vgg-28 train --data @data/fashion --model vgg-28 --batch 16 --iters 60 --val-limit 200 --seed 3 --out @out \
    --device cpu
  train_both nuclei train --data @data/nuclei --model tiny --size 96 --batch 2 --iters 20 --lr 0.01 --clip-grad 10 \
    --seed 3 --exif yes --eval-every -1 --out @out --device cpu
  train_both r50 train --data @data/coco --limit 8 --model maskrcnn-r50-fpn --size 64 --max-size 96 --batch 1 \
    --iters 4 --lr 0.001 --clip-grad 10 --eval-every -1 --out @out --device cpu

  images='--data @data/coco --split val --limit 40 --score 0.01 --overlays 4 --device cpu'
  for name in gn bn frozen-bn detectron2 mlperf; do
    infer_both infer-$name --weights $name/model.safetensors $images --batch 4 --eval
  done
  launch after infer-foreign infer --weights @before/gn/checkpoint.safetensors $images --batch 4 --json \
    @out/detections.json --out @out
  command="infer --weights @before/gn/checkpoint.safetensors, by AFTER; beside BEFORE's infer-gn"
  alike 'infer-gn of a checkpoint' detections.json detections infer-gn/detections.json infer-foreign/detections.json
  expect=2 # some images cannot be read, and a message says so
  infer_both odd-images --weights gn/model.safetensors --device cpu '@data/odd_images/*.*'
  alike odd-images 'standard error' text odd-images.err
  expect=0
  for file in @before/gn/checkpoint.safetensors @tree/test/corpus/torch/nested-zip.pth; do
    name=inspect-$(basename $file)
    both "$name" inspect $file
    alike "$name" 'standard output' text "$name.out"
  done
}

# further CHECK WORD…: a check that is skipped when time is short.
further() {
  if [ $(($(date +%s) - begin)) -gt "${SECONDS_IN_ALL:-500}" ]; then
    command="$*"
    row "$2" 'left out: no time' '' '' false
  else
    "$@"
  fi
}

# further_run NAME PROGRAM WORD…: a training run that no later check reads; its half a gigabyte a side is deleted.
further_run() {
  further train_both "$@"
  rm -rf "$runs/before/$1" "$runs/after/$1"
}

# R50-FPN at 800 x 1333. The default first; then the other precisions, norms, conventions and convolutions.
check_gpu() {
  common='--data @data/coco --model maskrcnn-r50-fpn --seed 3 --out @out --eval-every -1 --device cuda:0'
  frozen="train $common --norm frozen-bn --trainable-layers 3 --batch 4 --amp --lr 1e-5 --iters 60"
  gn="train $common --norm gn --batch 2 --amp --lr 0.005 --warmup 20 --clip-grad 10 --iters 60"
  gentle='--lr 0.005 --warmup 20 --clip-grad 10'
  train_both frozen-bn-bf16 $frozen
  train_both gn-bf16 $gn
  infer_both infer-gn-bf16 --weights gn-bf16/model.safetensors --data @data/coco --split val --limit 40 --batch 8 \
    --score 0 --overlays 4 --amp --device cuda:0
  resume_across gn-bf16 $gn
  resume_across frozen-bn-bf16 $frozen
  train_both resnet50-bf16 train --data @data/fashion --model resnet50 --size 96 --batch 64 --amp --iters 60 \
    --val-limit 1000 --seed 3 --out @out --device cuda:0
  train_both gn-tf32 train $common --norm gn --batch 2 --tf32 $gentle --iters 30
  speed speed-train 5 train --data @data/coco --limit 8 --model maskrcnn-r50-fpn --norm frozen-bn --trainable-layers 3 \
    --amp --lr 1e-5 --batch 4 --benchmark 100 --device cuda:0
  speed speed-infer 7 infer --weights gn-bf16/model.safetensors --data @data/coco --split val --limit 40 --batch 8 \
    --amp --benchmark 40 --device cuda:0

  further train_both bn-bf16 train $common --norm bn --batch 4 --amp $gentle --iters 60
  further train_both learnt-frozen-bn-bf16 train $common --weights @before/bn-bf16/model.safetensors --norm frozen-bn \
    --trainable-layers 3 --batch 4 --amp --lr 0.002 --warmup 20 --clip-grad 10 --iters 60
  further infer_both infer-frozen-bn-bf16 --weights learnt-frozen-bn-bf16/model.safetensors --data @data/coco \
    --split val --limit 40 --score 0 --overlays 2 --batch 8 --amp --eval --device cuda:0
  for whose in detectron2 mlperf; do
    further_run $whose-bf16 train $common --conventions $whose --batch 2 --amp $gentle --iters 20
  done
  further_run gn-fp16 train $common --batch 2 --amp=fp16 $gentle --iters 20
  further_run gn-fp32 train $common --batch 2 $gentle --iters 5
  further infer_both infer-gn-fp32 --weights gn-bf16/model.safetensors --data @data/coco --split val --limit 8 \
    --score 0 --overlays 2 --batch 4 --device cuda:0
  for rung in mma wmma im2col; do
    further_run gn-bf16-$rung train $common --batch 2 --amp $gentle --iters 5 --conv $rung
  done
}

finish() {
  state="$rows comparisons, $different differ, $(($(date +%s) - begin)) s"
  echo "{\"summary\": \"$mode\", \"comparisons\": $rows, \"different\": $different, \"complete\": $1," \
    "\"seconds\": $(($(date +%s) - begin)), $origin}" >>"$record"
  echo "$mode: $state; $record"
  if [ $different -gt 0 ] || [ "$1" = false ]; then
    echo "the runs are in $runs"
    exit 1
  fi
  [ -n "${RUNS:-}" ] || rm -rf "$runs"
  exit 0
}
trap 'finish false' INT TERM

# shellcheck disable=SC2086
if [ "$mode" = cpu ]; then
  device=cpu
  about
  check_tools
  check_cpu
else
  device=cuda:0
  about
  check_gpu
fi
finish true
