#!/bin/sh
# Sees to what the build needs: a C compiler with OpenMP, zlib and stb_image. Says nothing when all is there; as root on
# Debian it installs what is missing, elsewhere it names the command and exits 2. `make` calls it first, with
#   CC the compiler, STB the folder that holds stb/stb_image.h, B the build folder, which remembers that all was found.
set -eu
CC=${CC:-gcc} STB=${STB:-/usr/include} B=${B:-build}
stamp=$B/setup.ok
[ "$(cat "$stamp" 2>/dev/null)" = "$CC $STB" ] && exit 0

mkdir -p "$B"
probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
builds() { # source, flags
  printf '%s\nint main(void) { return 0; }\n' "$1" | $CC -std=c11 -isystem "$STB" -x c - -o "$probe" $2 2>/dev/null
}
compiler=build-essential openmp=build-essential # gcc brings its own OpenMP
case $CC in *clang*) compiler=clang openmp=libomp-dev ;; esac

missing_packages() {
  builds '' '' || echo "$compiler"
  builds '#include <zlib.h>' -lz || echo zlib1g-dev
  builds '#include <stb/stb_image.h>' '' || echo libstb-dev
  builds '#include <omp.h>' -fopenmp || echo "$openmp"
}

missing=$(missing_packages | sort -u | tr '\n' ' ')
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing ${missing% }" >&2
  export DEBIAN_FRONTEND=noninteractive
  # Package lists that are there save the minute that fetching them takes; they may be absent or stale.
  apt-get install -y -qq $missing >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq $missing; } >&2 || true
  missing=$(missing_packages | sort -u | tr '\n' ' ')
fi
if [ -n "$missing" ]; then
  echo "setup: $CC does not build a program with OpenMP, zlib and stb_image; on Debian and Ubuntu this helps:" >&2
  echo "  sudo apt-get install -y ${missing% }" >&2
  exit 2
fi
echo "$CC $STB" >"$stamp"
