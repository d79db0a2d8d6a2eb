#!/bin/sh
# Checks for what the build needs: a C compiler with OpenMP, zlib and stb_image. Prints nothing if all is there; as root
# on Debian and Ubuntu it installs what is missing, otherwise it prints one line with what to install and exits 2.
# `make` calls it first, with CC the compiler, STB the folder that holds stb/stb_image.h, B the build folder, where the
# result is cached.
set -eu
CC=${CC:-gcc} STB=${STB:-/usr/include} B=${B:-build}
stamp=$B/setup.ok
[ "$(cat "$stamp" 2>/dev/null)" = "$CC $STB" ] && exit 0

stop() {
  echo "setup: $*" >&2
  exit 2
}
mkdir -p "$B" 2>/dev/null && [ -w "$B" ] || stop "cannot write to $B; give another folder, as in make B=/tmp/build"
probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
builds() { # source, flags
  printf '%s\nint main(void) { return 0; }\n' "$1" | $CC -std=c11 -isystem "$STB" -x c - -o "$probe" $2 2>/dev/null
}

compiler=build-essential openmp=build-essential rpms=gcc # gcc brings its own OpenMP
case $CC in
  *clang-[0-9]*) compiler=clang-${CC##*clang-} openmp=libomp-${CC##*clang-}-dev rpms="clang libomp-devel" ;;
  *gcc-[0-9]*) compiler=gcc-${CC##*gcc-} openmp=gcc-${CC##*gcc-} ;;
  *clang*) compiler=clang openmp=libomp-dev rpms="clang libomp-devel" ;;
esac
# Each line: what is missing, its package in Debian and Ubuntu, in Fedora and RHEL.
missing() {
  builds '' '' || { echo "working compiler|$compiler|${rpms%% *}" && return; }
  builds '#include <zlib.h>' -lz || echo "zlib.h|zlib1g-dev|zlib-devel"
  builds '#include <stb/stb_image.h>' '' || echo "stb/stb_image.h|libstb-dev|stb_image-devel"
  builds '#include <omp.h>' -fopenmp || echo "OpenMP|$openmp|${rpms##* }"
}
column() { echo "$lacks" | cut -d '|' -f "$1" | paste -sd "$2"; }

lacks=$(missing)
if [ -n "$lacks" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  packages=$(column 2 " ")
  echo "setup: installing $packages" >&2
  export DEBIAN_FRONTEND=noninteractive
  # Existing package lists save the minute it takes to fetch them; they may be missing or stale. Nothing is removed to
  # make room, as one version of libomp-dev would remove another.
  apt-get install -y -qq --no-remove $packages >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq --no-remove $packages; } >&2 || true
  lacks=$(missing)
fi
if [ -n "$lacks" ]; then
  case $lacks in *stb_image*) where="; or write STB=DIR, DIR/stb/stb_image.h from https://github.com/nothings/stb" ;; esac
  stop "$CC: no $(column 1 , | sed 's/,/, /g'): sudo apt-get install -y $(column 2 " ") (Fedora, RHEL: dnf install" \
    "$(column 3 " "))${where-}"
fi

# The version numbers of other compilers are not known here: they may try.
set -- $(echo __clang_major__ __GNUC__ | $CC -E -P -x c - 2>/dev/null | tail -n 1)
case ${1-} in
  __clang_major__) name=gcc version=${2-} least=11 ;;
  *) name=clang version=${1-} least=13 ;;
esac
case $version in
  '' | *[!0-9]*) ;;
  *) [ "$version" -ge "$least" ] || stop "$CC is $name $version, too old: install gcc 11 or clang 13 or later, and" \
    "write make CC=gcc-11" ;;
esac
echo "$CC $STB" >"$stamp"
