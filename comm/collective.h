// Collectives over device memory, for each its two ways side by side: NCCL on GPUs, queued on the device in order with
// the ops around it; TCP through rank 0 on the CPU, at once, summed in the order of ranks. The same bits on every rank,
// and for the same world in every run. Alone (NULL) they do nothing, but for an all-gather, which copies.
//
// The TCP way exists so that everything but NCCL itself runs in tests; it is no way to train on many CPUs.
#pragma once
#include "base/error.h"
#include "comm/comm.h"
#include "nn/collective.h"

// Readies the device's collectives: nothing on the CPU; on a GPU opens NCCL with so many of its thread blocks (CTAs),
// each of which takes a multiprocessor; 0: NCCL's choice. Every rank calls it. False with a line that names the
// library that is missing or too old, and the package: die by it, as with one error of a rank the run ends.
bool collective_open(Comm *c, Device *dev, int ctas, Err *err);
void collective_close(Comm *c); // before the device is; nothing where nothing was opened

// The stream on which a collective is queued: that of the ops, or the side stream, between device_fork and device_join.
// None of them waits for the device, or does anything while that measures.
typedef enum CommQueue { COMM_WITH_OPS, COMM_SIDE_STREAM } CommQueue;

// p[n] of every rank becomes the mean over ranks: over TCP the sum in the order of ranks, divided by their number, of
// BF16 in float; over NCCL a sum of n-ths in NCCL's order. F32, BF16, or the CPU's F64.
void collective_mean(Comm *c, Device *dev, CommQueue queue, void *p, size_t n, DType dtype);
// all[world][n] of every rank: `mine` of every rank; `mine` may be this rank's part of `all`. Same types as above.
void collective_all_gather(Comm *c, Device *dev, CommQueue queue, const void *mine, void *all, size_t n, DType dtype);
// The ranks as a graph knows them, whose all_gather is the one above, with the ops; NULL: alone.
const RankGroup *collective_group(Comm *c);
// p of every rank becomes rank 0's.
void collective_broadcast(Comm *c, Device *dev, CommQueue queue, void *p, size_t bytes);

// For the log: "nccl" or "tcp" (NULL: alone), NCCL's version (0: none), the CTAs that were asked for, and the variables
// NCCL_… that are set, as a JSON object of strings; malloc'ed.
typedef struct CollectiveFacts {
  const char *transport;
  int nccl_version; // 22907 for 2.29.7
  int ctas;
  char *variables;
} CollectiveFacts;
void collective_facts(const Comm *c, CollectiveFacts *out);
