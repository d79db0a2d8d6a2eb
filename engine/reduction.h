// Reduction: what ranks exchange in a training step. It is queued with the step and recorded with it. Gradients become
// their means over ranks in buckets, in the order in which the backward walk completes them, each overlapping with the
// rest of the walk (Li et al., "PyTorch Distributed", 2020). So do the losses, and with them what ranks have to decide
// together: whether one is asked to stop, and whether one has no batch, which makes the step void. Finite or not, the
// norm and the update follow from these, and are the same on every rank.
#pragma once
#include "comm/collective.h"
#include "models/model.h"

// What is reduced besides gradients, by index: the losses, then
enum {
  AGREED_STOP = MAX_LOSSES, // more than 0: a rank was asked to stop before this step
  AGREED_VOID,              // 0, or not finite: a rank had no batch, and nothing is updated
  AGREED
};

typedef enum ReduceType {
  REDUCE_F32,
  REDUCE_BF16, // gradients cross, and are summed, as BF16: half the bytes, eight bits of precision
  REDUCE_NONE  // not at all: for benchmarks, to see what reducing costs
} ReduceType;
extern const char *const reduce_names[]; // "fp32", "bf16", "none", NULL

typedef struct ReductionOptions {
  Comm *comm; // NULL: alone
  ReduceType type;
  double bucket_mb; // of gradients at least, but for the last bucket
  int ctas;         // thread blocks that collectives take at most; 0: NCCL's choice
  // Multiprocessors that persistent kernels of the backward walk leave to collectives; -1: as many as those take, and
  // only while reductions are expected to run concurrently.
  int reserve;
} ReductionOptions;

typedef struct Reduction {
  ReductionOptions o;
  Device *dev;
  Params *params;
  int reserved;   // multiprocessors, of nodes that leave any
  void *agreed;   // device, real [AGREED]; NULL: alone
  void *narrow;   // device, BF16 [params->trainable]
  size_t reduced; // gradients so far, of the walk that is being queued
  int buckets;    // of a walk
} Reduction;

// Watches the walks of a network.
typedef struct BucketWatch {
  Observer observer;
  Reduction *reduction;
  const Network *network;
  size_t *complete; // [nodes]: how many gradients, from the first on, are complete after a node's backward
  bool *overlaps;   // [nodes]: reductions are expected to overlap with the node's backward
} BucketWatch;

void reduction_init(Reduction *r, const ReductionOptions *o, Device *dev, Params *params);
size_t reduction_bytes(const Reduction *r);      // on the device; once parameters are laid out
bool reduction_allocate(Reduction *r, Err *err); // once parameters are allocated
void reduction_free(Reduction *r);

// Workspace of a graph, whether its kernels leave multiprocessors to collectives or not: graph_measure for each.
void reduction_measure(const Reduction *r, Graph *g);
// Has a training network's walks reduce. `w` must not move; once parameters are allocated.
void reduction_watch(Reduction *r, BucketWatch *w, Network *n);
void bucket_watch_free(BucketWatch *w);

// Losses that decide whether a step is finite: `count` reals at the address that is returned.
const void *reduction_losses(const Reduction *r, const Network *n, int *count);
