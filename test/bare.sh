#!/bin/sh
# Installs in a bare Debian root that mmdebstrap makes, and runs what is installed there. As root; downloads packages.
#
#   sh test/bare.sh wheel build/wheels/FILE.whl   # pip install in a virtual environment; there is no OpenMP
#   sh test/bare.sh docker                        # the steps of docker/cpu.Dockerfile, without Docker
#   sh test/bare.sh cpu                           # build/ on CPUs of x86-64-v1, -v2 and -v3, by qemu-x86_64
#
# The first two train and evaluate a small model. FOLDER (default: a new one in /tmp) keeps the roots, to look into.
# SUITE (bookworm) and MIRROR are mmdebstrap's: of the oldest glibc that the wheel names,
# SUITE=jammy MIRROR="deb [trusted=yes] http://archive.ubuntu.com/ubuntu jammy main universe"
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${FOLDER:-$(mktemp -d)}
mkdir -p "$folder"

root() { # NAME PACKAGES
  [ -d "$folder/$1" ] || mmdebstrap --quiet --variant=minbase ${2:+--include="$2"} ${SUITE:-bookworm} "$folder/$1" \
    ${MIRROR:+"$MIRROR"}
}
inside() { # NAME COMMAND
  mount -t proc proc "$folder/$1/proc"
  status=0
  chroot "$folder/$1" sh -ec "$2" || status=$?
  umount "$folder/$1/proc"
  return $status
}
# README's two commands: training and evaluation, of images that build/shapes makes here.
make_set() { "$here/build/shapes" --out "$folder/$1/work/set" --train 40 --val 10; }
use='maskrcnn train --data set --model tiny --iters 10 --batch 2 --device cpu --out run &&
  maskrcnn infer --weights run/model.safetensors --data set --split val --eval --out scores'

case ${1-} in
wheel)
  root wheel python3-venv
  mkdir -p "$folder/wheel/work"
  cp "$2" "$here/test/lib/package.py" "$here/examples/detect.py" "$folder/wheel/work"
  # numpy is fetched here, where certificates are.
  version=$(inside wheel 'python3 --version' | sed 's/Python //')
  python3 -m pip download -q --python-version "$version" --only-binary=:all: -d "$folder/wheel/work" numpy
  make_set wheel
  inside wheel "cd /work && python3 -m venv venv && venv/bin/pip install -q --no-index --find-links . $(basename "$2")
    if find /usr/lib -name 'lib*omp.so*' | grep -E 'lib[gi]?omp[.]so'; then exit 1; fi
    PATH=/work/venv/bin:\$PATH && $use
    python detect.py run/model.safetensors set/val/000001.png found.png cpu && ls -l found.png"
  ;;
docker)
  # RUN lines of a stage, and what COPY does between them, as a shell script.
  steps() { # STAGE (1 or 2)
    sed -e ':a' -e '/\\$/{N' -e 's/\\\n//' -e 'ba' -e '}' "$here/docker/cpu.Dockerfile" |
      awk -v stage="$1" '/^FROM/ {n++} n == stage && /^RUN/ {sub(/^RUN /, ""); print}'
  }
  root build
  root run
  for r in build run; do cp /etc/resolv.conf "$folder/$r/etc/resolv.conf"; done
  mkdir -p "$folder/build/src" "$folder/run/work"
  git -C "$here" archive HEAD | tar -x -C "$folder/build/src"
  inside build "$(steps 1)"
  cp -a "$folder/build/usr/local" "$folder/run/usr"
  make_set run
  inside run "$(steps 2)
    cd /work && $use"
  ;;
cpu)
  mkdir -p "$folder/cpu/work"
  make_set cpu
  cd "$folder/cpu/work"
  for cpu in core2duo Nehalem Haswell; do
    echo "$cpu"
    status=0
    qemu-x86_64 -cpu $cpu "$here/build/train" --data set --model tiny --iters 1 --batch 1 --eval-every never \
      --device cpu --out $cpu >said 2>&1 || status=$?
    grep -E 'too old|x86-64-v|^done' said
    [ $status = $([ $cpu = core2duo ] && echo 1 || echo 0) ]
  done
  status=0
  qemu-x86_64 -cpu core2duo "$here/build/example_c" none.safetensors set/val/000001.png out.png cpu >said 2>&1 ||
    status=$?
  grep 'too old' said
  [ $status = 1 ]
  ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
echo "test/bare.sh $1: all steps succeeded; the roots are in $folder"
