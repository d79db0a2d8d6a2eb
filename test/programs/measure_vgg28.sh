#!/bin/sh
# The records of results/vgg28-h200.jsonl: vgg-28 on sets of IDX files with 0, 25 and 50 augmented epochs behind 20 that
# are not, three seeds, ours and PyTorch's (test/peers/vgg28_torch.py) in turns. A fifth of training's images is held out
# and the test images are scored, once, at the end. From the root of the tree, after `make`:
#   SETS="mnist=DIR fashion=DIR" sh test/programs/measure_vgg28.sh records.jsonl
# LIMIT: after so many seconds nothing is begun any more. What the file has already is left out, so that the same call
# goes on where the one before has ended; stderr says what is left. SETTINGS, SEEDS, DTYPES (bf16, tf32, fp32), BASE (the
# phases that are not augmented), RATE (of those that are): of the runs. PEER=: without PyTorch. WAY: graph, compile or
# eager, of PyTorch; the fastest of the first two unless given. On a CPU, to see that it works:
#   DEVICE=cpu DTYPES=fp32 SETTINGS="0 1" SEEDS=1 BASE=1@1e-3 IMAGES=300 SETS="fashion=DIR" sh … records.jsonl
set -eu
records=${1:?where the records go}
SETS=${SETS:?sets by name: mnist=DIR fashion=DIR} SETTINGS=${SETTINGS:-0 25 50} SEEDS=${SEEDS:-1 2 3}
DTYPES=${DTYPES:-bf16} BASE=${BASE:-10@1e-3,10@1e-4} RATE=${RATE:-1e-4} DEVICE=${DEVICE:-cuda} IMAGES=${IMAGES:-0}
LIMIT=${LIMIT:-100000} B=${B:-build} PEER=${PEER-python3} WAY=${WAY:-}
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

# has BENCH: whether there is a record of this run.
has() { grep "\"bench\":\"$1\",$key" "$records" >/dev/null; }

# keep BENCH FILE: its last line as the record of this run.
keep() { tail -n 1 "$2" | sed "s|^{|{\"bench\":\"$1\",$key,|" >>"$records"; }

ours() {
  has vgg28 || ! begin "ours, $key" || {
    rm -rf "$out"
    case $dtype in bf16) type=--amp=bf16 ;; tf32) type=--tf32 ;; *) type= ;; esac
    if timeout "$(left)" "$B/train" --model vgg-28 --data "$data" --out "$out" --phases "$phases" --seed "$seed" \
      --val-fraction 0.2 --val-split test --eval-epochs 0 --limit "$IMAGES" --val-limit "$IMAGES" $type \
      --device "$(echo "$DEVICE" | sed 's/cuda/cuda:0/')" >/dev/null 2>"$out.log"; then
      keep vgg28 "$out/run.json"
    else
      echo "ended early: ours, $key: $(tail -n 1 "$out.log")" >&2
    fi
  }
}

# peer WAY PHASES: the record on stdout.
peer() {
  timeout "$(left)" "$PEER" test/peers/vgg28_torch.py --data "$data" --phases "$2" --seed "$seed" --dtype "$dtype" \
    --limit "$IMAGES" --val-limit "$IMAGES" --device "$DEVICE" ${1:+--way "$1"}
}

# The way with the most images a second in the median of three epochs, which the first, with what compiling takes, is
# not.
choose_way() {
  best=0
  for way in graph compile; do
    speed=$(peer "$way" 3@1e-3 2>"$out.log" | sed -n 's/.*"img_s": \([0-9]*\).*"phase".*/\1/p')
    echo "PyTorch, $way: ${speed:-$(tail -n 1 "$out.log")} images a second" >&2
    [ "${speed:-0}" -le "$best" ] || WAY=$way best=$speed
  done
}

theirs() {
  [ -n "$PEER" ] && ! has vgg28-peer && begin "PyTorch's, $key" || return 0
  [ -n "$WAY" ] || [ "$DEVICE" = cpu ] || choose_way
  if peer "$WAY" "$phases" >"$out.json" 2>"$out.log"; then
    keep vgg28-peer "$out.json"
  else
    echo "ended early: PyTorch's, $key: $(tail -n 1 "$out.log")" >&2
  fi
}

for set in $SETS; do
  data=${set#*=}
  for dtype in $DTYPES; do
    for epochs in $SETTINGS; do
      phases=$BASE
      [ "$epochs" = 0 ] || phases=$BASE,$epochs@$RATE+augment
      for seed in $SEEDS; do
        key="\"set\":\"${set%%=*}\",\"dtype\":\"$dtype\",\"augmented\":$epochs,\"seed\":$seed"
        ours
        theirs
      done
    done
  done
done
