// Device: where memory lives and ops run. "cpu", "cpu64" (double, for gradient checks and goldens), "cuda:0", or
// "auto": the first GPU where the build knows one and it can be used, else the CPU. "cpu-v3": the ops as compiled for
// x86-64-v3; "cpu" takes the highest level that the CPU has.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include "base/error.h"
#include "nn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Ops Ops;
typedef struct Rung Rung;     // one implementation of the convolution ops; nn/rung.h
typedef struct Memory Memory; // how a type of device allocates and copies; cpu/device.c, cuda/device.cu
typedef struct Timing Timing; // how it is measured; nn/timing.h
typedef struct Record Record;
typedef struct GpuFacts GpuFacts;

// Queues of ops, which a GPU runs beside each other; elsewhere they are one.
typedef enum Queue {
  QUEUE_OPS,
  QUEUE_BESIDE,    // small kernels that products wait for: before all others
  QUEUE_GRADIENTS, // gradients of parameters, for which only the update waits: behind all others
  QUEUE_SIDE,      // of `side_stream`, for what follows a collective
  QUEUES
} Queue;

typedef struct Device {
  const Ops *ops;
  const Memory *memory;
  DType real; // dtype of masters, boxes and losses: F64 on cpu64, F32 elsewhere
  int index;  // which GPU; of the CPU, the level of x86-64 that was asked for, 0: the highest
  bool gpu;
  bool wgmma; // CUDA: the code that was loaded has Hopper's products, which only code for sm_90a has
  bool waits; // for every kernel where it is launched, so that an error is that kernel's; slow
  char description[128];
  char why_cpu[256];          // "auto" found no GPU that it can use; "": it did, or was not asked, or knows none
  void *stream;               // CUDA: every op and copy is queued here, in order: the stream of `queue`, …
  void *stage;                // … but for copies of what the next step will read, which have a queue of their own
  void *save;                 // … and so have copies of what is to be saved
  void *side_stream;          // … and so have collectives that overlap with the ops, at a high priority: device_fork
  void *turns;                // the events by which this queue and the ops' wait for each other
  Queue queue;                // the current one: device_queue
  void *queue_stream[QUEUES]; // CUDA; NULL: there is one queue
  int multiprocessors;        // GPU: how many there are
  int granted; // GPU: how many of them kernels that stay on theirs for all tiles (persistent) may take; the others are
               // left to collectives. All, unless set before workspace is measured. How many are missing decides how
               // wgrad's sums are split, and no other bits
  int lent;    // GPU: how many of those granted products of forward and dgrad leave to ops in the second queue. No bits
               // depend on it
  bool contended;   // GPU: ops of other queues run beside: no grid begins early, to wait on multiprocessors
  bool every_value; // each layer's output is in memory, for who looks at it: no op computes a layer and the next
  bool tf32;        // CUDA: fp32 convolutions may round their operands to TF32
  const Rung *const *conv_rungs; // all implementations of the convolution ops, NULL at the end; cpu64 has no list
  const Rung *conv_rung; // the one asked for: computes what it supports; NULL, and for the rest: the fastest of ours
  const char *conv_tile; // one of Rung.tiles: forward takes it where it can, for measurements and tests; NULL: the rung
                         // chooses
  void **conv_kept;      // what each of conv_rungs keeps on this device, in their order: device_kept
  void *workspace;
  size_t workspace_bytes;
  void *queue_workspace[QUEUES]; // of the other queues, each its own
  size_t queue_bytes[QUEUES];
  // While true, ops only state what workspace they would take: workspace_bytes (also queue_bytes of another queue,
  // whose ops may have to run in the first one as well) grows to the largest, nothing is computed, no data is touched.
  // The graph walks its list once like this before the memory plan is made.
  bool measuring;
} Device;

// NULL with a message when the name is unknown, the device is absent or its table has a missing entry.
Device *device_open(const char *name, Err *err);
Device *device_open_waiting(const char *name, Err *err); // one that `waits`

// The GPUs that a process like this one can open, in the order of cuda:N. A child finds them and ends, so that this
// process has not woken the driver, whose state no fork survives. False with why there is none that can be used.
enum { MAX_LOCATED = 64, BUS_ID = 32 };
typedef struct GpuList {
  int count;
  char bus_id[MAX_LOCATED][BUS_ID]; // where each is in the machine, as "0000:1b:00.0"; "": not known
  char name[MAX_LOCATED][64];       // "NVIDIA H200"
  size_t bytes[MAX_LOCATED];        // of its memory; 0: not known
} GpuList;
bool device_locate(GpuList *gpus, Err *err);
// The same in this process, whose driver it wakes. No GPU is opened.
bool device_locate_here(GpuList *gpus, Err *err);

// "device: ", the description and, where "auto" took the CPU for want of a GPU, why; one line.
void device_print(const Device *dev, FILE *out);
void device_close(Device *dev);

// Asks for the rung that computes convolutions from here on, by name; NULL or "auto": the fastest for each problem.
// With "/" and one of the rung's tiles behind it, as "auto/128x256", for that tile. False, with a message that lists
// the names, when there is none of that name.
bool device_choose_rung(Device *dev, const char *name, Err *err);

// For a rung of the device: where it keeps what it wants to find again. NULL at first; its `close` frees it.
void **device_kept(Device *dev, const Rung *rung);

void *device_alloc(Device *dev, size_t bytes); // zeroed; NULL when there is not enough
void device_free(Device *dev, void *p);
size_t device_available(Device *dev); // bytes that are free now; 0 where that is not known
void device_upload(Device *dev, void *dst, const void *host, size_t bytes);
void device_download(Device *dev, void *host, const void *src, size_t bytes); // waits for what was queued before
void device_copy(Device *dev, void *dst, const void *src, size_t bytes);      // within the device
void device_zero(Device *dev, void *p, size_t bytes);
void device_sync(Device *dev);
bool device_idle(Device *dev); // nothing is left of what was queued
// Adds when, by which build and on which machine a record is made (base/machine.h), the GPU included where this is one.
void device_origin(Device *dev, Record *r);

// Copies that overlap with computation. They need host memory that the device reads and writes by itself (pinned):
void *device_host_alloc(Device *dev, size_t bytes); // NULL when there is not enough
void device_host_free(Device *dev, void *p);
// Queues a copy to the host; it is there once something queued later is known to have run.
void device_fetch(Device *dev, void *host, const void *src, size_t bytes);
// Queues a copy to the host, behind what has been queued so far, that runs while ops compute: `src` must stay as it is.
void device_save(Device *dev, void *host, const void *src, size_t bytes);
// Until everything saved is there; for any thread. False when the device has failed, which the next call that waits for
// it reports.
bool device_save_wait(Device *dev);
// Copies rows of a caller's memory on this GPU to the host, densely, and waits for that alone, not for what is queued.
// False with a message if it is not such memory, or not so much of it.
bool device_read_rows(Device *dev, void *host, const void *src, size_t pitch, size_t row, size_t rows, Err *err);
// Queues a copy to the device that runs while ops compute.
void device_stage(Device *dev, void *dst, const void *host, size_t bytes);
// Waits until everything staged has arrived: `host` is free again, and ops queued from here on see it.
void device_stage_wait(Device *dev);
// The same without waiting: `host` must stay as it is until something queued from here on is known to have run.
void device_stage_join(Device *dev);
// What is staged from here on overwrites `dst` only after what has been queued so far has read it.
void device_stage_next(Device *dev);

// Marks in the queue of ops, as many as wanted: a mark is reached when all is done that was queued before it was set
// last. One that was never set is reached.
void *device_mark_open(Device *dev);
void device_mark_close(Device *dev, void *mark);
void device_mark_set(Device *dev, void *mark);
bool device_mark_reached(Device *dev, void *mark);
void device_mark_wait(Device *dev, void *mark);   // until it is reached
void device_mark_follow(Device *dev, void *mark); // ops queued from here on wait until it is reached

// Ops queued from here on are in that queue, with its workspace, beside those of the others but for marks that they
// follow. Where the device has one queue, only the workspace is another.
bool device_has_queues(const Device *dev);
void device_queue(Device *dev, Queue queue);

// A side stream for collectives: from device_fork on, dev->side_stream waits for all ops queued so far; ops queued
// after device_join wait for all that it holds. On the CPU there is none, and both do nothing. They may be recorded;
// what is then forked has to be joined before the record ends.
void device_fork(Device *dev);
void device_join(Device *dev);

// The op's workspace, uninitialised, 64-byte aligned. Every op that needs one calls this first and returns when it is
// NULL; every op that needs none begins with `if (dev->measuring) return;`.
void *device_workspace(Device *dev, size_t bytes);
bool device_reserve_workspace(Device *dev, Err *err); // allocates what was measured

// Records what is queued between the two calls, instead of running it, as one program that device_replay runs as often
// as wanted. device_record is false where a device cannot (the CPU); then nothing is recorded.
bool device_record(Device *dev);
void *device_record_end(Device *dev); // the program
void device_replay(Device *dev, void *program);
void device_forget(Device *dev, void *program);

// For the back ends: one row per device type.
struct Memory {
  bool (*open)(Device *dev, Err *err); // describes the device; err: why it cannot be used
  void (*close)(Device *dev);
  void *(*alloc)(Device *dev, size_t bytes);
  void (*free)(Device *dev, void *p);
  void (*upload)(Device *dev, void *dst, const void *host, size_t bytes);
  void (*download)(Device *dev, void *host, const void *src, size_t bytes);
  void (*copy)(Device *dev, void *dst, const void *src, size_t bytes);
  void (*zero)(Device *dev, void *p, size_t bytes);
  void (*sync)(Device *dev);
  bool (*idle)(Device *dev);
  void *(*host_alloc)(Device *dev, size_t bytes);
  void (*host_free)(Device *dev, void *p);
  void (*fetch)(Device *dev, void *host, const void *src, size_t bytes);
  void (*save)(Device *dev, void *host, const void *src, size_t bytes);
  bool (*save_wait)(Device *dev);
  void (*stage)(Device *dev, void *dst, const void *host, size_t bytes);
  void (*stage_wait)(Device *dev);
  void (*stage_next)(Device *dev);
  void (*fork)(Device *dev); // NULL, as is join: the device has no side stream
  void (*join)(Device *dev);
  size_t (*available)(Device *dev); // NULL: not known
  bool (*record)(Device *dev);      // NULL, and the following too: it cannot
  void *(*record_end)(Device *dev);
  void (*replay)(Device *dev, void *program);
  void (*forget)(Device *dev, void *program);
  const Timing *timing;
  void (*describe)(Device *dev, GpuFacts *facts); // NULL: no GPU
  bool (*locate)(GpuList *gpus, Err *err);        // NULL: no GPU; wakes the driver
  void (*stage_join)(Device *dev);
  void *(*mark_open)(Device *dev); // NULL, and the following too: what is queued is done at once
  void (*mark_close)(Device *dev, void *mark);
  void (*mark_set)(Device *dev, void *mark);
  bool (*mark_reached)(Device *dev, void *mark);
  void (*mark_wait)(Device *dev, void *mark);
  void (*mark_follow)(Device *dev, void *mark);
  // NULL: no GPU
  bool (*read_rows)(Device *dev, void *host, const void *src, size_t pitch, size_t row, size_t rows, Err *err);
};
extern const Memory memory_cpu, memory_cuda;

#ifdef __cplusplus
}
#endif
