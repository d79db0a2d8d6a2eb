// Collectives over device memory, each implemented twice: NCCL on GPUs, queued on the device in order with the ops
// around it; TCP through rank 0 on the CPU, synchronous, summed in the order of ranks. The same bits on every rank, and
// in every run with the same world. With a single rank (NULL) they do nothing, except that an all-gather copies.
//
// TCP exists so that everything except NCCL itself runs in tests; it is too slow for training on many CPUs.
#pragma once
#include "base/error.h"
#include "comm/comm.h"
#include "nn/collective.h"

// Prepares the device's collectives: nothing on the CPU; on a GPU opens NCCL with `ctas` thread blocks (CTAs), each of
// which occupies a multiprocessor; 0: NCCL's default. Every rank calls it. False with a line that names the missing or
// outdated library and its package; the caller must die with it, which ends the run.
bool collective_open(Comm *c, Device *dev, int ctas, Err *err);
void collective_close(Comm *c); // before the device is closed; does nothing if nothing was opened

// The stream on which a collective is queued: that of the ops, or the side stream, between device_fork and device_join.
// No collective waits for the device, or does anything while the device is measuring.
typedef enum CommQueue { COMM_WITH_OPS, COMM_SIDE_STREAM } CommQueue;

// Replaces p[n] on every rank by the mean over ranks: over TCP the sum in the order of ranks divided by their number,
// for BF16 in float; over NCCL the sum of the ranks' values times 1 / world in NCCL's order. F32, BF16, or on the CPU
// F64.
void collective_mean(Comm *c, Device *dev, CommQueue queue, void *p, size_t n, DType dtype);
// Gathers `mine` [n] of every rank in all[world][n] on every rank; `mine` may be this rank's part of `all`. Types as
// above.
void collective_all_gather(Comm *c, Device *dev, CommQueue queue, const void *mine, void *all, size_t n, DType dtype);
// The ranks in the form for graphs, whose all_gather is the one above on the stream of the ops; NULL: a single rank.
const RankGroup *collective_group(Comm *c);
// Copies p of rank 0 to every rank.
void collective_broadcast(Comm *c, Device *dev, CommQueue queue, void *p, size_t bytes);

// For the log: "nccl" or "tcp" (NULL: a single rank), NCCL's version (0: none), the requested CTAs, and the environment
// variables NCCL_… as a JSON object of strings; malloc'ed.
typedef struct CollectiveFacts {
  const char *transport;
  int nccl_version; // 22907 for 2.29.7
  int ctas;
  char *variables;
} CollectiveFacts;
void collective_facts(const Comm *c, CollectiveFacts *out);
