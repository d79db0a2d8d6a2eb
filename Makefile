# make · make demo · make test · make test-long · make test-gpu · make test-sanitizer · make test-asan · make fuzz ·
# make lint · make tables · make bench
ifeq ($(origin CC),default)
CC := gcc
endif
MARCH ?= native
B ?= build
CFLAGS ?= -O3 -g
STB ?= /usr/include

# Contraction into fused multiply-add would make box arithmetic depend on the compiler; only the GEMM asks for it.
flags := -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -isystem $(STB) -march=$(MARCH) -ffp-contract=off \
  -fno-math-errno -fopenmp -pthread -Wall -Wextra -Werror -MMD -MP $(CFLAGS)
libs := -lz -lm -ldl

# The GPU back end, where there is nvcc; CUDA=0 leaves it out. ARCH: the GPUs that are here, or else all we know.
NVCC ?= $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA ?= $(if $(NVCC),1,0)
ifeq ($(CUDA),1)
ARCH ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | \
  sed 's/^90$$/90a/'),80 89 90a)
cuda := $(patsubst %.cu,$B/%.cu.o,$(wildcard cuda/*.cu cuda/conv/*.cu))
nvflags := -std=c++17 -O3 -lineinfo -I. --expt-relaxed-constexpr -Xcompiler -Wall \
  $(foreach a,$(patsubst 90,90a,$(ARCH)),-gencode arch=compute_$a,code=sm_$a) # wgmma is sm_90a's alone
libs += -L$(dir $(NVCC))../lib64 -lcudart_static -lrt -static-libgcc -l:libstdc++.a
cuda_tools := $(patsubst tools/%.cu,$B/%,$(wildcard tools/*.cu))
built := for the CPU and CUDA ($(ARCH:%=sm_%))
$B/nn/device.o: flags += -DMASKRCNN_CUDA
else
built := for the CPU ($(if $(NVCC),CUDA=0,no CUDA toolkit found))
endif

# Files of cpu/ that are written against `real` compile twice: as float and, with -DREAL64, as double.
real := $(basename $(shell grep -lw OP cpu/*.c cpu/*/*.c))
objects := $(patsubst %.c,$B/%.o,$(wildcard base/*.c nn/*.c cpu/*.c cpu/*/*.c weights/*.c data/*/*.c models/*.c engine/*.c)) $(real:%=$B/%.f64.o)
tools := $(patsubst tools/%.c,$B/%,$(wildcard tools/*.c))
tests := $(patsubst %.c,$B/%.o,$(filter-out test/fuzz/fuzz_%,$(wildcard test/*/*.c test/*/*/*.c))) \
  $(patsubst test/fuzz/fuzz_%.c,$B/test/fuzz/corpus_%.o,$(wildcard test/fuzz/fuzz_*.c))
fuzzers := $(patsubst test/fuzz/%.c,$B/%,$(wildcard test/fuzz/fuzz_*.c))

all: train infer $(tools) $(cuda_tools)
	@echo "built $(built): ./train ./infer $(tools) $(cuda_tools)"

setup:
	@CC="$(CC)" STB="$(STB)" B="$B" sh tools/setup.sh

train infer: %: $B/%
	@cp $< $@
# Which commit was built, for the records of benchmarks; rewritten only when it changes.
$B/commit.c: force | setup
	@echo 'const char build_commit[] = "$(shell git describe --always --dirty 2>/dev/null || echo unknown)";' >$@.new
	@cmp -s $@.new $@ || cp $@.new $@
$B/commit.o: $B/commit.c
	@$(CC) $(flags) -c $< -o $@
$B/libmaskrcnn.a: $(objects) $(cuda) $B/commit.o
	@rm -f $@ && ar qcs $@ $^ # q: names may repeat in other folders
link = @echo "link $@" && $(CC) $(flags) $^ -o $@ $(libs)
$B/train $B/infer: $B/%: $B/%.o $B/libmaskrcnn.a
	$(link)
$(tools): $B/%: $B/tools/%.o $B/libmaskrcnn.a
	$(link)
$(cuda_tools): $B/%: $B/tools/%.cu.o $B/libmaskrcnn.a
	$(link)
$B/test_all: $(tests) $B/libmaskrcnn.a
	$(link)

$B/cpu/conv/gemm.o $B/cpu/conv/gemm.f64.o: flags += -ffp-contract=fast
# stb_image 2.27 shifts a zero by 32 bits where a scan of a JPEG ends early: undefined by the letter, of no effect.
$B/data/images/image.o: flags += -fno-sanitize=shift
$B/%.o: %.c | setup
	@mkdir -p $(@D)
	@echo "cc $<" && $(CC) $(flags) -c $< -o $@
# What a fuzzer calls, for test/fuzz/test_corpus.c.
$B/test/fuzz/corpus_%.o: test/fuzz/fuzz_%.c | setup
	@mkdir -p $(@D)
	@echo "cc $<" && $(CC) $(flags) -DLLVMFuzzerTestOneInput=corpus_$* -c $< -o $@
$B/%.f64.o: %.c | setup
	@mkdir -p $(@D)
	@echo "cc $< (double)" && $(CC) $(flags) -DREAL64 -c $< -o $@

# Box arithmetic without contraction, as on the CPU: indices are the same on both.
exact := boxes nms match roi_align masks preprocess
$(exact:%=$B/cuda/%.cu.o): nvflags += -fmad=false
# A spilled sum makes wgmma wait for itself, five times slower and correct: no test would see it.
$(patsubst %.cu,$B/%.cu.o,$(wildcard cuda/conv/05_*.cu)): nvflags += -Xptxas -warn-spills,-Werror
$B/%.cu.o: %.cu | setup
	@mkdir -p $(@D)
	@echo "nvcc $<" && $(NVCC) $(nvflags) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

demo: all
	@B=$B sh tools/demo.sh

test: all $B/test_all
	@B=$B $B/test_all --tier 1
test-long: all $B/test_all
	@B=$B $B/test_all --tier 2
# The kernels against the CPU, on a machine with a GPU; and the same under compute-sanitizer, on small shapes.
test-gpu: all $B/test_all
	@$B/test_all --tier 1 cuda
sanitize = compute-sanitizer --error-exitcode 1 --tool $1 $B/test_all --tier $2
rung_05 = cuda_conv_by_wgmma cuda_conv_wgrad_is cuda_conv_phases cuda_conv_ends cuda_conv_of_images
test-sanitizer: all $B/test_all
	$(call sanitize,memcheck,0 cuda)
	$(call sanitize,memcheck,1 $(rung_05))
	$(call sanitize,racecheck,0 cuda)
	$(call sanitize,initcheck,0 cuda)
	$(call sanitize,initcheck,1 $(rung_05))
test-asan:
	@$(MAKE) B=$B/asan CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-format-truncation" $B/asan/test_all $B/asan/bench_index $B/asan/ladder_report
	@B=$B/asan $B/asan/test_all --tier 0
# Every test/fuzz/fuzz_X.c for a while, from the seeds in test/corpus/X; needs clang. What crashes one is left in build/fuzz/.
FUZZ_SECONDS ?= 30
fuzz:
	@$(MAKE) B=$B/fuzz CC=clang CUDA=0 CFLAGS="-O2 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" \
	  run-fuzzers
run-fuzzers: $(fuzzers)
	@for f in $^; do x=$${f#$B/fuzz_} && mkdir -p $B/found/$$x && echo "fuzz $$x" && \
	  if $$f -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 -print_final_stats=1 -artifact_prefix=$B/ \
	  $B/found/$$x test/corpus/$$x >$$f.log 2>&1; then grep number_of_executed $$f.log; else tail -40 $$f.log; exit 1; fi; done
$(fuzzers): $B/fuzz_%: $B/test/fuzz/fuzz_%.o $B/libmaskrcnn.a
	@echo "link $@" && $(CC) $(flags) -fsanitize=fuzzer $^ -o $@ $(libs)

bench: all
	$B/bench_gemm

# The measured figures of the documentation, written from results/; lint says where they differ.
tables:
	@python3 tools/tables.py
lint:
	@sh test/lint.sh
	@python3 tools/tables.py --check

clean:
	rm -rf $B train infer

.PHONY: all force setup demo test test-long test-gpu test-sanitizer test-asan fuzz run-fuzzers bench tables lint clean
.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)
