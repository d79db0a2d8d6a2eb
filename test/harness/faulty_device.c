// A stand-in for CUDA in the programs that tests run from build/faulty/: the CPU behind the row of a GPU, which fails
// when the variable FAULT says so. FAULT=CALL:N:ERROR has the N-th CALL (a function of struct Memory, or "kernel": a
// convolution) meet that error of CUDA, FAULT_GPU=M that of GPU M alone; an allocation without ERROR finds no memory.
// As on a GPU, the fault of a kernel is found by the next call that waits, and by the kernel's own launch where the
// first device that the process opened waits for it.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "nn/device.h"
#include "nn/fault.h"
#include "nn/op_list.h"
#include "nn/ops.h"
#include "nn/timing.h"

static struct {
  char call[32], error[64];
  long left;             // calls until the fault; 0: it is over, or there is none
  const char *unnoticed; // the error of a kernel that no call has found yet
  bool opened, waits;    // a device, and whether the first one does
} fault;

static void read_fault(int gpu) {
  const char *text = getenv("FAULT"), *which = getenv("FAULT_GPU");
  if (which && atoi(which) != gpu) return;
  if (!text || !*text || *fault.call) return; // nothing is asked for, or an earlier device has read it
  CHECK(sscanf(text, "%31[a-z_]:%ld:%63s", fault.call, &fault.left, fault.error) >= 2);
}

// Whether this call is the one.
static bool falls_on(const char *call) { return !strcmp(fault.call, call) && fault.left > 0 && --fault.left == 0; }

#define REPORT(error, call) fault_die(error, "a fault of the test's", call "()", __FILE__, __LINE__)
#define MEET(call)                                                                                                     \
  if (fault.unnoticed || falls_on(call)) REPORT(fault.error, call)

// ---- kernels --------------------------------------------------------------------------------------------------------

static void faulty_conv_forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w,
                                const Dest *y) {
  if (!dev->measuring && falls_on("kernel")) fault.unnoticed = fault.error;
  if (fault.unnoticed && fault.waits) REPORT(fault.error, "conv_kernel");
  ops_of_cpu()->conv_forward(dev, conv, pairs, x, w, y);
}

// The functions of the CPU's table, under the names that cpu/ops.c has for them. Opened, the device has those of the
// level that the CPU takes, so that it computes the same bits.
#define DECLARE(op) __typeof__(*ops_cpu.op) cpu_##op;
EACH_OP(DECLARE)
#define ROW(op) .op = cpu_##op,
const Ops ops_cuda = {.name = "faulty", EACH_OP(ROW)};
static Ops ops_faulty;

// ---- which there are ------------------------------------------------------------------------------------------------

// FAULTY_GPUS=N: so many, of which those with an even number are known by their place; else one.
static int num_gpus(void) {
  const char *n = getenv("FAULTY_GPUS");
  return n ? atoi(n) : 1;
}

static bool faulty_locate(GpuList *gpus, Err *err) {
  read_fault(0);
  gpus->count = num_gpus();
  const GpuOffer offer = {.driver = 13000, .runtime = 13000, .count = gpus->count};
  if (falls_on("locate")) { // without an error: the driver takes the process along
    if (!*fault.error) raise(SIGKILL);
    return fault_opening(&offer, fault.error, "a fault of the test's", err);
  }
  for (int i = 0; i < gpus->count; i += 2) snprintf(gpus->bus_id[i], BUS_ID, "0000:%02X:00.0", i + 0x1a);
  for (int i = 0; i < gpus->count; i++) snprintf(gpus->name[i], sizeof gpus->name[i], "a GPU of the tests");
  return gpus->count > 0 || fault_opening(&offer, "cudaSuccess", "", err);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

static bool faulty_open(Device *dev, Err *err) {
  read_fault(dev->index);
  if (!fault.opened) fault.waits = dev->waits;
  fault.opened = true;
  ops_faulty = *ops_of_cpu();
  ops_faulty.conv_forward = faulty_conv_forward;
  dev->ops = &ops_faulty;
  snprintf(dev->description, sizeof dev->description, "a GPU of the tests");
  const GpuOffer offer = {
      .driver = 13000, .runtime = 13000, .count = num_gpus(), .index = dev->index, .name = "test", .major = 8};
  dev->multiprocessors = dev->granted = 132; // an H200's, some of which collectives may be left
  if (dev->index >= offer.count) return fault_opening(&offer, "cudaSuccess", "", err);
  return !falls_on("open") || fault_opening(&offer, fault.error, "a fault of the test's", err);
}

static void *faulty_alloc(Device *dev, size_t bytes) {
  bool now = falls_on("alloc");
  if (fault.unnoticed || (now && *fault.error)) REPORT(fault.error, "alloc");
  return now ? NULL : memory_cpu.alloc(dev, bytes);
}
static void *faulty_host_alloc(Device *dev, size_t bytes) {
  bool now = falls_on("host_alloc");
  if (fault.unnoticed || (now && *fault.error)) REPORT(fault.error, "host_alloc");
  return now ? NULL : memory_cpu.host_alloc(dev, bytes);
}

#define COPY(call)                                                                                                     \
  static void faulty_##call(Device *dev, void *dst, const void *src, size_t bytes) {                                   \
    if (falls_on(#call)) REPORT(fault.error, #call);                                                                   \
    memory_cpu.call(dev, dst, src, bytes);                                                                             \
  }
COPY(upload)
COPY(copy)
COPY(fetch)
COPY(save)
COPY(stage)

static void faulty_download(Device *dev, void *host, const void *src, size_t bytes) {
  MEET("download");
  memory_cpu.download(dev, host, src, bytes);
}
static void *faulty_mark_open(Device *dev) { return dev; }
static void faulty_mark_close(Device *dev, void *mark) { CHECK(mark == dev); }
static void faulty_mark_set(Device *dev, void *mark) { CHECK(mark == dev); }
static bool faulty_mark_reached(Device *dev, void *mark) {
  CHECK(mark == dev);
  MEET("mark_reached");
  return true;
}
static void faulty_mark_wait(Device *dev, void *mark) {
  CHECK(mark == dev);
  MEET("mark_wait");
}
static void faulty_sync(Device *dev) {
  MEET("sync");
  memory_cpu.sync(dev);
}
static void faulty_stage_wait(Device *dev) {
  MEET("stage_wait");
  memory_cpu.stage_wait(dev);
}
static bool faulty_save_wait(Device *dev) { return !falls_on("save_wait") && memory_cpu.save_wait(dev); }
static bool faulty_idle(Device *dev) {
  MEET("idle");
  return memory_cpu.idle(dev);
}

// Steps are recorded where a replay is to fail. What is recorded is computed once, then, and replaying it does nothing.
static bool faulty_record(Device *dev) {
  (void)dev;
  return !strcmp(fault.call, "replay");
}
static void *faulty_record_end(Device *dev) { return dev; }
static void faulty_replay(Device *dev, void *program) {
  CHECK(program == dev);
  MEET("replay");
}
static void faulty_forget(Device *dev, void *program) { CHECK(program == dev); }

static bool faulty_read_rows(Device *dev, void *host, const void *src, size_t pitch, size_t row, size_t rows,
                             Err *err) {
  (void)dev;
  if (falls_on("read_rows")) return err_set(err, "data does not point to memory of GPU 0");
  for (size_t y = 0; y < rows; y++) memcpy((char *)host + y * row, (const char *)src + y * pitch, row);
  return true;
}
static void faulty_free(Device *dev, void *p) { memory_cpu.free(dev, p); }
static void faulty_host_free(Device *dev, void *p) { memory_cpu.host_free(dev, p); }
static void faulty_zero(Device *dev, void *p, size_t bytes) { memory_cpu.zero(dev, p, bytes); }
static void nothing(Device *dev) { (void)dev; }

const Memory memory_cuda = {.open = faulty_open,
                            .close = nothing,
                            .alloc = faulty_alloc,
                            .free = faulty_free,
                            .upload = faulty_upload,
                            .download = faulty_download,
                            .copy = faulty_copy,
                            .zero = faulty_zero,
                            .sync = faulty_sync,
                            .idle = faulty_idle,
                            .host_alloc = faulty_host_alloc,
                            .host_free = faulty_host_free,
                            .fetch = faulty_fetch,
                            .save = faulty_save,
                            .save_wait = faulty_save_wait,
                            .stage = faulty_stage,
                            .stage_wait = faulty_stage_wait,
                            .stage_join = nothing,
                            .stage_next = nothing,
                            .mark_open = faulty_mark_open,
                            .mark_close = faulty_mark_close,
                            .mark_set = faulty_mark_set,
                            .mark_reached = faulty_mark_reached,
                            .mark_wait = faulty_mark_wait,
                            .fork = nothing,
                            .join = nothing,
                            .record = faulty_record,
                            .record_end = faulty_record_end,
                            .replay = faulty_replay,
                            .forget = faulty_forget,
                            .read_rows = faulty_read_rows,
                            .timing = &timing_cpu,
                            .locate = faulty_locate};
