# make · make demo · make demo-classes · make test · make test-long · make test-gpu · make test-ptx · make test-sanitizer ·
# make test-asan · make test-tsan · make fuzz · make lint · make tables · make test-build · make bench · make exercise N ·
# make install · make uninstall · make wheel
#
# Variables: PREFIX and DESTDIR (where to install), CC, CXX (for an example), CFLAGS, MARCH (of GCC; native: for this CPU
# alone), STB (where stb/stb_image.h is), B (build folder; ./train and ./infer are copies of build/train and
# build/infer), CUDA (0 builds without GPU support), NVCC, ARCH (GPU architectures, as in ARCH="80 90a"), RUNGS (a folder
# with rungs of your own, cuda/conv/README.md), WERROR (1: warnings are errors, as in .ci/run), JOBS (tests that run at
# the same time). After a change of value, what depends on it is rebuilt.
ifneq ($(filter 3.%,$(MAKE_VERSION)),)
$(error GNU make $(MAKE_VERSION) is too old: install GNU make 4.0 or later)
endif
ifeq ($(origin CC),default)
CC := gcc
endif
# For all x86-64 since 2011, with the ops of cpu/ also for later levels, one of which a program chooses when it opens the
# CPU (cpu/device.c). With another MARCH, and on other architectures, there is one kind of ops.
x86 := $(filter x86_64,$(shell uname -m))
MARCH ?= $(if $(x86),x86-64-v2,native)
levels := $(if $(filter x86-64-v2,$(MARCH)),3 4)
levels64 := $(filter 3,$(levels)) # gradient checks only
B ?= build
CFLAGS ?= -O3 -g
STB ?= /usr/include
PREFIX ?= /usr/local

# Run as many jobs as there are cores, unless -j is given. A nested make shares the jobs of the outer one.
ifeq ($(MAKELEVEL)$(shell echo $$MAKEFLAGS),0)
jobs := $(shell nproc)
MAKEFLAGS += -j$(jobs)
endif
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL: # so that `make clean all` works in that order
endif

warnings := -Wall -Wextra $(if $(filter 1,$(WERROR)),-Werror)
# Contraction into fused multiply-add would make box arithmetic depend on the compiler; only the GEMM enables it.
flags := -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -isystem $(STB) -march=$(MARCH) -ffp-contract=off \
  -fno-math-errno -fopenmp -pthread $(warnings) -MMD -MP $(CFLAGS)
# The library is linked from the same objects. Calls to functions that it does not export bind directly, as in a
# program.
library_flags := -fPIC -fvisibility=hidden
libs := -lz -lm -ldl

comma := ,

# ---- the GPU: docs/gpus.md ------------------------------------------------------------------------------------------

NVCC := $(or $(NVCC),$(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null))
CUDA ?= $(if $(NVCC),1,0)
$(if $(filter 0 1,$(CUDA)),,$(error CUDA=$(CUDA): write CUDA=1 or CUDA=0))
ifeq ($(CUDA),1)
nvcc := $(if $(NVCC),$(shell sh tools/toolkit.sh command $(NVCC)))
$(if $(nvcc),,$(error $(if $(NVCC),NVCC=$(NVCC): there is no such command,CUDA=1$(comma) but there is no nvcc): \
  install the CUDA toolkit, write NVCC=/path/to/nvcc, or use CUDA=0))
# Compute capabilities of this machine's GPUs: 90 for 9.0.
gpus := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep '^[0-9]*[.][0-9]$$' | \
  tr -d . | sort -u)
# Build for these GPUs, if they can run the kernels and nvcc knows them; otherwise for the generations before Blackwell.
too_old := 5% 6% 7%
known := $(if $(gpus),$(patsubst compute_%,%,$(shell $(nvcc) --list-gpu-arch)))
ifneq ($(filter wheel,$(MAKECMDGOALS)),)
ARCH ?= 80 89 90
endif
ARCH ?= $(or $(filter $(known),$(filter-out $(too_old),$(gpus))),80 89 90)
$(if $(shell printf '%s\n' '$(subst ','\'',$(ARCH))' | grep -vxE ' *([0-9]{2,3}[af]? *)+'),$(error ARCH=$(ARCH): write \
  compute capabilities without the point, as in ARCH=90 or ARCH="80 90"))
$(if $(filter $(too_old),$(ARCH)),$(error ARCH=$(ARCH): the kernels need compute capability 8.0, ARCH=80 or above))
archs := $(patsubst 90,90a,$(ARCH)) # wgmma is sm_90a's alone
# PTX, which the driver compiles for newer GPUs; PTX of sm_90a would run nowhere else.
ptx := $(shell printf '%s\n' $(archs) | tr -dc '0-9\n' | sort -n | tail -n 1)
nvflags := -std=c++17 -O3 -lineinfo -I. --expt-relaxed-constexpr -Xcompiler -Wall,-fPIC \
  $(foreach a,$(archs),-gencode arch=compute_$a,code=sm_$a) -gencode arch=compute_$(ptx),code=compute_$(ptx)
cudart := $(addprefix -L,$(shell sh tools/toolkit.sh libraries $(nvcc)))
nvlibs := $(cudart) -lcudart_static -lrt -static-libgcc -l:libstdc++.a
cuda_tools := $(patsubst lab/%.cu,$B/%,$(wildcard lab/*.cu))
built := for the CPU and CUDA ($(archs:%=sm_%), PTX of compute_$(ptx))
else
built := for the CPU ($(if $(NVCC),CUDA=0,no CUDA toolkit found))
endif

# ---- sources ---- ---------------------------------------------------------------------------------------------------

# Files of cpu/ that are written with `real` are compiled twice: as float and, with -DREAL64, as double.
real := $(basename $(shell grep -lw OP cpu/*.c cpu/*/*.c))
folders := base comm nn cpu cpu/conv weights data/coco data/images data/pictures data/shapes data/batches data/survey \
  data/import models engine evaluation training training/benchmarks classification classification/nets classification/data lib \
  inference onnx page
lib_objects := $(patsubst %.c,$B/%.o,$(wildcard lib/*.c))
# gcc's pragmas are run by base/team.c, which takes the place of libgomp, clang's by its own runtime.
is_clang := $(filter 1,$(shell echo __clang__ | $(CC) -E -P - 2>/dev/null))
openmp := $(if $(is_clang),-fopenmp)
objects := $(patsubst %.c,$B/%.o,$(filter-out nn/device.c,$(wildcard $(folders:%=%/*.c)))) $(real:%=$B/%.f64.o) \
  $(foreach l,$(levels),$(real:%=$B/%.v$l.o)) $(foreach l,$(levels64),$(real:%=$B/%.v$l.f64.o)) $B/commit.o \
  $B/levels.o $B/page_files.o
# What the import of annotations reads XML and TIFF with, if it is installed.
has = $(shell $(CC) -include $1 -E -x c /dev/null >/dev/null 2>&1 && echo 1)
expat := $(call has,expat.h)
tiff := $(call has,tiffio.h)
import_libs := $(if $(expat),-lexpat) $(if $(tiff),-ltiff)
# train and doctor only tell the formats of annotations apart: they are linked with readers that need no library.
detecting := train tools/doctor
no_readers := $B/data/import/xml.none.o $B/data/import/tiff.none.o
# The names of the convolution ladder's rungs, bottom to top, and the objects of rungs in the folder RUNGS.
ifeq ($(CUDA),1)
rungs := $(shell sh cuda/conv/rungs.sh '$(RUNGS)')
$(if $(rungs),,$(error no ladder; the line above says why))
else ifneq ($(RUNGS),)
$(error RUNGS=$(RUNGS): rungs are compiled by nvcc, and this build is $(built))
endif
# Objects keep their folder's name, so that two folders may have files of the same name.
added := $(addprefix $B/rungs,$(abspath $(RUNGS)))
kernels := $(patsubst %.cu,$B/%.cu.o,$(wildcard cuda/*.cu cuda/*/*.cu cuda/conv/lessons/*.cu cudnn/*.cu)) $B/rungs.o \
  $(if $(RUNGS),$(patsubst $(RUNGS)/%.cu,$(added)/%.cu.o,$(wildcard $(RUNGS)/*.cu)))
# The programs: those that compute on a device, those that only describe it, and those that run on the host alone.
computing := train infer lab/dump lab/bench_reduce lab/bench_callers tools/export
describing := lab/machine tools/doctor
others := $(filter-out $(computing) $(describing),$(basename $(wildcard tools/*.c lab/*.c)))
tools := $(filter-out train infer,$(notdir $(computing) $(describing) $(others)))
generators := $(basename $(wildcard test/*.c)) # programs that only tests and measurements need
tests := $(patsubst %.c,$B/%.o,$(filter-out test/fuzz/fuzz_% test/harness/faulty_device.c test/harness/nccl_stub.c \
  test/harness/refusing.c, \
  $(wildcard test/*/*.c test/*/*/*.c))) \
  $(patsubst test/fuzz/fuzz_%.c,$B/test/fuzz/corpus_%.o,$(wildcard test/fuzz/fuzz_*.c))
page_files := $(sort $(wildcard page/*.css page/*.js))
fuzzers := $(patsubst test/fuzz/%.c,$B/%,$(wildcard test/fuzz/fuzz_*.c))

# The device types of a program: nn/device.c is compiled twice, for the CPU alone and, as device.cuda.o, with the GPU.
host := $B/nn/device.o
devices := $(if $(filter 1,$(CUDA)),$B/nn/device.cuda.o $B/libkernels.a,$(host))
described := $B/nn/device.cuda.o $B/tools/describing/no_kernels.o $(patsubst %,$B/cuda/%.cu.o,device machine timing)
# Where a demo's programs are. Without a GPU no kernel would run, so the demo's programs are linked without kernels from
# the same objects ($(host)), and ./train and $B/train are not touched. Tests always run these, so that they are the
# same on every machine: kernels are tested by test-gpu. CUDA=1 builds everything.
unasked := $(and $(filter 1,$(CUDA)),$(filter file,$(origin CUDA)),yes)
here := $(if $(and $(unasked),$(if $(gpus),,no GPU)),$B/host,$B)
test_here := $(if $(unasked),$B/host,$B)
# test_all, and the programs that tests run. Those in faulty/ have a simulated GPU that fails when a test asks for it.
tested := test_all train infer faulty/train faulty/infer libmaskrcnn.a $(tools) $(notdir $(generators))
faulty := $B/nn/device.cuda.o $B/test/harness/faulty_device.o

# Only the default build copies programs into the tree, because others may be able to read but not write it.
copies := $(if $(filter build,$B),train infer)
all: $(or $(copies),$B/train $B/infer) $(tools:%=$B/%) $(cuda_tools) $B/libmaskrcnn.so $B/libmaskrcnn.a | $B/maskrcnn.pc
	@echo "built $(built): $(strip $(copies:%=./%) $(filter $B/%,$^))"

setup:
	@CC="$(CC)" STB="$(STB)" B="$B" sh tools/setup.sh
toolkit: | setup
	@$(if $(nvcc),ARCH="$(ARCH)" B="$B" sh tools/toolkit.sh check $(nvcc))

# ---- files that are rewritten only when they change ---- ------------------------------------------------------------

# Targets that depend on flags or on a list of files depend on a file that holds these. So do benchmark records on the
# commit.
version := $(shell sed -n 's/^.define MASKRCNN_VERSION_M[AJINOR]* //p' include/maskrcnn.h | paste -sd.)
cc.flags := $(CC) $(flags) $(library_flags) $(import_libs)
nvcc.flags := $(nvcc) $(nvflags)
link.flags := $(CC) $(flags) $(libs) $(import_libs) $(nvlibs) $(devices) $(objects) $(kernels) $(tests) $(CXX) $(page_files)
# (The commit is this tree's. A tarball unpacked inside another repository has none.)
commit.c := const char build_version[] = "$(version)", build_commit[] = "$(shell \
  [ -z "$$(git rev-parse --show-prefix 2>&1)" ] && git describe --always --dirty || echo unknown)";
rungs.c := $(foreach r,$(rungs),extern const struct Rung rung_$r; )const struct Rung *const conv_rungs[] = \
  {$(rungs:%=&rung_%,) 0};
leveled = $(foreach l,$2,extern const struct Ops $1_v$l; )extern const struct Ops $1; \
  const struct Ops *const $1_levels[5] = {0$(if $2,$(comma) [2] = &$1)$(foreach l,$2,$(comma) [$l] = &$1_v$l)};
levels.c := $(call leveled,ops_cpu,$(levels)) $(call leveled,ops_cpu64,$(levels64))
texts := cc.flags nvcc.flags link.flags commit.c rungs.c levels.c
# Read with cat: $(file <) of GNU make 4.3 sometimes compares as different although it is equal.
define write_if_changed
ifneq ($$(shell cat $B/$1 2>/dev/null),$$($1))
$B/$1: force
endif
endef
$(foreach text,$(texts),$(eval $(call write_if_changed,$(text))))
$(texts:%=$B/%): $B/%: | setup
	@mkdir -p $(@D) && printf '%s\n' '$(subst ','\'',$($*))' >$@

linking = $(filter-out -fopenmp,$(flags)) $(openmp)

# ---- the library ----------------------------------------------------------------------------------------------------

soname := libmaskrcnn.so.$(firstword $(subst ., ,$(version)))
CXX := $(if $(filter default,$(origin CXX)),$(shell command -v g++ || command -v clang++),$(CXX))
examples := example_c $(if $(CXX),example_cpp)

# Links objects into one object; those compiled with -flto are compiled to machine code first.
lto := $(findstring -flto,$(flags) $(CC))
to_code := $(if $(findstring clang,$(CC)),-fuse-ld=lld,-flinker-output=nolto-rel)
relink := $(if $(lto),$(CC) $(flags) -r -nostdlib $(to_code),ld -r)

# The library in folder $1, with the devices $2. It exports the names in lib/maskrcnn.map. The archive is one object
# with all other names local, so that they cannot clash with the caller's.
define library
$1/libmaskrcnn.so: $2 $B/objects.a lib/maskrcnn.map $B/link.flags
	@mkdir -p $$(@D) && echo "link $$@" && $(CC) $(linking) -shared $(if $(is_clang),,-Wl$(comma)-z$(comma)defs) \
	  -Wl,-soname,$(soname),-z,nodelete \
	  -Wl,--version-script=lib/maskrcnn.map $(lib_objects) $$(filter %.o %.a,$$^) -o $$@ $$(libs) \
	  $$(if $$(filter %/libkernels.a,$$^),$(nvlibs)) && ln -sf libmaskrcnn.so $1/$(soname)
$1/libmaskrcnn.a: $2 $B/objects.a lib/maskrcnn.map $B/link.flags
	@mkdir -p $$(@D) && echo "link $$@" && $(relink) -o $1/maskrcnn.o $(lib_objects) $$(filter %.o %.a,$$^) && \
	  sed -n 's/^ *\(maskrcnn_[a-z_]*\);$$$$/\1/p' lib/maskrcnn.map >$1/exported && \
	  objcopy --keep-global-symbols=$1/exported $1/maskrcnn.o && rm -f $$@ && $(AR) qcs $$@ $1/maskrcnn.o && \
	  rm $1/maskrcnn.o $1/exported
$(examples:%=$1/%): $1/%: $B/%.o $1/libmaskrcnn.so
	@echo "link $$@" && $(if $(CXX),$(CXX),$(CC)) $(CFLAGS) $$< -L$1 -lmaskrcnn -Wl,-rpath,'$$$$ORIGIN' -o $$@
endef
# Compiled as callers do, who only have the header.
$B/example_c.o: examples/detect.c include/maskrcnn.h $B/cc.flags
	@echo "cc $<" && $(CC) -std=c11 $(warnings) -pedantic -Iinclude $(CFLAGS) -c $< -o $@
$B/example_cpp.o: examples/detect.cpp include/maskrcnn.h $B/cc.flags
	@echo "cc $<" && $(CXX) -std=c++17 $(warnings) -pedantic -Iinclude $(CFLAGS) -c $< -o $@

# The rest of maskrcnn.pc after its first line: linking with the .so needs nothing more, linking with the .a needs the
# library's dependencies. It is written at build time, as another user who installs may not see the same toolkit.
private := $(libs) $(openmp) -pthread -Wl,-z,nodelete $(if $(filter 1,$(CUDA)),$(cudart) -lcudart_static -lrt -lstdc++)
define maskrcnn_pc
includedir=$${prefix}/include
libdir=$${prefix}/lib

Name: maskrcnn
Description: Mask R-CNN inference, built $(built)
Version: $(version)
Cflags: -I"$${includedir}"
Libs: -L"$${libdir}" -lmaskrcnn
Libs.private: $(private)
endef
export maskrcnn_pc
$B/maskrcnn.pc: force | setup
	@printenv maskrcnn_pc | cmp -s - $@ || printenv maskrcnn_pc >$@

# Installs the command maskrcnn in bin, the programs that it runs in libexec, and the library. Outdated files are
# rebuilt first, but only for the owner of the build folder: after `make`, `sudo make install` copies the existing
# files.
commands := train infer doctor import export cocoeval inspect report
to_install := $(patsubst %,$B/%,maskrcnn $(commands) libmaskrcnn.so libmaskrcnn.a maskrcnn.pc)
to := $(DESTDIR)$(PREFIX)
ifneq ($(filter install,$(MAKECMDGOALS)),)
$(if $(filter /%,$(firstword $(PREFIX))),,$(error PREFIX=$(PREFIX): give a path from the root, as PREFIX=/opt/maskrcnn))
ifneq ($(shell stat -c %u $B 2>/dev/null || stat -c %u .),$(shell id -u))
absent := $(filter-out $(wildcard $(to_install)),$(to_install))
$(if $(absent),$(error nothing is built in $B for install ($(firstword $(absent)) is missing): run make as its owner \
  first))
to_install :=
endif
endif
install: $(to_install)
	install -d "$(to)/bin" "$(to)/libexec/maskrcnn" "$(to)/include" "$(to)/lib/pkgconfig" "$(to)/share/doc/maskrcnn"
	install -m 755 $B/maskrcnn "$(to)/bin/maskrcnn"
	install -m 755 $(commands:%=$B/%) "$(to)/libexec/maskrcnn"
	install -m 644 include/maskrcnn.h "$(to)/include/maskrcnn.h"
	install -m 755 $B/libmaskrcnn.so "$(to)/lib/libmaskrcnn.so.$(version)"
	ln -sf libmaskrcnn.so.$(version) "$(to)/lib/$(soname)"
	ln -sf $(soname) "$(to)/lib/libmaskrcnn.so"
	install -m 644 $B/libmaskrcnn.a "$(to)/lib/libmaskrcnn.a"
	{ printf 'prefix=%s\n' "$(PREFIX)" && cat $B/maskrcnn.pc; } | \
	  install -m 644 /dev/stdin "$(to)/lib/pkgconfig/maskrcnn.pc"
	install -m 644 LICENSE NOTICE "$(to)/share/doc/maskrcnn"
uninstall:
	rm -f "$(to)/bin/maskrcnn" "$(to)/include/maskrcnn.h" "$(to)/lib/libmaskrcnn.so.$(version)" "$(to)/lib/$(soname)" \
	  "$(to)/lib/libmaskrcnn.so" "$(to)/lib/libmaskrcnn.a" "$(to)/lib/pkgconfig/maskrcnn.pc"
	rm -rf "$(to)/libexec/maskrcnn" "$(to)/share/doc/maskrcnn"

# ---- programs -------------------------------------------------------------------------------------------------------

train infer: %: $B/% force # of the build folder that was built last
	@cmp -s $< $@ || cp -f $< $@
link = @mkdir -p $(@D) && echo "link $@" && \
  $(CC) $(linking) $(filter %.o,$^) $(call together,$(filter %.a,$^)) -o $@ $(libs) \
    $(if $(filter %/libkernels.a %.cu.o,$^),$(nvlibs))
together = $(if $(filter %/libhost.a,$1),-Wl$(comma)--start-group $1 -Wl$(comma)--end-group,$1)
# A program in folder $1, from source $2, with the devices $3.
define program
$1/$(notdir $2): $B/$2.o $B/base/cpu_check.o $(if $(filter $2,$(detecting))$(findstring /wheel/,$1),$(no_readers)) $3 $B/objects.a $B/link.flags
	$$(link)

endef
$B/import $B/host/import $B/export $B/host/export $B/test_all $B/host/test_all $(fuzzers): private libs += $(import_libs)
# All programs, with the devices $2; programs that need no device are linked without any, and without the CPU reference.
programs = $(foreach p,$(computing),$(call program,$1,$p,$2))$(foreach \
  p,$(describing),$(call program,$1,$p,$(if $(filter %/libkernels.a,$2),$(described),$2)))$(foreach \
  p,$(others) $(generators),$(call program,$1,$p,$B/libhost.a))
shared = @mkdir -p $(@D) && echo "cc $< (shared)" && \
  $(CC) $(filter-out -fopenmp -MMD -MP,$(flags)) -shared -fPIC $< -o $@
# test_all as well, which also runs the programs of faulty/ and the examples. Lessons are not in any program: -u pulls
# them from the archive of kernels, if there is one.
define tester
$(if $(filter %/libkernels.a,$2),$1/test_all: private libs += -Wl$(comma)-u$(comma)conv_lessons)
$1/test_all: $(tests) $2 $B/objects.a $B/link.flags | $1/faulty/train $1/faulty/infer $1/allocations.so $1/refusing.so \
  $1/libnccl_stub.so $(examples:%=$1/%) $1/faulty/libmaskrcnn.so
	$$(link)
$1/allocations.so: test/harness/allocations.c test/harness/allocations.h $B/cc.flags | setup
	$$(shared)
$1/refusing.so: test/harness/refusing.c $B/cc.flags | setup
	$$(shared)
$1/libnccl_stub.so: test/harness/nccl_stub.c comm/nccl.h base/basics.h $B/cc.flags | setup
	$$(shared)
$(call programs,$1,$2)
$(call library,$1,$2)
$(call programs,$1/faulty,$(faulty))
$(call library,$1/faulty,$(faulty))
endef
$(eval $(call tester,$B,$(devices)))
$(eval $(call tester,$B/host,$(host)))
$(cuda_tools): $B/%: $B/lab/%.cu.o $(devices) $B/objects.a $B/link.flags
	$(link)
# ---- the wheels: docs/python.md ----------------------------------------------------------------------------------------

# The library and the programs as a wheel has them, in folder $1: stripped, with libraries beside them.
define wheel
$1/%: private libs += -Wl,-rpath,'$$$$ORIGIN' -s
$(foreach p,train infer,$(call program,$1,$p,$2))
$(foreach p,maskrcnn $(filter-out train infer,$(commands)),$(call program,$1,tools/$p,$B/libhost.a))
$(call library,$1,$2)
endef
$(eval $(call wheel,$B/wheel/cpu,$(host)))
$(eval $(call wheel,$B/wheel/cuda,$(devices)))
PYTHON ?= python3
WHEELS ?= $B/wheels
in_wheel := maskrcnn $(commands) libmaskrcnn.so
# For the CPU and, with a toolkit, for the GPU as well; for this machine's alone: wheel-here.
wheel: $(if $(filter 1,$(CUDA)),wheel-cuda) wheel-cpu
wheel-here: $(if $(filter 1,$(CUDA)),wheel-cuda,wheel-cpu)
wheel-cpu: $(in_wheel:%=$B/wheel/cpu/%)
	@$(PYTHON) python/wheel.py $B/wheel/cpu $(WHEELS)
wheel-cuda: $(in_wheel:%=$B/wheel/cuda/%)
	@$(PYTHON) python/wheel.py $B/wheel/cuda $(WHEELS) cu$(shell $(nvcc) --version | sed -n 's/.*release \([0-9]*\)[.]\([0-9]*\),.*/\1\2/p')

# ---- archives -------------------------------------------------------------------------------------------------------

archive = @rm -f $@ && $(AR) qcs $@ $(filter %.o,$^) # q: appends, because names may repeat in different folders
$B/objects.a: $(objects) $B/link.flags
	$(archive)
$B/libkernels.a: $(kernels) $B/link.flags
	$(archive)
$B/libhost.a: $(host)
	$(archive)

# ---- objects --------------------------------------------------------------------------------------------------------

hidden = $(if $(filter test/%,$<),-fPIC,$(library_flags)) # so that tests can replace functions of the C library
compile = @mkdir -p $(@D) && echo "cc $<$(if $1, ($1))" && $(CC) $(flags) $(hidden) $1 -c $< -o $@
$(foreach o,o f64.o $(levels:%=v%.o) $(levels64:%=v%.f64.o),$B/cpu/conv/gemm.$o): flags += -ffp-contract=fast
# They tell a CPU that is too old, and therefore run on it: the library until maskrcnn_open has said so.
$B/base/cpu_level.o $B/base/cpu_check.o $B/base/error.o $B/base/utf8.o $(lib_objects): flags += $(if $(x86),-march=x86-64 \
  -DMARCH_LEVEL=$(or $(patsubst x86-64-v%,%,$(filter x86-64-v%,$(MARCH))),0))
# stb_image 2.27 shifts a zero by 32 bits if a JPEG scan ends early: formally undefined, but harmless.
$B/data/images/jpeg_decode.o: flags += -fno-sanitize=shift
$B/data/import/xml.o: flags += $(if $(expat),-DMASKRCNN_EXPAT)
$B/data/import/tiff.o: flags += $(if $(tiff),-DMASKRCNN_TIFF)
$B/%.o: %.c $B/cc.flags | setup
	$(call compile)
$B/%.none.o: %.c $B/cc.flags | setup
	$(call compile)
$B/%.f64.o: %.c $B/cc.flags | setup
	$(call compile,-DREAL64)
define level
$B/%.v$1.o: %.c $B/cc.flags | setup
	$$(call compile,-march=x86-64-v$1 -DCPU_LEVEL=_v$1)
$B/%.v$1.f64.o: %.c $B/cc.flags | setup
	$$(call compile,-march=x86-64-v$1 -DCPU_LEVEL=_v$1 -DREAL64)
endef
$(foreach l,$(levels),$(eval $(call level,$l)))
$B/%.cuda.o: %.c $B/cc.flags | setup
	$(call compile,-DMASKRCNN_CUDA)
# Page scripts and styles as C sources.
$B/page_files.c: page/embed.sh $(page_files) $B/link.flags
	@mkdir -p $(@D) && sh page/embed.sh $(page_files) >$@.tmp && mv $@.tmp $@
$B/commit.o $B/levels.o $B/rungs.o $B/page_files.o: %.o: %.c $B/cc.flags | setup
	@$(CC) $(flags) $(hidden) -c $< -o $@
# The fuzz targets' entry points, for test/fuzz/test_corpus.c.
$B/test/fuzz/corpus_%.o: test/fuzz/fuzz_%.c $B/cc.flags | setup
	$(call compile,-DLLVMFuzzerTestOneInput=corpus_$*)

# Box arithmetic without contraction, as on the CPU: both then give the same indices.
exact := boxes nms match roi_align masks mask_runs preprocess preprocess_affine
$(exact:%=$B/cuda/%.cu.o): nvflags += -fmad=false
# If a sum spills, wgmma waits for itself: five times slower but correct, so no test would notice.
$(patsubst %.cu,$B/%.cu.o,$(wildcard cuda/conv/05_*.cu cuda/conv/lessons/*.cu) cuda/mask_predict.cu): \
  nvflags += -Xptxas -warn-spills$(if $(filter 1,$(WERROR)),$(comma)-Werror)
ifeq ($(CUDA),1)
compile_kernels = @mkdir -p $(@D) && echo "nvcc $<" && $(nvcc) $(nvflags) -MMD -MP -MF $(@:.o=.d) -c $< -o $@
else
compile_kernels = $(error $<: only nvcc compiles it, and $(if \
  $(NVCC),CUDA=0 leaves that out,there is none: install the CUDA toolkit, or say NVCC=/path/to/nvcc))
endif
$B/%.cu.o: %.cu $B/nvcc.flags | setup toolkit
	$(compile_kernels)
ifdef RUNGS
$(added)/%.cu.o: $(RUNGS)/%.cu $B/nvcc.flags | setup toolkit
	$(compile_kernels)
endif

# ---- targets to run ---- --------------------------------------------------------------------------------------------

demo demo-classes: $(addprefix $(here)/,train infer shapes)
	@B=$B P=$(here) sh tools/$(subst -,_,$@).sh

# Tiers: 0 is also run under sanitizers, 2 kills programs a hundred times. Many tests wait for most of their time, so
# there are more at the same time than cores. LLVM's threads must not spin then.
TIER ?= 1
JOBS ?= $(shell n=$$(nproc); echo $$((n < 7 ? n + 2 : 8)))
test_all = KMP_BLOCKTIME=0 B=$1 $1/test_all --jobs $(JOBS)
test: $(tested:%=$(test_here)/%)
	@$(call test_all,$(test_here)) --tier $(TIER)
ifneq ($(and $(gpus),$(unasked)),)
	@echo "the GPU was not used: $$($(test_here)/test_all --tier 1 --list cuda | wc -l) tests are left to make test-gpu"
endif
test-long: $(tested:%=$(here)/%)
	@$(call test_all,$(here)) --tier 2
# What `make test` leaves out: the kernels against the CPU, and the programs on a GPU. Then the kernels from PTX, as a
# GPU newer than the build would run them; and small shapes under compute-sanitizer.
test-gpu: $(tested:%=$B/%)
	@echo "the $$($B/test_all --tier 1 --list cuda | wc -l) tests that need a GPU, and that make test leaves out"
	@B=$B $B/test_all --tier 1 cuda
test-ptx: $(tested:%=$B/%)
	@rm -rf $B/ptx # discards what the driver has cached
	@B=$B CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_PATH=$(abspath $B/ptx) $B/test_all --tier 0 cuda
sanitize = compute-sanitizer --error-exitcode 1 --tool $1 $B/test_all --tier $2
rung_05 = cuda_conv_by_wgmma cuda_conv_wgrad_is cuda_conv_phases cuda_conv_ends cuda_conv_of_images
test-sanitizer: $(tested:%=$B/%)
	$(call sanitize,memcheck,0 cuda)
	$(call sanitize,memcheck,1 $(rung_05))
	$(call sanitize,racecheck,0 cuda)
	$(call sanitize,initcheck,0 cuda)
	$(call sanitize,initcheck,1 $(rung_05))

# The compilers' own sanitizers, each in a build folder of its own.
trap := address,undefined -fno-sanitize-recover=undefined
test-asan:
	@$(MAKE) B=$B/asan CFLAGS="-O1 -g -fsanitize=$(trap) -Wno-format-truncation" TIER=0 test
# For the threads of the library and of parallel regions: base/team.c's with gcc; with CC=clang those of LLVM's runtime,
# whose synchronisation libarcher explains to the sanitizer. TSAN: parts of the tests' names.
TSAN ?= library_ staging_ team_
archer = $(if $(is_clang),OMP_TOOL_LIBRARIES=$(shell $(CC) -print-resource-dir)/../../libarcher.so)
tsan_options := die_after_fork=0:ignore_noninstrumented_modules=1
test-tsan:
	@$(MAKE) B=$B/tsan CUDA=0 CFLAGS="-O1 -g -fsanitize=thread $(if $(is_clang),,-Wno-format-truncation)" \
	  $B/tsan/train $B/tsan/infer $B/tsan/test_all
	@$(archer) TSAN_OPTIONS=$(tsan_options) OMP_NUM_THREADS=3 $(call test_all,$B/tsan) --tier 0 $(TSAN)
# Runs every test/fuzz/fuzz_X.c for a while, from the seeds in test/corpus/X, which test/fuzz/minimal.sh keeps few;
# needs clang. Crashing inputs are left in build/fuzz/: minimise one with -minimize_crash=1 and add it as seed found-….
FUZZ_SECONDS ?= 30
fuzz:
	@$(MAKE) B=$B/fuzz CC=clang CUDA=0 CFLAGS="-O2 -g -fsanitize=fuzzer-no-link,$(trap)" run-fuzzers
run-fuzzers: $(fuzzers)
	@for f in $^; do x=$${f#$B/fuzz_} && mkdir -p $B/found/$$x && echo "fuzz $$x" && \
	  case $$x in coco | import | results) words=json ;; *) words=$$x ;; esac && words=test/corpus/$$words.dict && \
	  if $$f $$([ -e $$words ] && echo -dict=$$words) -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 \
	  -print_final_stats=1 -artifact_prefix=$B/ $B/found/$$x test/corpus/$$x >$$f.log 2>&1; \
	  then grep number_of_executed $$f.log; else tail -40 $$f.log; exit 1; fi; done
$(fuzzers): private libs += -fsanitize=fuzzer
$(fuzzers): $B/fuzz_%: $B/test/fuzz/fuzz_%.o $(host) $B/objects.a $B/link.flags
	$(link)

bench: $B/host/bench_gemm # times the CPU
	$B/host/bench_gemm

# Updates the documentation: measured figures from results/, and the course's quoted lines and diagrams from the
# sources. lint reports differences.
tables:
	@python3 lab/tables.py
	@python3 lab/quotes.py
	@python3 lab/course_diagrams.py
lint:
	@sh test/lint.sh
	@python3 lab/tables.py --check
	@python3 lab/quotes.py --check
	@python3 lab/course_diagrams.py --check
# Code generated for the lessons of cuda/conv/lessons/, which the course quotes: make ARCH=90a lessons-sass.
lessons-sass: $(patsubst %.cu,$B/%.cu.o,$(wildcard cuda/conv/lessons/[0-9]*.cu))
	@NVCC="$(nvcc)" CUOBJDUMP="$(or $(CUOBJDUMP),$(wildcard $(dir $(lastword $(nvcc)))cuobjdump),cuobjdump)" \
	  python3 lab/lesson_sass.py results/lessons-sass.json $^
# Builds and checks an exercise of docs/course/: make exercise 17.
ifeq ($(firstword $(MAKECMDGOALS)),exercise)
exercise := $(word 2,$(MAKECMDGOALS))
$(exercise):
	@:
.PHONY: $(exercise)
endif
exercise:
	@CC="$(CC)" B="$B" sh docs/course/exercises/check.sh $(exercise)
# Tests this Makefile: what each target builds, and what is rebuilt.
test-build:
	@sh test/build.sh

clean:
	rm -rf $B $(copies)

.PHONY: all force setup toolkit demo demo-classes test test-long test-gpu test-ptx test-sanitizer test-asan test-tsan \
  test-build install uninstall wheel wheel-here wheel-cpu wheel-cuda \
  fuzz run-fuzzers bench tables lint lessons-sass exercise clean
.SECONDARY:
.DELETE_ON_ERROR:
-include $(shell find $B -name '*.d' 2>/dev/null)
