#!/bin/sh
# Unpacks the CUDA toolkit of Debian 13 (12.4) into a folder without installing it, for plans/stack.plan. It needs
# apt-get and dpkg-deb, no root, and downloads a gigabyte:
#   sh plans/debian_cuda.sh /opt/cuda-12.4
#   TOOLKITS="12.4=/opt/cuda-12.4" python3 lab/study.py plans/stack.plan --only toolkit=12.4
# nvcc 12.4 accepts gcc up to 13. SUITE selects another release of Debian.
set -eu
folder=${1:?FOLDER} suite=${SUITE:-trixie}
[ ! -e "$folder" ] || { echo "$folder is there already" >&2; exit 2; }
mkdir -p "$folder.part/lists/partial" "$folder.part/debs" "$folder.part/root"
part=$(cd "$folder.part" && pwd)
# Trusted because of https: this machine may have no keys of that Debian release.
echo "deb [trusted=yes] https://deb.debian.org/debian $suite main non-free" >"$part/sources.list"
get() {
  apt-get -q -o Dir::State::Lists="$part/lists" -o Dir::Etc::sourcelist="$part/sources.list" \
    -o Dir::Etc::sourceparts=- "$@" >&2
}
get update
(cd "$part/debs" && get download nvidia-cuda-toolkit nvidia-cuda-dev libcu++-dev libcub-dev libthrust-dev)
for deb in "$part"/debs/*.deb; do
  dpkg-deb -x "$deb" "$part/root"
  rm "$deb"
done

usr=$part/root/usr own=$part/root/usr/lib/nvidia-cuda-toolkit to=$part/toolkit
mkdir -p "$to/bin/crt" "$to/lib64" "$to/nvvm/bin" "$to/nvvm/libdevice"
cp "$own/bin/nvcc" "$to/bin"
for tool in ptxas fatbinary cudafe++ bin2c nvlink cuobjdump; do cp "$usr/bin/$tool" "$to/bin"; done
cp "$own"/bin/crt/*.stub "$to/bin/crt"
cp "$own/bin/cicc" "$to/nvvm/bin"
cp "$own"/libdevice/*.bc "$to/nvvm/libdevice"
cp "$usr"/lib/x86_64-linux-gnu/libcudart_static.a "$usr"/lib/x86_64-linux-gnu/libcudadevrt.a "$to/lib64"
mv "$usr/include" "$to/include"
# NVIDIA's layout, in which nvcc finds its parts.
cat >"$to/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
mv "$to" "$folder"
rm -r "$part"
"$folder/bin/nvcc" --version | tail -n 2
