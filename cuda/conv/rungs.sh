#!/bin/sh
# sh cuda/conv/rungs.sh [DIR] prints the names of the convolution ladder's rungs, bottom to top: those of cuda/conv/, of
# cudnn/ and of a folder DIR. A rung is defined in NN_NAME.cu as rung_NAME: the number says its place.
# What is wrong with such a file is said in one line; exit status 2.
set -eu
LC_ALL=C
export LC_ALL
complain() {
  echo "$*" >&2
  exit 2
}

added=
if [ -n "${1-}" ]; then
  case $1 in *[[:space:]]*) complain "RUNGS=$1: make takes no folder with a space in its name" ;; esac
  [ -d "$1" ] || complain "RUNGS=$1: no such folder"
  added=$(grep -ls 'const Rung rung_' "$1"/*.cu) ||
    complain "RUNGS=$1: no file there defines a rung; cuda/conv/template/00_mine.cu shows how"
fi
list=$(
  for file in $(grep -l 'const Rung rung_' cuda/conv/[0-9]*.cu cudnn/[0-9]*.cu) $added; do
    place=$(basename "$file" .cu)
    case $place in [0-9][0-9]_*) ;; *) complain "$file: call it NN_$place.cu; NN is its place in the ladder" ;; esac
    name=${place#[0-9][0-9]_}
    grep -q "^extern \"C\" const Rung rung_$name = {\"$name\"," "$file" ||
      complain "$file: by its name it defines: extern \"C\" const Rung rung_$name = {\"$name\", …"
    echo "$place $name"
  done
)
names=$(echo "$list" | sort | cut -d' ' -f2)
twice=$(echo "$names" | sort | uniq -d)
[ -z "$twice" ] || complain "two files define rung_$twice: give yours a name of its own"
echo "$names"
