#!/bin/sh
# Checks what the compiler does not: the direction of includes, self-contained headers, no platform #ifdefs, one
# statement a line, one name for one thing, 120 columns, links in Markdown, a source file for every test, the length of
# lessons, the gaps of exercises, and formatting. Prints FILE:LINE: and the problem; exits 1 if there is any. Run from
# the root of the tree; test/lint_test.sh tests it.
set -u
here=$(dirname "$0")
report=$(mktemp)
trap 'rm -f "$report"' EXIT
sources() {
  find . -path ./build -prune -o -type f \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print |
    sed 's|^\./||' | sort
}

pages() {
  find . -path ./build -prune -o -type f -name '*.md' -print | sed 's|^\./||' | sort
}

# Which of our headers a folder's files may include, as a regular expression; one row a folder. docs/design.md draws it.
allowed() {
  case $1 in
    base/*) echo 'base/' ;;
    comm/*) echo 'comm/|nn/(device|tensor|collective)\.h|base/' ;;
    nn/*) echo 'nn/|base/' ;;
    exact/*) echo 'exact/|nn/(ops|tensor)\.h|base/' ;;
    cpu/*) echo 'cpu/|exact/|nn/|base/' ;;
    cuda/*) echo 'cuda/|exact/|nn/|base/' ;;
    cudnn/*) echo 'cudnn/|cuda/|nn/|base/' ;;
    weights/*) echo 'weights/|base/' ;;
    models/*) echo 'models/|weights/|nn/|base/' ;;
    data/images/*) echo 'data/images/|base/' ;;
    data/coco/*) echo 'data/(coco|images)/|exact/polygon\.h|base/' ;;
    data/import/*) echo 'data/(import|coco|images)/|base/' ;;
    data/shapes/*) echo 'data/(shapes|coco|images)/|base/' ;;
    data/batches/*) echo 'data/(batches|coco|images)/|exact/view\.h|nn/batch\.h|base/' ;;
    data/pictures/*) echo 'data/(pictures|batches|coco|images)/|exact/view\.h|base/' ;;
    data/survey/*) echo 'data/(survey|batches|coco|images)/|nn/batch\.h|base/' ;;
    classification/nets/*) echo 'classification/nets/|models/|weights/|nn/|base/' ;;
    classification/data/*) echo 'classification/data/|data/|nn/batch\.h|base/' ;;
    classification/*) echo 'classification/|inference/|lib/|include/|evaluation/|engine/|models/|weights/|data/|comm/|nn/|base/' ;;
    engine/*) echo 'engine/|comm/|models/|weights/|data/(batches|coco|images)/|nn/|base/' ;;
    evaluation/*) echo 'evaluation/|engine/|comm/|models/|data/|nn/|base/' ;;
    training/*) echo 'training/|evaluation/|engine/|comm/|models/|weights/|data/(batches|coco|images|import|survey)/|nn/|base/' ;;
    onnx/*) echo 'onnx/|models/|data/batches/canvas\.h|exact/|nn/|base/' ;;
    page/*) echo 'page/|data/|base/' ;; # they know a run only by its folder
    include/*) echo 'nothing: callers have this file alone' ;;
    lib/*) echo 'lib/|include/|engine/|models/|weights/|data/(batches|coco|images|pictures)/|nn/|base/' ;;
    docs/*) echo 'docs/|base/' ;; # the course's exercises
    examples/*) echo 'nothing: they know <maskrcnn\.h>' ;;
    inference/*) echo 'inference/|include/|lib/(canvases|inspect)[.]h|evaluation/|engine/|comm/|models/|weights/|data/|nn/|base/' ;;
    tools/shapes.c) echo 'classification/data/shapes_classes\.h|data/|base/' ;; # also makes classification sets
    tools/export.c) echo 'onnx/|engine/|models/|weights/|data/|base/' ;;
    tools/doctor.c) echo 'page/|engine/state\.h|models/|data/|nn/|base/' ;; # what weights hold
    tools/*) echo 'tools/|page/|models/|weights/|data/|nn/|base/' ;;
    lab/*) echo '[a-z]+/' ;; # measures anything; nothing includes it
    test/*) echo '[a-z]+/' ;;
    */*) echo 'nothing: this folder has no row in test/lint\.sh' ;;
    *) echo 'training/|inference/|page/|include/|evaluation/|engine/|models/|weights/|data/|comm/|nn/|base/' ;; # the programs
  esac
}

ours='base|classification|comm|cpu|cuda|cudnn|data|engine|evaluation|exact|include|inference|lab|lib|models|nn|onnx|page|test|tools|training|weights'
for file in $(sources); do
  grep -nE "^[[:space:]]*#[[:space:]]*(include|import)[^\"<]*(\"|<($ours)/|[A-Za-z_\\])" "$file" |
    grep -vE "^[0-9]+:#include \"($(allowed "$file"))([^\"./]|[./][^\"./])*\"( |\$)" |
    sed "s|^\([0-9]*\):\(.*\)|$file:\1: \2 runs against the include rule|"
  case $file in
    nn/* | exact/* | cpu/* | models/*) grep -nE '^ *# *include *<(zlib|stb|png|jpeg)' "$file" |
      sed "s|^\([0-9]*\):\(.*\)|$file:\1: \2: only data/, weights/ and base/ use libraries|" ;;
  esac
  grep -nE '^ *# *(el)?if.*(_WIN32|__APPLE__|__linux__|__unix__|__x86_64__|__aarch64__|__ARM)' "$file" |
    sed "s|^\([0-9]*\):\(.*\)|$file:\1: \2: no #ifdef for a platform|"
  case $file in
    base/* | lab/* | test/*) ;;
    *) grep -nE '(^|[^_[:alnum:]])(fsync|fdatasync|link|linkat|renameat|ftruncate|flock) ?\(' "$file" |
      sed "s|^\([0-9]*\):\(.*\)|$file:\1: \2: files are written by base/durable.h|" ;;
  esac
  case $file in *.h | *.cuh)
    grep -q '^#pragma once' "$file" || echo "$file:1: no #pragma once" ;;
  esac
done >>"$report"

# Every reference has its kernels and vice versa; only cuda/machine.cu has no counterpart.
for file in $(sources | grep -E '^(cpu|cuda)/[a-z_]+\.(c|cu)$'); do
  stem=${file#*/} && stem=${stem%.*}
  case $file in cpu/*) counterpart=cuda/$stem.cu ;; *) counterpart=cpu/$stem.c ;; esac
  [ -e "$counterpart" ] || [ "$file" = cuda/machine.cu ] || echo "$file:1: its counterpart $counterpart is missing" >>"$report"
done

# A lesson must be short: with the headers it includes from the lessons' and the convolutions' folders, except wrappers
# of single instructions, less than 150 lines.
wrappers='ptx|hopper|hopper_wgmma'
for file in $(sources | grep '^cuda/conv/lessons/[0-9].*\.cu$'); do
  parts=$(sed -n 's/^#include "\(cuda\/conv\/.*\.cuh\)"$/\1/p' "$file" | grep -vE "/($wrappers)\.cuh")
  lines=$(cat "$file" $parts | wc -l)
  [ "$lines" -lt 150 ] || echo "$file:1: $lines lines with what it includes; a lesson has less than 150" >>"$report"
done

# An exercise is committed with an empty gap. (Tests empty it themselves, so that a reader's answer breaks no test.)
for file in $(sources | grep '^docs/course/exercises/[0-9]'); do
  sed -n '/-- your code --/,/-- end of your code --/{/your code --/!=;}' "$file" |
    sed -n "1s|.*|$file:&: an exercise is delivered unsolved|p" >>"$report"
done

flags='-std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -fopenmp -Wall -Wextra -Werror -fsyntax-only -x c'
for header in $(sources | grep '\.h$'); do
  ${CC:-gcc} $flags -include "$header" /dev/null 2>>"$report" || echo "$header:1: does not compile alone" >>"$report"
done

python3 "$here/lint.py" $(sources) $(pages) >>"$report" || echo "$here/lint.py:1: did not run" >>"$report"

if command -v clang-format >/dev/null; then
  sources | xargs clang-format --dry-run 2>&1 |
    sed -nE 's|^([^ :]+):[0-9]+:[0-9]+: warning: .*|\1:1: not formatted; clang-format -i \1|p' | sort -u >>"$report"
else
  echo 'lint: clang-format is not installed; formatting was not checked' >&2
fi

cat "$report"
[ ! -s "$report" ]
