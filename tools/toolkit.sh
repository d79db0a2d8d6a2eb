#!/bin/sh
# Finds and checks the CUDA toolkit that nvcc belongs to, for the Makefile.
#   sh tools/toolkit.sh command NVCC…     the command to call; nothing where there is none
#   sh tools/toolkit.sh libraries NVCC…   the folder of libcudart_static.a; nothing where the toolkit does not say
#   sh tools/toolkit.sh check NVCC…       exits 2 with one line where it cannot compile the kernels. ARCH: the compute
#                                         capabilities; B: the build folder, which remembers that it can.
set -eu
what=$1
shift

# nvcc looks for its headers next to its own path, so a link to it is resolved. (Except a link to ccache or another
# wrapper.)
follow() {
  path=$(command -v "$1") || return 1
  end=$path
  while [ -L "$end" ]; do
    to=$(readlink "$end")
    case $to in /*) end=$to ;; *) end=${end%/*}/$to ;; esac
  done
  case $end in */nvcc) echo "$end" ;; *) echo "$path" ;; esac
}

# The same with the wrapper before it, as in "ccache nvcc".
print_command() {
  before=
  while [ $# -gt 1 ]; do
    before="$before$1 "
    shift
  done
  nvcc=$(follow "$1") && { [ -z "$before" ] || command -v ${before%% *} >/dev/null; } && echo "$before$nvcc"
}

print_libraries() {
  "$@" --dryrun -x cu -c /dev/null 2>&1 | sed -n 's|^#\$ TOP=\(.*\)|\1/lib64|p;s/^#\$ LIBRARIES=//p' | tr -d '"' |
    tr ' ' '\n' | sed 's|^-L||;s|/bin/\.\./|/|' | while read -r folder; do
    [ ! -e "$folder/libcudart_static.a" ] || { echo "$folder" && break; }
  done
}

stop() {
  echo "make: $*" >&2
  exit 2
}

check() {
  stamp=$B/toolkit.ok
  [ "$(cat "$stamp" 2>/dev/null)" = "$* $ARCH" ] && return
  version=$("$@" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
  [ -n "$version" ] || stop "$*: does not say its version; write NVCC=/path/to/nvcc of a CUDA toolkit, or CUDA=0"
  major=${version%.*} minor=${version#*.}
  [ "$major" -gt 12 ] || { [ "$major" = 12 ] && [ "$minor" -ge 1 ]; } || stop "CUDA $version of $* is too old: install" \
    "CUDA 12.1 or later and write NVCC=/path/to/its/nvcc, or build for the CPU with CUDA=0"
  known=$("$@" --list-gpu-arch 2>/dev/null | sed 's/compute_//' | paste -sd ' ')
  for arch in $ARCH; do
    case " $known " in *" ${arch%[af]} "*) ;; *) stop "ARCH=$arch: CUDA $version knows only $known; choose among them, or" \
      "install a newer CUDA" ;; esac
  done
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  echo '#include <cuda_runtime.h>' >"$folder/probe.cu"
  "$@" -c "$folder/probe.cu" -o "$folder/probe.o" >"$folder/said" 2>&1 || stop "$* compiles no program; it says:" \
    "$(grep -m 1 -iE 'error|fatal|unsupported|not found' "$folder/said" || head -n 1 "$folder/said")"
  mkdir -p "$B"
  echo "$* $ARCH" >"$stamp"
}

case $what in
  command) print_command "$@" || true ;;
  libraries) print_libraries "$@" ;;
  check) check "$@" ;;
esac
