// Catches GPU errors reported without a cause or without what to do.
#include "nn/fault.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static const GpuOffer h200 = {
    .driver = 13000, .runtime = 13000, .count = 1, .name = "NVIDIA H200", .major = 9, .minor = 0};

static void expect_opening(const GpuOffer *offer, const char *error, const char *says) {
  Err err = {""};
  EXPECT(!fault_opening(offer, error, "the text of CUDA", &err));
  EXPECT_STR(err.msg, says);
}

TEST(fault_of_a_gpu_that_cannot_be_opened) {
  GpuOffer none = {.runtime = 13000}, older = {.driver = 12040, .runtime = 13000}, empty = {.driver = 13000};
  GpuOffer t4 = {.driver = 13000, .count = 1, .name = "Tesla T4", .major = 7, .minor = 5}, one = h200, two = h200;
  one.index = 1;
  two.index = 5;
  two.count = 2;
  expect_opening(&none, "cudaErrorInsufficientDriver", "no NVIDIA driver on this machine");
  expect_opening(&older, "cudaErrorInsufficientDriver",
                 "the driver supports CUDA 12.4, but this build needs 13.0: update the driver");
  expect_opening(&older, "cudaErrorUnknown",
                 "the driver supports CUDA 12.4, but this build needs 13.0: update the driver");
  expect_opening(&empty, "cudaErrorNoDevice",
                 "no GPU found: in a container, pass one through; check that CUDA_VISIBLE_DEVICES does not hide it "
                 "(nvidia-smi -L lists GPUs) (cudaErrorNoDevice)");
  expect_opening(&one, "cudaSuccess", "this machine has 1 GPU, counted from cuda:0");
  expect_opening(&two, "cudaSuccess", "this machine has 2 GPUs, counted from cuda:0");
  expect_opening(&h200, "cudaErrorDevicesUnavailable",
                 "NVIDIA H200: busy: another process uses it exclusively (see nvidia-smi); wait for it to end, or "
                 "choose another GPU with --device cuda:N (cudaErrorDevicesUnavailable)");
  expect_opening(&h200, "cudaErrorMemoryAllocation",
                 "NVIDIA H200: its memory is in use by other processes (see nvidia-smi) "
                 "(cudaErrorMemoryAllocation)");
  expect_opening(&t4, "cudaErrorNoKernelImageForDevice",
                 "Tesla T4 has compute capability 7.5, but the kernels need 8.0 or later");
  expect_opening(&t4, "cudaErrorUnsupportedPtxVersion",
                 "Tesla T4 has compute capability 7.5, but the kernels need 8.0 or later");
  expect_opening(&h200, "cudaErrorNoKernelImageForDevice",
                 "this build has no code for NVIDIA H200 (compute capability 9.0; the text of CUDA): rebuild with make "
                 "ARCH=90");
  expect_opening(&h200, "cudaErrorUnsupportedPtxVersion",
                 "the driver (CUDA 13.0) is too old to compile this build for NVIDIA H200 (compute capability 9.0): "
                 "update it, or rebuild with make ARCH=90");
  expect_opening(&h200, "cudaErrorOfAnotherTime", "NVIDIA H200: the text of CUDA (cudaErrorOfAnotherTime)");
}

typedef struct Failure {
  const char *error;
  bool computes, exact;
} Failure;

static void fail(void *context) {
  const Failure *f = context;
  fault_context(f->exact, "%s", f->computes ? "the recorded step" : "");
  die_context("step 7; R has step 5");
  fault_die(f->error, "the text of CUDA", "cudaSomething(x)", "cuda/some.cu", 12);
}

static void expect_failure(const Failure *f, const char *says) {
  const char *said;
  Failure copy = *f;
  EXPECT_INT(run_in_child(fail, &copy, &said), EXIT_RUN);
  const char *message = strstr(said, ": ");
  EXPECT_STR(message ? message + 2 : said, says);
}

TEST(fault_of_a_gpu_that_computes) {
  expect_failure(&(Failure){"cudaErrorIllegalAddress", true, false},
                 "a kernel accessed memory out of bounds; a bug in this program, please report it; --sync-nodes names "
                 "the layer (cudaErrorIllegalAddress in cudaSomething(x) at cuda/some.cu:12; last queued, up to two "
                 "steps ahead of the GPU: the recorded step) (step 7; R has step 5)\n");
  expect_failure(
      &(Failure){"cudaErrorIllegalAddress", true, true},
      "a kernel accessed memory out of bounds; a bug in this program, please report it (cudaErrorIllegalAddress in "
      "cudaSomething(x) at cuda/some.cu:12; in the recorded step) (step 7; R has step 5)\n");
  expect_failure(&(Failure){"cudaErrorUnknown", true, false},
                 "the GPU was lost: it fell off the bus or its driver was reset; look for a line with Xid in dmesg "
                 "(cudaErrorUnknown in cudaSomething(x) at cuda/some.cu:12; last queued, up to two steps ahead of the "
                 "GPU: the recorded step) (step 7; R has step 5)\n");
  expect_failure(&(Failure){"cudaErrorMemoryAllocation", false, false},
                 "out of memory on the GPU; reduce --batch, --size or --max-size (cudaErrorMemoryAllocation in "
                 "cudaSomething(x) at cuda/some.cu:12) (step 7; R has step 5)\n");
  expect_failure(
      &(Failure){"cudaErrorOfAnotherTime", false, false},
      "the text of CUDA (cudaErrorOfAnotherTime in cudaSomething(x) at cuda/some.cu:12) (step 7; R has step 5)\n");
}
