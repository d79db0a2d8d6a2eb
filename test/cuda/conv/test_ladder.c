// Catches a convolution kernel in a user's own folder that cannot be built in.
//
// A rung is one file: the template cuda/conv/template is built into the programs under another name, from a folder
// outside the tree, and the programs know it by that name. They are linked in a copy of this build's objects, so that
// other tests are not affected. Without a GPU that is all; with one, the rung is compared with the CPU.
#include "test/harness/command.h"
#include "test/harness/gpu.h"

enum { TOLD = 4096 };

// `make RUNGS=…` of a program in a build's folder, with the flags of the kernels that are there. What is no kernel
// stays as it is, though its sources be newer (-o).
static int make(const char **said, const char *folder, const char *rungs, const char *program, const char *more) {
  return command(said,
                 "arch=$(grep -o 'code=sm_[0-9a-z]*' %s/nvcc.flags | sed s/code=sm_// | tr '\\n' ' ') && "
                 "env -u MAKEFLAGS -u MAKELEVEL make --no-print-directory B=%s CUDA=1 RUNGS=%s ARCH=\"$arch\" "
                 "NVCC=\"$(cut -d' ' -f1 %s/nvcc.flags)\" -o %s/objects.a %s/%s %s",
                 folder, folder, rungs, folder, folder, folder, program, more);
}

static const char *rung_folder(const char *name) {
  const char *folder = in_tmp(name);
  EXPECT_INT(command(NULL, "mkdir -p %s && sed s/mine/scratch/g cuda/conv/template/00_mine.cu >%s/05_scratch.cu",
                     folder, folder),
             0);
  return folder;
}

// Where kernels are compiled, of which build/host/ has none of its own; NULL, and the test is skipped, where none are,
// or older ones than the sources.
static const char *kernels_folder(const char *rungs) {
  static char folder[256];
  const char *said;
  snprintf(folder, sizeof folder, "%s", tool("."));
  char *host = strstr(folder, "/host/.");
  if (host) *host = '\0';
  if (command(NULL, "test -e %s/libkernels.a", folder)) {
    test_skip("no kernels are compiled here: make CUDA=1");
    return NULL;
  }
  if (EXPECT_INT(make(&said, folder, rungs, "libkernels.a", "-n | grep '\"nvcc cuda/' | head -n 1"), 0) && *said) {
    test_skip("kernels are older here than their sources: make CUDA=1");
    return NULL;
  }
  return folder;
}

// The copy: the archive of all that is no kernel, the kernels, and what programs are linked of beside them.
static const char *copy_of(const char *built, const char *name) {
  const char *copy = in_tmp(name), *said;
  int status = command(&said,
                       "mkdir -p %s && cd %s && find objects.a *.flags commit.c *.o cuda cudnn lib nn test tools lab "
                       "-name '*.[oa]' -o -name '*.flags' -o -name commit.c | xargs cp -p --parents -t %s",
                       copy, built, copy);
  if (!EXPECT_INT(status, 0)) puts(said);
  return copy;
}

// What make says is kept.
static bool build(const char *copy, const char *rungs, const char *program, char said[TOLD]) {
  const char *text;
  int status = make(&text, copy, rungs, program, "");
  snprintf(said, TOLD, "%s", text);
  bool ok = EXPECT_INT(status, 0);
  if (!ok) printf("%s\n", said);
  return ok;
}

TEST_TIER(ladder_takes_a_rung_of_another_folder, 1) {
  const char *rungs = rung_folder("ladder-rungs"), *built = kernels_folder(rungs), *said;
  if (!built) return;
  const char *copy = copy_of(built, "ladder");
  char made[TOLD];
  if (!build(copy, rungs, "bench", made)) return;
  EXPECT(strstr(made, "/05_scratch.cu\n") && !strstr(made, "nvcc cuda/"));
  EXPECT_INT(command(&said, "%s/bench conv --rungs none", copy), EXIT_USAGE);
  if (!EXPECT(strstr(said, "--rungs none: choose from naive, im2col, wmma, mma, scratch, wgmma"))) puts(said);
  if (!build(copy, rungs, "train", made)) return;
  EXPECT(!strstr(made, "nvcc ") && strstr(made, "/train\n"));
  EXPECT_INT(command(&said, "grep -q rung_scratch %s/train", copy), 0);
  EXPECT_INT(command(&said, "grep -q rung_scratch %s/libkernels.a", built), 1);
}

TEST_TIER(cuda_rung_of_another_folder_is_exact, 1) {
  if (!gpu_device()) return;
  const char *rungs = rung_folder("ladder-gpu-rungs"), *built = kernels_folder(rungs), *said;
  if (!built) return;
  const char *copy = copy_of(built, "ladder-gpu");
  char made[TOLD];
  if (!build(copy, rungs, "test_all", made) || !build(copy, rungs, "train", made)) return;
  if (!EXPECT_INT(command(&said, "B=%s %s/test_all cuda_conv_is_exact_on_small_shapes", copy, copy), 0)) puts(said);
  EXPECT(strstr(said, "1 passed, 0 failed"));
  if (!EXPECT_INT(command(&said,
                          "%s/train --device cuda --conv scratch --data %s --out %s --model tiny --size 64 --batch 4 "
                          "--iters 2 --eval-every never",
                          copy, shapes_set(), in_tmp("ladder-gpu-run")),
                  0))
    puts(said);
}
