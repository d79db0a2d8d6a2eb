// One implementation of the three convolution ops. A device with several implementations lists them in
// `Device.conv_rungs`, and `device_choose_rung` selects one by name. cuda/conv/ holds a ladder of
// them; the CPU has two.
#pragma once
#include <stdio.h>
#include <string.h>
#include "nn/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct Rung Rung;
typedef enum ConvOp { CONV_FORWARD, CONV_DGRAD, CONV_WGRAD, CONV_OPS } ConvOp;

// The CPU's have no functions. Those of others have the contract of nn/ops.h, but for db: wgrad leaves it to its caller
// unless `wgrad_sums` is set.
// All are deterministic, and none is called for a problem that `supports` refuses.
struct Rung {
  const char *name;
  // Whether it computes `op` when the activation operand (x, or dy in dgrad) and the filter (dw in wgrad) have the
  // shapes and types of `in` and `w`.
  bool (*supports)(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w);
  void (*forward)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y);
  void (*dgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx);
  void (*wgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
  bool wgrad_sums;            // wgrad yields db, too
  void (*close)(Device *dev); // frees what the rung keeps on the device (device_kept); NULL: nothing
  // As conv_moments of nn/ops.h, wherever it can; NULL: nowhere.
  int (*moments)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y);
  // As conv_pools of nn/ops.h; NULL: no.
  bool (*pools)(Device *dev, const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w);
  // As conv_bottlenecks and conv_bottleneck of nn/ops.h; NULL: no, both.
  bool (*bottlenecks)(Device *dev, const Bottleneck *b, const Tensor *x);
  void (*bottleneck)(Device *dev, const Bottleneck *b, const Tensor *x, const Tensor *y);
  bool packs; // inference gives it filters as filter_pack of nn/ops.h makes them
  // Names of the threadblock tiles that forward in 16 bits can be asked for (Device.conv_tile), NULL at the end. NULL:
  // nobody chooses but the rung.
  const char *const *tiles;
  // As conv_wgrad_share of nn/ops.h; NULL: 0.
  int (*wgrad_share)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw);
  // As conv_squares of nn/ops.h; NULL: nowhere.
  int (*squares)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw);
};

// Whether inference packs filters: for the rung that was asked for, or, if none was, for any.
static inline bool rungs_pack(const Rung *const *rungs, const Rung *asked) {
  bool packs = asked && asked->packs;
  for (; !asked && rungs && *rungs; rungs++) packs |= (*rungs)->packs;
  return packs;
}

// The rung of that name in a list that ends with NULL; NULL: there is none.
static inline const Rung *rung_find(const Rung *const *rungs, const char *name) {
  for (; rungs && *rungs; rungs++)
    if (!strcmp((*rungs)->name, name)) return *rungs;
  return NULL;
}

// The names of such a list but that of `without` (NULL: all), with commas between them, behind what stands in `text`
// already.
static inline void rung_names(const Rung *const *rungs, const Rung *without, char *text, size_t size) {
  for (; rungs && *rungs; rungs++) {
    size_t length = strlen(text);
    if (*rungs != without) snprintf(text + length, size - length, "%s%s", length ? ", " : "", (*rungs)->name);
  }
}

#ifdef __cplusplus
}
#endif
