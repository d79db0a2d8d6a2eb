#!/bin/sh
# The records of results/ladder-h200.jsonl and ladder-profile-h200.jsonl: how fast each lesson of cuda/conv/lessons/ is
# beside rungs and cuDNN, and what Nsight Compute counts in it. From the root of the tree, after `make`, on a GPU that
# runs nothing else and whose counters may be read (as root, or see NVIDIA's ERR_NVGPUCTRPERM):
#   sh lab/measure_ladder.sh ladder.jsonl profile.jsonl
#   python3 lab/ladder_plot.py ladder.jsonl >ladder.svg
# LESSONS: which to profile ("01_naive 02_smem_tile"). PROFILE=: no profiles. B: where the programs are.
# Takes some two minutes on an H200.
set -eu
ladder=${1:?where the records of times go} profile=${2:?where the records of profiles go}
B=${B:-build} PROFILE=${PROFILE-ncu}
[ -z "$PROFILE" ] || command -v "$PROFILE" >/dev/null || {
  echo "measure_ladder: there is no $PROFILE, Nsight Compute of the CUDA toolkit; PROFILE= measures times alone" >&2
  exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$B/bench" ladder --out "$ladder"
[ -n "$PROFILE" ] || exit 0
"$B/machine" >"$work/machine"
flags=$(python3 lab/lesson_profile.py --flags)
for file in ${LESSONS:-cuda/conv/lessons/[0-9]*.cu}; do
  lesson=$(basename "$file" .cu)
  # shellcheck disable=SC2086 # words of flags
  "$PROFILE" $flags "$B/bench" ladder --rungs "$lesson" --layer p2.3x3 >"$work/said" || {
    cat "$work/said" >&2
    exit 2
  }
  echo "# $lesson" >>"$work/profiles"
  cat "$work/said" >>"$work/profiles"
done
python3 lab/lesson_profile.py "$work/machine" "$work/profiles" >>"$profile"
