#!/bin/sh
# The records of results/nets-h200.jsonl: classification nets on one GPU, ours, ours on cuDNN's convolutions, and
# PyTorch's (test/peers/bench_nets.py), in turns. From the root of the tree, after `make`:
#   NETS="alexnet vgg16" BATCHES="64" sh lab/measure_nets.sh records.jsonl
# LIMIT: after so many seconds nothing is begun any more. What the file has already is left out, so that the same call
# goes on where the one before has ended; stderr says what is left. PROFILE=FILE: the nets node by node, too.
# DTYPES, CONVS ("auto cudnn"), RUNS: of each setting; EAGER_RUNS: of PyTorch's without a graph. PEER=: without PyTorch.
# A setting takes five to thirty seconds.
set -eu
records=${1:?where the records go}
NETS=${NETS:-alexnet overfeat vgg16 googlenet resnet50 resnet101 resnet152 vgg-28} BATCHES=${BATCHES:-64}
DTYPES=${DTYPES:-bf16 tf32} CONVS=${CONVS:-auto cudnn} RUNS=${RUNS:-100} EAGER_RUNS=${EAGER_RUNS:-20}
LIMIT=${LIMIT:-100000} B=${B:-build} PEER=${PEER-python3}
export B
[ -z "$PEER" ] || "$PEER" -c 'import torch, torchvision' || PEER=
for tool in train ${PEER:+machine}; do
  [ -x "$B/$tool" ] || { echo "$B/$tool is missing: run make first" >&2; exit 2; }
done
end=$(($(date +%s) + LIMIT))
: >>"$records"

left() { echo $((end - $(date +%s))); }

# lacking PATTERN: of BATCHES those that no record of the pattern has, with commas between them.
lacking() {
  for batch in $BATCHES; do
    grep "$1" "$records" | grep -q "\"batch\": *$batch," || echo "$batch"
  done | paste -sd, -
}

# measure BATCHES COMMAND…: appends what it prints on stdout, within what is left of the time.
measure() {
  batches=$1
  shift
  [ -n "$batches" ] || return 0
  if [ "$(left)" -le 0 ]; then
    echo "left: $* (batches $batches)" >&2
    return 0
  fi
  timeout "$(left)" "$@" >"$records.part" || echo "ended early: $*" >&2
  grep '^{' "$records.part" >>"$records" || :
  rm "$records.part"
}

# options DTYPE: of ./train.
options() {
  case $1 in
    tf32) echo --tf32 ;;
    *) echo "--amp=$1" ;;
  esac
}

ours() {
  want=$(lacking "\"bench\":\"net\",\"net\":\"$1\",.*\"dtype\":\"$2\",\"conv\":\"$3\"")
  measure "$want" "$B/train" --model "$1" --benchmark "$RUNS" --batches "$want" "$(options "$2")" --conv "$3"
}

peers() {
  [ -n "$PEER" ] && [ "$2" != fp16 ] || return 0
  want=$(lacking "\"bench\": \"net-peer\",.*\"net\": \"$1\",.*\"dtype\": \"$2\"")
  measure "$want" "$PEER" test/peers/bench_nets.py --nets "$1" --dtypes "$2" --runs "$RUNS" \
    --eager-runs "$EAGER_RUNS" --batches "$want"
}

for net in $NETS; do
  for dtype in $DTYPES; do
    turn=
    for conv in $CONVS; do
      ours "$net" "$dtype" "$conv"
      [ -n "$turn" ] || peers "$net" "$dtype"
      turn=over
    done
  done
done

for net in ${PROFILE:+$NETS}; do
  for dtype in $DTYPES; do
    [ "$(left)" -gt 0 ] || continue
    echo "$net, $dtype"
    timeout "$(left)" "$B/train" --model "$net" --benchmark 20 --profile --batch "${BATCHES##* }" "$(options "$dtype")" \
      2>/dev/null | grep -v '^{' || echo "it failed"
    echo
  done
done >"${PROFILE:-/dev/null}"
