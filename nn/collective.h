// The ranks that share a batch, as a graph's nodes know them; comm/collective.h makes one of a Comm.
#pragma once
#include <stddef.h>
#include "nn/device.h"

typedef struct RankGroup RankGroup; // NULL: this rank is alone
struct RankGroup {
  int rank, world;
  // all[world][n] of every rank: `mine` of every rank; `mine` may be this rank's part of `all`. Queued with the ops;
  // nothing while the device measures.
  void (*all_gather)(const RankGroup *group, Device *dev, const void *mine, void *all, size_t n, DType dtype);
};

static inline int group_rank(const RankGroup *g) { return g ? g->rank : 0; }
static inline int group_world(const RankGroup *g) { return g ? g->world : 1; }
