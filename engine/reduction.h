// Reduction: what happens to gradients once they are complete, while the walk goes on; queued and recorded with the
// step. Their squares are summed for the norm, part by part (GradSum), so that the norm does not depend on buckets or
// ranks. Before that, several ranks exchange them: gradients become their means over ranks in buckets, in the order in
// which the backward walk completes them, each overlapping with the rest of the walk (Li et al., "PyTorch Distributed",
// 2020). So do the losses and what ranks decide together: whether one is asked to stop, and whether one has no batch,
// which makes the step void. Whether the step is finite, the gradient norm and the update follow from these, and are
// the same on every rank.
#pragma once
#include "comm/collective.h"
#include "models/model.h"

// What is reduced besides gradients, by index: the losses, then
enum {
  AGREED_STOP = MAX_LOSSES, // above 0: a rank was asked to stop before this step
  AGREED_VOID,              // 0, or not finite: a rank had no batch, and nothing is updated
  AGREED
};

typedef enum ReduceType {
  REDUCE_F32,
  REDUCE_BF16, // gradients are sent and summed as BF16: half the bytes, eight bits of precision
  REDUCE_NONE  // no reduction: for benchmarks, to measure its cost
} ReduceType;
extern const char *const reduce_names[]; // "fp32", "bf16", "none", NULL

typedef struct ReductionOptions {
  Comm *comm; // NULL: a single rank
  ReduceType type;
  double bucket_mb; // minimum size of a bucket of gradients, except the last
  int ctas;         // maximum number of NCCL's thread blocks; 0: NCCL's default
  // Multiprocessors that persistent kernels of the backward walk leave to collectives; -1: as many as collectives use,
  // but only while reductions are expected to run concurrently.
  int reserve;
} ReductionOptions;

typedef struct PartRange { // first … end - 1
  int first, end;
} PartRange;

typedef struct Reduction {
  ReductionOptions o;
  Device *dev;
  Params *params;
  int reserved;    // multiprocessors left by nodes that leave any
  void *agreed;    // device, real [AGREED]; NULL: a single rank
  void *narrow;    // device, BF16 [params->trainable]
  GradSum *sums;   // device [grad_parts]
  int summed;      // of them, so far in the walk being queued
  PartRange *told; // [num_told] of them, in order: wgrad has summed these gradients, on the way
  int num_told;
  size_t reduced; // gradients reduced so far in it
  bool begun;     // with ranks, the losses are known: gradients complete before that wait for the first bucket behind
  int buckets;    // buckets of a walk
} Reduction;

// Watches the walks of a network.
typedef struct GradientWatch {
  Observer observer;
  Reduction *reduction;
  const Network *network;
  size_t *complete; // [nodes]: how many gradients, from the first on, are complete after a node's backward
  bool *overlaps;   // [nodes]: reductions are expected to overlap with the node's backward
} GradientWatch;

void reduction_init(Reduction *r, const ReductionOptions *o, Device *dev, Params *params);
size_t reduction_bytes(const Reduction *r);      // on the device; call once parameters are laid out
bool reduction_allocate(Reduction *r, Err *err); // call once parameters are allocated
void reduction_free(Reduction *r);

// Measures a graph's workspace both with and without multiprocessors left to collectives: graph_measure for each.
void reduction_measure(const Reduction *r, Graph *g);
// Lets wgrad sum the squares of the gradients that it alone writes (conv_squares of nn/ops.h), where nothing is
// exchanged and `g` is the only training graph. Call once this is allocated, before anything is queued.
void reduction_sum_in_wgrad(Reduction *r, Graph *g);
// Makes a training network's walks reduce gradients, and sum their squares. `w` must not move; call once parameters are
// allocated.
void reduction_watch(Reduction *r, GradientWatch *w, Network *n);
void gradient_watch_free(GradientWatch *w);

// The losses that decide whether a step is finite: `count` reals.
const void *reduction_losses(const Reduction *r, const Network *n, int *count);
