#!/bin/sh
# Builds this tree with a CUDA toolkit: plans/stack.plan calls it. From the root of the tree:
#   sh plans/toolkit.sh VERSION FOLDER
# makes FOLDER/build/train and FOLDER/build/infer for the GPUs of this machine. The toolkit is the first of these:
#   the folder in TOOLKITS, such as TOOLKITS="12.4=/opt/cuda-12.4 12.8=/opt/cuda-12.8"
#   /usr/local/cuda-VERSION, or /usr/local/cuda if that is its version
#   from 13.0 on NVIDIA's packages for pip, in FOLDER/toolkit; those for 12.x have no nvcc
#   packages of conda-forge, in FOLDER/toolkit, installed by conda, mamba or micromamba
# MAKEFLAGS, ARCH and CC are passed to make. A second call builds what has changed. With BUILD= it builds nothing and
# expects programs that were built elsewhere, for a machine with a GPU and no toolkit.
set -eu
version=${1:?VERSION, as 12.8} folder=${2:?FOLDER}
case $version in
  [0-9]*.[0-9]*) ;;
  *) echo "toolkit.sh: $version is no version of CUDA: give one as 12.8" >&2; exit 2 ;;
esac
if [ -z "${BUILD-yes}" ]; then
  for program in train infer; do
    [ -x "$folder/build/$program" ] || { echo "toolkit.sh: BUILD= and no $folder/build/$program" >&2; exit 2; }
  done
  exit 0
fi
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
own=$folder/toolkit

# release NVCC: its version, as 12.8
release() { "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p'; }

# installed: the folder of an installed toolkit of this version
installed() {
  for named in ${TOOLKITS-}; do
    [ "${named%%=*}" != "$version" ] || echo "${named#*=}"
  done
  for place in "/usr/local/cuda-$version" /usr/local/cuda "$own/nvidia/cu13" "$own"; do
    [ "$(release "$place/bin/nvcc")" != "$version" ] || echo "$place"
  done
}

by_pip() {
  python3 -m pip install -q --target "$own" "cuda-toolkit[nvcc,cccl,cudart]==$version.*" >&2 || return 1
  [ -e "$own/nvidia/cu13/lib64" ] || ln -s lib "$own/nvidia/cu13/lib64"
}

by_conda() {
  for conda in micromamba mamba conda; do
    command -v $conda >/dev/null || continue
    $conda create -q -y -p "$own" -c conda-forge "cuda-version=$version" cuda-nvcc cuda-cudart-dev \
      cuda-cudart-static cuda-cccl >&2 || return 1
    [ -e "$own/lib64" ] || ln -s lib "$own/lib64"
    return 0
  done
  echo "toolkit.sh: no CUDA $version here, and no conda, mamba or micromamba to get it by: install it, or name its" \
    "folder, as TOOLKITS=\"$version=/opt/cuda-$version\"" >&2
  return 1
}

cuda=$(installed | head -n 1)
if [ -z "$cuda" ]; then
  case $version in
    [0-9].* | 1[0-2].*) by_conda ;;
    *) by_pip ;;
  esac
  cuda=$(installed | head -n 1)
fi
if [ "$(release "$cuda/bin/nvcc")" != "$version" ]; then
  echo "toolkit.sh: $cuda/bin/nvcc is of CUDA $(release "$cuda/bin/nvcc"), not $version: give another folder in" \
    "TOOLKITS" >&2
  exit 1
fi
echo "CUDA $version: $cuda" >&2
make NVCC="$cuda/bin/nvcc" B="$folder/build" "$folder/build/train" "$folder/build/infer" >"$folder/build.log" 2>&1 || {
  tail -n 5 "$folder/build.log" >&2
  echo "toolkit.sh: CUDA $version does not build this tree; $folder/build.log has all that was said" >&2
  exit 1
}
