#!/bin/sh
# The records of results/ladder-h200.jsonl and ladder-profile-h200.jsonl: how fast each lesson of cuda/conv/lessons/ is
# beside rungs and cuDNN, and what Nsight Compute counts in it. From the root of the tree, after `make`, on a GPU that
# runs nothing else and whose counters may be read (as root, or see NVIDIA's ERR_NVGPUCTRPERM):
#   sh test/programs/measure_ladder.sh ladder.jsonl profile.jsonl
#   python3 tools/ladder_plot.py ladder.jsonl >ladder.svg
# LESSONS: which to profile ("01_naive 02_smem_tile"). PROFILE=: no profiles. B: where the programs are.
# About two minutes on an H200.
set -eu
ladder=${1:?where the records of times go} profile=${2:?where the records of profiles go}
B=${B:-build} PROFILE=${PROFILE-ncu}
LESSONS=${LESSONS:-$(ls cuda/conv/lessons | sed -n 's/^\([0-9][0-9]_.*\)\.cu$/\1/p')}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$B/bench" ladder --out "$ladder"
[ -n "$PROFILE" ] || exit 0
command -v "$PROFILE" >/dev/null || {
  echo "$PROFILE is not there: it comes with the CUDA toolkit (Nsight Compute); PROFILE= leaves profiles out" >&2
  exit 2
}
"$B/machine" >"$work/machine"
flags=$(python3 tools/lesson_profile.py --flags)
for lesson in $LESSONS; do
  echo "# $lesson"
  # shellcheck disable=SC2086 # words of flags
  "$PROFILE" $flags "$B/bench" ladder --rungs "$lesson" --layer p2.3x3
done >"$work/profiles"
python3 tools/lesson_profile.py "$work/machine" "$work/profiles" >>"$profile"
