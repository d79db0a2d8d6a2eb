#!/bin/sh
# Tests the Makefile: what each target builds, and what is rebuilt after flags, the list of files or a header have
# changed. Compilers, nvidia-smi and nproc are stubs that record how they are called, so that it takes seconds and needs
# neither the CUDA toolkit nor a GPU. Prints each failure, and exits 1 if there is any. Run from the root of the tree.
set -eu
unset MAKEFLAGS MAKELEVEL B CC CFLAGS CUDA ARCH NVCC MARCH STB RUNGS WERROR
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
find . -path ./build -prune -o -path ./.git -prune -o -type f \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.cu' \
  -o -name '*.cuh' -o -name '*.map' -o -name '*.sh' -o -name '*.css' -o -name '*.js' -o -name Makefile -o -name LICENSE \
  -o -name NOTICE \) -print0 | xargs -0 cp --parents -t "$tree"
cd "$tree"

# ---- stubs ---- -----------------------------------------------------------------------------------------------------

mkdir bin
PATH=$tree/bin:$PATH
# An object holds the command that made it; a program is a script that does nothing. Dependencies: the file's includes.
cat >bin/stub-cc <<'END'
#!/bin/sh
[ "$1" != --list-gpu-arch ] || exec printf 'compute_%s\n' 75 80 89 90 120
[ "$1" != --version ] || exec echo "Cuda compilation tools, release ${TOOLKIT-13.0}, V13.0.88"
before= out= source= deps=
for word; do
  case $before in -o) out=$word ;; -MF) deps=$word ;; esac
  case $word in *.c | *.cu) source=$word ;; esac
  before=$word
done
printf '#!/bin/sh\n: %s jobs%s\n' "$*" "$MAKEFLAGS" >"$out"
chmod +x "$out"
[ -n "$source" ] || exit 0
headers=$(sed -n 's/^#include "\(.*\)".*/\1/p' "$source")
{
  echo "$out: $source" $headers
  [ -z "$headers" ] || printf '%s:\n' $headers
} >"${deps:-${out%.o}.d}"
END
for name in nvcc gcc g++ clang ld; do ln -s stub-cc bin/$name; done
printf '#!/bin/sh\n' >bin/objcopy
chmod +x bin/stub-cc bin/objcopy
gpu() { # gpu [COMPUTE_CAPABILITY…]: the GPUs that the nvidia-smi stub reports
  printf '#!/bin/sh\n[ -z "%s" ] || printf "%%s\\n" %s\n' "$*" "$*" >bin/nvidia-smi
  chmod +x bin/nvidia-smi
}
printf '#!/bin/sh\necho 3\n' >bin/nproc
chmod +x bin/nproc
gpu
echo 'echo "P=$P"' >tools/demo.sh

# ---- checks ---------------------------------------------------------------------------------------------------------

wrong=0
complain() {
  echo "test/build.sh: $*"
  wrong=1
}
build() { # runs make; its output is in `said`, the stubs' calls in `how`
  how="make $*"
  make "$@" >said 2>&1 || {
    tail -n 3 said
    complain "$how fails"
  }
}
count() { grep -cE "$1" said || true; }
makes() { # command (cc, nvcc, link), count
  n=$(count "^$1 ")
  [ "$n" = "$2" ] || complain "$how: $1 $n times, expected $2"
}
holds() { grep -q -e "$2" "$1" || complain "$how: no $2 in $1"; }
lacks() { ! grep -q -e "$2" "$1" || complain "$how: $2 in $1"; }
nothing() {
  makes cc 0
  makes nvcc 0
  makes link 0
}

build
kernels=$(ls cuda/*.cu cuda/*/*.cu cuda/conv/lessons/*.cu cudnn/*.cu lab/*.cu | wc -l)
sources=$(count '^cc ')
programs=$(count '^link ')
[ "$sources" -gt 50 ] && [ "$programs" -gt 10 ] || complain "$how: cc $sources times, link $programs times"
makes nvcc "$kernels"
holds train libkernels.a
holds train 'jobs.*-j3'
for program in doctor inspect cocoeval report shapes machine; do lacks build/$program libkernels.a; done
for program in machine doctor; do holds build/$program cuda/machine.cu.o; done
lacks build/cocoeval '\.cu\.o'
holds build/cuda/nms.cu.o arch=compute_90a,code=sm_90a
holds build/cuda/nms.cu.o arch=compute_90,code=compute_90
holds build/cuda/nms.cu.o fmad=false
lacks build/cuda/norm.cu.o fmad=false
lacks said test/
build
nothing
build -j1 CFLAGS=-O1
makes cc "$sources"
makes nvcc 0
holds train 'jobs.*-j1'
build CC=clang CFLAGS=-O1
makes cc "$sources"
build CC=clang CFLAGS=-O1
nothing
build
makes cc "$sources"

# CUDA= only relinks programs, and ARCH= only recompiles kernels.
build CUDA=0
makes cc 0 # nn/device.o already exists, for programs without kernels
makes nvcc 0
lacks train libkernels.a
build
makes cc 0
makes nvcc 0
makes link "$programs"
holds train libkernels.a
build ARCH='80 120'
makes cc 0
makes nvcc "$kernels"
holds build/cuda/nms.cu.o arch=compute_120,code=compute_120
build ARCH='80 120'
nothing
refuses() { # the expected message, then make's arguments
  says=$1
  shift
  how="make $*"
  ! make "$@" >said 2>&1 || complain "$how is accepted"
  holds said "$says"
}
refuses 'ARCH=75: the kernels need compute capability 8.0' ARCH=75
refuses 'ARCH=sm_90: write .* ARCH=90' ARCH=sm_90
refuses 'ARCH=9.0: write .* ARCH=90' ARCH=9.0
refuses 'ARCH=101: CUDA 13.0 knows only 75 80 89 90 120; choose' ARCH=101
refuses 'CUDA=on: write CUDA=1 or CUDA=0' CUDA=on
refuses 'NVCC=nosuch: there is no such command' NVCC=nosuch
rm -f build/toolkit.ok
TOOLKIT=12.0
export TOOLKIT
refuses 'CUDA 12.0 of .* is too old: install CUDA 12.1' build/cuda/nms.cu.o ARCH=90
unset TOOLKIT
build ARCH='80 120'

# Without a GPU, a demo and the tests compile no kernel; a ./train with kernels is kept.
build ARCH='80 120' demo
makes cc 0 # nn/device.o already exists from CUDA=0
makes nvcc 0
makes link 3
holds train libkernels.a
lacks build/host/train libkernels.a
holds said P=build/host
build demo
nothing
build ARCH='80 120' test
makes nvcc 0
holds build/host/test_all test/harness/main.o
lacks build/host/test_all libkernels.a
build ARCH='80 120'
nothing
build clean
[ ! -e build ] || complain "make clean leaves build"
build demo
makes nvcc 0
makes link 3
lacks said test/
lacks said "bench_gemm\\|soak"
build clean test
makes nvcc 0
lacks said test-gpu
build clean bench
makes nvcc 0
makes link 1

# With a GPU the tests are the same, and say what they leave out.
gpu 9.0
build clean test
makes nvcc 0
lacks build/host/test_all libkernels.a
holds said 'left to make test-gpu'
build CUDA=1 test
makes nvcc "$(ls cuda/*.cu cuda/*/*.cu cuda/conv/lessons/*.cu cudnn/*.cu | wc -l)"
holds build/test_all libkernels.a
lacks said 'left to make test-gpu'
build test-gpu
nothing
holds said 'that make test leaves out'

# With a GPU, the build is for it, unless nvcc does not know it or the kernels do not support it.
gpu 12.0
build clean demo
holds said P=build$
holds build/train libkernels.a
holds build/cuda/nms.cu.o arch=compute_120,code=sm_120
lacks build/cuda/nms.cu.o sm_80
lacks said "bench_gemm\\|soak"
for other in 13.0 7.5 '"NVIDIA-SMI has failed"'; do
  gpu "$other"
  build build/cuda/nms.cu.o
  holds build/cuda/nms.cu.o 'sm_80.*sm_89.*sm_90a.*compute_90,code=compute_90'
done
gpu

# Files are added, removed and changed.
build
members=$(ar t build/objects.a | wc -l)
touch base/new.c cuda/new.cu
build
makes cc 1
makes nvcc 1
[ "$(ar t build/objects.a | wc -l)" = $((members + 1)) ] || complain "base/new.c: not in the library"
rm base/new.c cuda/new.cu
build
makes cc 0
makes nvcc 0
makes link "$programs"
! ar t build/objects.a | grep -qx new.o || complain "base/new.c: removed, and still in the library"
! ar t build/libkernels.a | grep -qx new.cu.o || complain "cuda/new.cu: removed, and still in the library"
# A rung of the ladder is one file, here or in the folder RUNGS; its name determines its position.
mkdir mine
refuses 'RUNGS=.*/mine: no file there defines a rung' RUNGS="$tree/mine"
cp cuda/conv/template/00_mine.cu mine/mine.cu
refuses 'mine/mine.cu: call it NN_mine.cu' RUNGS="$tree/mine"
mv mine/mine.cu mine/06_other.cu
refuses 'mine/06_other.cu: by its name it defines: .* rung_other = {"other"' RUNGS="$tree/mine"
sed s/mine/mma/g cuda/conv/template/00_mine.cu >mine/06_mma.cu
rm mine/06_other.cu
refuses 'two files define rung_mma' RUNGS="$tree/mine"
rm mine/06_mma.cu
cp cuda/conv/template/00_mine.cu mine
build RUNGS="$tree/mine"
makes cc 0
makes nvcc 1
makes link "$programs"
holds build/rungs.c '{&rung_cudnn, &rung_mine, &rung_naive, &rung_im2col, &rung_wmma, &rung_mma, &rung_wgmma, 0}'
ar t build/libkernels.a | grep -q 00_mine || complain "$how: the rung is not in the library"
build RUNGS="$tree/mine"
nothing
mv mine/00_mine.cu cuda/conv/06_mine.cu
build
makes cc 0
makes nvcc 1
holds build/rungs.c '{&rung_cudnn, &rung_naive, &rung_im2col, &rung_wmma, &rung_mma, &rung_wgmma, &rung_mine, 0}'
rm cuda/conv/06_mine.cu
build
makes nvcc 0
makes link "$programs"
lacks build/rungs.c mine
refuses 'RUNGS=mine: rungs are compiled by nvcc' RUNGS=mine CUDA=0
# Without nvcc no kernel is compiled, and make says why.
for none in CUDA=0 NVCC=; do
  rm -f build/cuda/nms.cu.o
  refuses 'cuda/nms.cu: only nvcc compiles it, and' $none build/cuda/nms.cu.o
done
build
# Install and uninstall, with DESTDIR and PREFIX.
build install DESTDIR="$tree/root" PREFIX=/opt/x
version=$(sed -n 's/^#define MASKRCNN_VERSION_M[AJINOR]* //p' include/maskrcnn.h | paste -sd.)
for file in include/maskrcnn.h "lib/libmaskrcnn.so.$version" "lib/libmaskrcnn.so.${version%%.*}" lib/libmaskrcnn.so lib/libmaskrcnn.a \
  bin/maskrcnn libexec/maskrcnn/train libexec/maskrcnn/report share/doc/maskrcnn/LICENSE; do
  [ -s "root/opt/x/$file" ] || complain "$how: no $file"
done
holds root/opt/x/lib/pkgconfig/maskrcnn.pc '^prefix=/opt/x$'
holds root/opt/x/lib/pkgconfig/maskrcnn.pc '^libdir=${prefix}/lib$'
holds root/opt/x/lib/pkgconfig/maskrcnn.pc '^Libs.private: -lz .*-lcudart_static'
build install CUDA=0 DESTDIR="$tree/root" PREFIX=/opt/x
lacks root/opt/x/lib/pkgconfig/maskrcnn.pc cudart
build uninstall DESTDIR="$tree/root" PREFIX=/opt/x
[ -z "$(find root ! -type d)" ] || complain "$how leaves $(find root ! -type d)"
build install CUDA=0 DESTDIR="$tree/root" PREFIX="/opt/a b"
holds "root/opt/a b/lib/pkgconfig/maskrcnn.pc" '^prefix=/opt/a b$'
refuses 'PREFIX=here: give a path from the root' install PREFIX=here
# A user other than the owner of the build folder installs the existing files and leaves none of his own in it.
if [ "$(id -u)" = 0 ]; then
  chown -R 65534 .
  touch base/error.c
  build install NVCC= DESTDIR=/ PREFIX="$tree/root/other"
  nothing
  [ -x root/other/bin/maskrcnn ] || complain "$how: no bin/maskrcnn"
  [ -z "$(find build -user 0)" ] || complain "$how leaves files of root: $(find build -user 0 | head -n 3)"
  rm -f build/doctor
  refuses 'nothing is built in build for install (build/doctor is missing): run make as its owner' install PREFIX=/opt/x
  chown -R 0 .
fi
build

# Only the default build folder's programs are copied into the tree, which may not be writable.
rm train infer
build B=elsewhere
[ ! -e train ] && [ -x elsewhere/train ] || complain "$how: train lies in $(find . -name train)"
rm -rf elsewhere
build
# Warnings are errors only with WERROR=1.
lacks build/base/error.o '-Werror'
build WERROR=1 build/base/error.o build/cuda/nms.cu.o
holds build/base/error.o '-Werror'
build
# With -flto the archive's one object is made by the compiler.
build CFLAGS=-flto build/libmaskrcnn.a
holds build/libmaskrcnn.a '-flto .*-r -nostdlib -flinker-output=nolto-rel'
build
# The commit is this tree's, or none.
if command -v git >/dev/null; then
  git init -q . && git -c user.email=a@b -c user.name=a commit -q --allow-empty -m other
  mkdir below && cp --parents -t below $(find . -path ./build -prune -o -path ./below -prune -o -path ./bin -prune -o \
    -path ./root -prune -o -type f \( -name '*.[ch]' -o -name '*.sh' -o -name Makefile -o -name '*.cu' \) -print)
  how='make build/commit.c in another repository'
  make -C below CUDA=0 build/commit.c >said 2>&1 || complain "$how fails"
  holds below/build/commit.c 'build_commit\[\] = "unknown"'
  make CUDA=0 build/commit.c >said 2>&1
  lacks build/commit.c unknown
  rm -rf .git below
fi
build

# The number of an exercise is not a target.
build exercise 17
holds said '^exercise 17: docs/course/exercises/17_'
holds build/exercises/17 'docs/course/exercises/17_[a-z]*[.]c docs/course/exercises/17_[a-z]*_check[.]c'
nothing

touch nn/timing.h
build
[ "$(count '^cc ')" -gt 0 ] && [ "$(count '^cc ')" -lt 20 ] || complain "nn/timing.h: cc $(count '^cc ') times"
makes nvcc "$(grep -l '"nn/timing.h"' cuda/*.cu cuda/*/*.cu cudnn/*.cu lab/*.cu | wc -l)"
exit $wrong
