// One file of test/goldens: its weights and images drawn from the hash on a device, and its numbers to be held against.
#pragma once
#include "engine/engine.h"
#include "weights/checkpoint.h"

enum { GOLDEN_IMAGES = 2 }; // of the data set, and of a batch

typedef struct Golden {
  const char *name, *device;
  Checkpoint file;
  uint64_t seed;
  Dataset data;
  Engine engine; // for training and inference, with the weights
  bool exact;    // in double
  double noise;  // by how many times the stored noise ours may be off
} Golden;

// "r18-objects" on "cpu64". False, reported as a failed check, when that cannot be; close it in any case.
bool golden_open(Golden *g, const char *name, const char *device);
void golden_close(Golden *g);
float *golden_weights(const Golden *g, const Param *q); // as drawn, in torch's shape and order; caller frees
Loader *golden_loader(const Golden *g, bool train);
const Batch *golden_batch(Loader *loader); // the next one

// Each reports one failed check at most, which names case, tensor, index in torch's shape, our number and
// torchvision's. n numbers in torch's order; `shape` is for the message.
void golden_values(const Golden *g, const char *name, const double *v, size_t n, const Tensor *shape);
void golden_ints(const Golden *g, const char *name, const int *v, int n);
bool golden_near(const Golden *g, const char *name, const char *where, double ours, double theirs, double limit);
const CkptTensor *golden_tensor(const Golden *g, const char *name, CkptType type); // NULL: reported

// The same for what is on the device: `rows` rows n from `first`, n whole numbers.
void golden_rows(const Golden *g, const char *name, const Tensor *t, int first, int rows);
void golden_device_ints(const Golden *g, const char *name, const int *device, int n);
void *golden_fetch(const Golden *g, const void *device, size_t bytes); // caller frees
int golden_fetch_int(const Golden *g, const int *device);
// In torch's order [n, c, h, w]; *n of them; caller frees.
double *golden_fetch_rows(const Golden *g, const Tensor *t, int first, int rows, size_t *n);
