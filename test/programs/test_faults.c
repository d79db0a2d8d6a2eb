// Catches GPU failures that damage a checkpoint, or whose message does not name the cause.
//
// GPU faults, in programs whose GPU is simulated and fails on demand (test/harness/faulty_device.c): the message, and
// that the checkpoint is intact and continues to the same bits.
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

// Six steps in a folder of test_tmp(), a checkpoint after every second.
static int train_with(const char *fault, const char *out, const char *more, const char **said) {
  return command(
      said,
      "FAULT=%s OMP_NUM_THREADS=1 %s --data %s --out %s --model tiny --size 64 --batch 1 --iters 6 --lr 0.01 "
      "--checkpoint-every 2 --seed 5 --eval-every never --threads 1 --resume %s",
      fault, tool("faulty/train"), shapes_set(), in_tmp(out), more);
}

static const char *file_of(const char *out, const char *file) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", out, file);
  return in_tmp(path);
}

// The run that meets no fault, made once.
static void make_whole_run(void) {
  const char *said;
  if (folder_fetch("unfaulted")) return;
  if (!EXPECT_INT(train_with("", "unfaulted", "", &said), 0)) printf("    %s\n", said);
  folder_keep("unfaulted");
}

// A run of two steps in the folder `out`, for a fault to meet as it goes on.
static void begin_run(const char *out) {
  const char *said;
  if (!folder_fetch("begun")) {
    EXPECT_INT(train_with("", "begun", "--stop-after 2", &said), 0);
    folder_keep("begun");
  }
  CHECK(!command(&said, "cp -r %s %s", in_tmp("begun"), in_tmp(out)));
}

static void expect_same_as_whole(const char *out) {
  EXPECT(same_file(file_of(out, "model.safetensors"), file_of("unfaulted", "model.safetensors")));
  EXPECT(same_file(file_of(out, "checkpoint.safetensors"), file_of("unfaulted", "checkpoint.safetensors")));
}

static void expect_said(const char *said, const char *want) {
  if (!EXPECT(strstr(said, want))) printf("    wanted: %s\n    said: %s\n", want, said);
}

// The step of the checkpoint in a folder.
static long step_saved(const char *out) {
  Checkpoint c;
  if (!ckpt_open(&c, file_of(out, "checkpoint.safetensors"), NULL)) return -1;
  long step = atol(ckpt_find_meta(&c, "step"));
  ckpt_close(&c);
  return step;
}

// The last line names the step, what was queued and the checkpoint that stands; a later one may just have been written.
static void expect_report(const char *said, const char *out, const char *sentence, const char *queued) {
  expect_said(said, sentence);
  expect_said(said, queued);
  const char *behind = strstr(said, ") (step "), *holds = behind ? strstr(behind, " has step ") : NULL;
  long step = -1, kept = -1;
  if (!EXPECT(holds && sscanf(behind, ") (step %ld;", &step) == 1 && strstr(holds, "; continue with --resume)\n")))
    return;
  sscanf(holds, " has step %ld,", &kept);
  EXPECT(kept >= 2 && step >= kept && step - kept <= 4); // what was being written is waited for
  EXPECT(step_saved(out) >= kept && step_saved(out) <= step);
}

TEST_TIER(faults_in_a_step_leave_the_checkpoint, 1) {
  static const struct {
    const char *fault, *sentence, *queued;
    bool replays; // what the stand-in replays computes nothing: no whole run follows
  } cases[] = {
      {"kernel:100:cudaErrorIllegalAddress", "a kernel accessed memory out of bounds; a bug in this program",
       "last queued, up to two steps ahead of the GPU: the training step of canvas 64 x 64 (h x w)", false},
      {"replay:2:cudaErrorLaunchFailure", "; --sync-nodes names the layer (cudaErrorLaunchFailure in replay() at ",
       "the recorded training step of canvas 64 x 64", true},
      {"stage_wait:3:cudaErrorUnknown", "train: the GPU was lost: it fell off the bus", "in stage_wait() at", false},
      {"stage:15:cudaErrorDevicesUnavailable", "train: the GPU was lost: it fell off the bus", "in stage() at", false},
      {"fetch:20:cudaErrorECCUncorrectable", "train: the GPU's memory failed", "in fetch() at", false},
      {"sync:2:cudaErrorUnknown", "train: the GPU was lost: it fell off the bus", "in sync() at", false}, // for results
      {"copy:20:cudaErrorNvlinkUncorrectable", "train: a link between GPUs failed", "in copy() at", false},
      {"save:3:cudaErrorUnknown", "train: the GPU was lost: it fell off the bus", "in save() at", false},
  };
  const char *said;
  make_whole_run();
  for (int i = 0; i < COUNT(cases); i++) {
    char out[32];
    snprintf(out, sizeof out, "fault-%d", i);
    begin_run(out);
    if (!EXPECT_INT(train_with(cases[i].fault, out, "", &said), 1)) printf("    %s: %s\n", cases[i].fault, said);
    expect_report(said, out, cases[i].sentence, cases[i].queued);
    if (cases[i].replays) continue;
    if (!EXPECT_INT(train_with("", out, "", &said), 0)) printf("    %s\n", said);
    expect_same_as_whole(out);
  }
}

// Met by the thread that writes: the save fails, and the program ends between two steps.
TEST_TIER(faults_in_a_save_leave_the_checkpoint, 1) {
  const char *said;
  make_whole_run();
  begin_run("fault-save");
  EXPECT_INT(train_with("save_wait:1:cudaErrorUnknown", "fault-save", "", &said), 1);
  expect_said(said, "the checkpoint could not be written: ");
  expect_said(said, ": not written: the device failed before the state was copied; ");
  expect_said(said, "checkpoint.safetensors has step 2; continue with --resume\n");
  EXPECT_INT(step_saved("fault-save"), 2);
  if (!EXPECT_INT(train_with("", "fault-save", "", &said), 0)) printf("    %s\n", said);
  expect_same_as_whole("fault-save");
}

TEST_TIER(faults_are_named_node_by_node, 1) {
  const char *said;
  make_whole_run();
  EXPECT_INT(train_with("", "node-by-node", "--sync-nodes", &said), 0);
  expect_same_as_whole("node-by-node");
  begin_run("node");
  EXPECT_INT(train_with("kernel:100:cudaErrorIllegalAddress", "node", "--sync-nodes", &said), 1);
  expect_report(said, "node", "(cudaErrorIllegalAddress in conv_kernel() at test/harness/faulty_device.c:",
                "; in the forward pass of ");
  EXPECT(strstr(said, " (conv)) (step ") && !strstr(said, "; --sync-nodes names the layer"));
  // A library that queues kernels of its own: found by waiting for the node.
  begin_run("node-waits");
  EXPECT_INT(train_with("sync:300:cudaErrorLaunchTimeout", "node-waits", "--sync-nodes", &said), 1);
  expect_report(
      said, "node-waits",
      "a kernel ran longer than the driver allows on a GPU with a display: use another GPU or a smaller --batch",
      " pass of ");
}

TEST_TIER(faults_while_opening_say_what_to_do, 1) {
  const char *said, *busy = "open:1:cudaErrorDevicesUnavailable";
  EXPECT_INT(train_with(busy, "busy", "--device cuda", &said), 2);
  EXPECT_STR(said, "train: --device cuda: test: busy: another process uses it exclusively (see nvidia-smi); wait for "
                   "it to end, or choose another GPU with --device cuda:N (cudaErrorDevicesUnavailable); to run "
                   "without a GPU, use --device cpu\n");
  EXPECT_INT(train_with("", "busy", "--device cuda:5", &said), 2);
  EXPECT_STR(
      said,
      "train: --device cuda:5: this machine has 1 GPU, counted from cuda:0; to run without a GPU, use --device cpu\n");
  EXPECT_INT(train_with("", "busy", "--device cuda:0x", &said), 2);
  EXPECT_STR(said, "train: --device cuda:0x: this build supports cpu and cuda:N\n");
  EXPECT_INT(train_with(busy, "busy", "--stop-after 1", &said), 0);
  expect_said(said, "\ndevice: CPU, 1 thread");
  expect_said(said, "; no GPU is used: test: busy: another process uses it exclusively (");
  // A mistake gets its one line, without a word on the device.
  EXPECT_INT(train_with(busy, "busy", "--tf32", &said), 2);
  EXPECT_STR(said, "train: --tf32 needs a GPU, but this run uses the CPU\n");
  make_whole_run();
  EXPECT_INT(command(&said, "FAULT=%s %s --data %s --weights %s --out %s", busy, tool("faulty/infer"), shapes_set(),
                     file_of("unfaulted", "model.safetensors"), in_tmp("busy-found")),
             0);
  expect_said(said, "; no GPU is used: test: busy: ");
}

TEST_TIER(faults_of_inference_name_what_was_queued, 1) {
  const char *said;
  make_whole_run();
  EXPECT_INT(command(&said, "FAULT=kernel:100:cudaErrorIllegalAddress %s --data %s --weights %s --out %s",
                     tool("faulty/infer"), shapes_set(), file_of("unfaulted", "model.safetensors"), in_tmp("faulted")),
             1);
  expect_said(said, "infer: a kernel accessed memory out of bounds; ");
  expect_said(said, "last queued, up to two steps ahead of the GPU: the inference of canvas 64 x 64 (h x w))");
  // Images that are named: the device is asked what it is before their handle is open.
  EXPECT_INT(command(&said, "FAULT=kernel:20:cudaErrorIllegalAddress %s %s/val --sync-nodes --weights %s --out %s",
                     tool("faulty/infer"), shapes_set(), file_of("unfaulted", "model.safetensors"), in_tmp("named")),
             1);
  expect_said(said, "(cudaErrorIllegalAddress in conv_kernel() at test/harness/faulty_device.c:");
}

static int train_on(const char *fault, const char **said) {
  return train_with(fault, "no-memory", "--eval-every 5", said);
}

static int infer_with(const char *fault, const char **said) {
  return command(said, "FAULT=%s OMP_NUM_THREADS=1 %s --data %s --weights %s --out %s --limit 2 --batch 2 --threads 1",
                 fault, tool("faulty/infer"), shapes_set(), file_of("unfaulted", "model.safetensors"),
                 in_tmp("no-memory"));
}

// The first, the second, … allocation of a program finds no memory, until the program makes none that could. Each ends
// it with one line: how much, what for and, unless it is a few bytes, what reduces it. What is saved stays as it is.
static void expect_each_refused(int (*run)(const char *fault, const char **said), const char *call) {
  const char *said;
  char fault[32];
  int n = 0;
  for (int status = 1; status == 1 && n < 100;) {
    snprintf(fault, sizeof fault, "%s:%d", call, ++n);
    status = run(fault, &said);
    if (status == 0) break;
    const char *what = strstr(said, ": out of memory: "), *end = strchr(said, '\n');
    bool says = what && strstr(what, "cannot allocate ") && (strstr(what, " bytes") || strstr(what, "; reduce "));
    if (!EXPECT(status == 1 && says && end && !end[1])) printf("    %s: %s\n", fault, said);
    EXPECT(same_file(file_of("no-memory", "checkpoint.safetensors"), file_of("no-memory", "before")));
  }
  EXPECT(n > 5);
  printf("  %s: %d refused\n", call, n - 1);
}

TEST_TIER(faults_of_every_allocation_are_out_of_memory, 1) {
  const char *said;
  make_whole_run();
  EXPECT_INT(train_with("", "no-memory", "--stop-after 4", &said), 0);
  CHECK(!command(NULL, "cp %s %s", file_of("no-memory", "checkpoint.safetensors"), file_of("no-memory", "before")));
  expect_each_refused(infer_with, "alloc");
  expect_each_refused(infer_with, "host_alloc");
  expect_each_refused(train_on, "alloc");
  expect_same_as_whole("no-memory");
  CHECK(!command(NULL, "cp %s %s", file_of("no-memory", "before"), file_of("no-memory", "checkpoint.safetensors")));
  expect_each_refused(train_on, "host_alloc");
  expect_same_as_whole("no-memory");
}
