#!/bin/sh
# Builds an exercise with its check and runs it: sh docs/course/exercises/check.sh N [FILE]. FILE stands in for the
# exercise's own. CC and B (where the program goes) are those of the Makefile. Exit status: 0 solved, 1 not yet, 2 it
# does not compile, or there is no such exercise. Run from the root of the tree.
set -u
here=$(dirname "$0")
number=${1-}
check=$(ls "$here/$number"_*_check.c 2>/dev/null)
if [ -z "$number" ] || [ -z "$check" ]; then
  [ -z "$number" ] || echo "exercise $number: there is none"
  echo 'make exercise N, with N of:'
  ls "$here" | sed -n 's/^\([0-9]*\)_\(.*\)_check[.]c$/  \1  \2/p' | sort -n
  exit 2
fi
file=${2-${check%_check.c}.c}
program=${B:-build}/exercises/$number
mkdir -p "$(dirname "$program")" || exit 2
${CC:-cc} -std=c11 -O1 -g -Wall -Wextra -Wno-unused -I. "$file" "$check" -lm -o "$program" || exit 2
echo "exercise $number: $file"
"$program"
