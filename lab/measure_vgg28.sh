#!/bin/sh
# The records of results/vgg28-h200.jsonl: vgg-28 on sets of IDX files with 0, 25 and 50 augmented epochs behind 20 that
# are not, three seeds, ours and PyTorch's (test/peers/vgg28_torch.py) in turns. A fifth of training's images is held
# out and the test images are scored, once, at the end. From the root of the tree, after `make`:
#   SETS="mnist=DIR fashion=DIR" sh lab/measure_vgg28.sh records.jsonl
# LIMIT: after so many seconds nothing is begun any more. What the file has already is left out, so that the same call
# goes on where the one before has ended; stderr says what is left. SETTINGS, SEEDS, DTYPES (bf16, tf32, fp32), BASE
# (the phases that are not augmented), RATE (of those that are): of the runs. TOGETHER: so many seeds of a setting share
# the device, which tells accuracies of many sooner, but no speed: their records have "together". PEER=: without
# PyTorch. WAY: graph, compile or eager, of PyTorch; the faster of the first two unless given. On a CPU, to see that it
# works:
#   DEVICE=cpu DTYPES=fp32 SETTINGS="0 1" SEEDS=1 BASE=1@1e-3 IMAGES=300 SETS="fashion=DIR" sh … records.jsonl
set -eu
records=${1:?where the records go}
SETS=${SETS:?sets by name: mnist=DIR fashion=DIR} SETTINGS=${SETTINGS:-0 25 50} SEEDS=${SEEDS:-1 2 3}
DTYPES=${DTYPES:-bf16} BASE=${BASE:-10@1e-3,10@1e-4} RATE=${RATE:-1e-4} DEVICE=${DEVICE:-cuda} IMAGES=${IMAGES:-0}
LIMIT=${LIMIT:-100000} TOGETHER=${TOGETHER:-1} B=${B:-build} PEER=${PEER-python3} WAY=${WAY:-}
export B
[ -z "$PEER" ] || "$PEER" -c 'import torch' || PEER=
end=$(($(date +%s) + LIMIT))
out=$B/vgg28-run
: >>"$records"

left() { echo $((end - $(date +%s))); }

# begin WHAT: whether there is time for it.
begin() {
  [ "$(left)" -gt 0 ] && return 0
  echo "left: $1" >&2
  return 1
}

# key SEED: the members that tell a run of the setting from others.
key() { echo "\"set\":\"${set%%=*}\",\"dtype\":\"$dtype\",\"augmented\":$epochs,\"seed\":$1"; }

# has BENCH SEED: whether there is a record of this run.
has() { grep "\"bench\":\"$1\",$(key "$2")," "$records" >/dev/null; }

# keep BENCH SEED RUNS: the record of one of so many runs that shared the device.
keep() {
  beside=
  [ "$3" = 1 ] || beside="\"together\":$3,"
  tail -n 1 "$out-$2.json" | sed "s|^{|{\"bench\":\"$1\",$(key "$2"),$beside|" >>"$records"
}

# ours SEED: trains it; its record's members to $out-SEED.json.
ours() {
  rm -rf "$out-$1"
  case $dtype in bf16) type=--amp=bf16 ;; tf32) type=--tf32 ;; *) type= ;; esac
  timeout "$(left)" "$B/train" --model vgg-28 --data "$data" --out "$out-$1" --phases "$phases" --seed "$1" \
    --val-fraction 0.2 --val-split test --eval-epochs 0 --limit "$IMAGES" --val-limit "$IMAGES" $type \
    --device "$(echo "$DEVICE" | sed 's/cuda/cuda:0/')" >/dev/null && cp "$out-$1/run.json" "$out-$1.json"
}

# peer WAY PHASES SEED: its record's members on stdout.
peer() {
  timeout "$(left)" "$PEER" test/peers/vgg28_torch.py --data "$data" --phases "$2" --seed "$3" --dtype "$dtype" \
    --limit "$IMAGES" --val-limit "$IMAGES" --device "$DEVICE" ${1:+--way "$1"}
}

# theirs SEED: as ours.
theirs() { peer "$WAY" "$phases" "$1" >"$out-$1.json"; }

# Unless it is known: the way with the most images a second in the median of three epochs, which the first, with what
# compiling takes, is not.
choose_way() {
  [ -z "$WAY" ] && [ "$DEVICE" != cpu ] || return 0
  best=0
  for way in graph compile; do
    speed=$(peer "$way" 3@1e-3 1 2>"$out.log" | sed -n 's/.*"img_s": \([0-9]*\).*"phase".*/\1/p')
    echo "PyTorch, $way: ${speed:-$(tail -n 1 "$out.log")} images a second" >&2
    [ "${speed:-0}" -le "$best" ] || WAY=$way best=$speed
  done
}

# at_once ours|theirs BENCH SEED…: those that there is no record of, beside each other.
at_once() {
  whose=$1 bench=$2 todo= runs=0
  shift 2
  for seed; do
    has "$bench" "$seed" || ! begin "$whose, $(key "$seed")" || todo="$todo $seed" runs=$((runs + 1))
  done
  [ "$runs" = 0 ] || [ "$whose" = ours ] || choose_way
  for seed in $todo; do
    { "$whose" "$seed" 2>"$out-$seed.log" || rm -f "$out-$seed.json"; } &
  done
  wait
  for seed in $todo; do
    if [ -f "$out-$seed.json" ]; then
      keep "$bench" "$seed" "$runs"
      rm -rf "$out-$seed" "$out-$seed."*
    else
      echo "ended early: $whose, $(key "$seed"): $(tail -n 1 "$out-$seed.log")" >&2
    fi
  done
}

# in_turns SEED…: ours and PyTorch's, TOGETHER of them at a time.
in_turns() {
  while [ $# -gt 0 ]; do
    group= size=0
    while [ $# -gt 0 ] && [ "$size" -lt "$TOGETHER" ]; do
      group="$group $1" size=$((size + 1))
      shift
    done
    at_once ours vgg28 $group
    [ -z "$PEER" ] || at_once theirs vgg28-peer $group
  done
}

for set in $SETS; do
  data=${set#*=}
  for dtype in $DTYPES; do
    for epochs in $SETTINGS; do
      phases=$BASE
      [ "$epochs" = 0 ] || phases=$BASE,$epochs@$RATE+augment
      in_turns $SEEDS
    done
  done
done
