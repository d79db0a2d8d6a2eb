// Small networks for tests of the graph, in double: inputs and loss weights outside the arena, a loss Σ r · y, and
// every property that a walk must have.
#pragma once
#include "nn/layers.h"
#include "test/harness/op.h"
#include "test/harness/poison.h"

enum { MAX_NET_TENSORS = 24 };

typedef struct Net {
  Device *dev;
  Params params;
  Graph graph;
  Poison poison;
  void *arena;
  uint64_t key, draws;
  Tensor tensor[MAX_NET_TENSORS]; // inputs and loss weights
  int tensors;
  double loss, magnitude; // of the last forward walk: Σ r · y and Σ |r · y|
} Net;
typedef void NetBuild(Net *net); // appends nodes

// Builds, plans, allocates, and draws the parameters: biases and shifts in ±0.5, norm scales and variances in 0.5 …
// 1.5.
void net_open(Net *net, NetBuild *build, uint64_t key, bool poison);
void net_close(Net *net);
// One forward and one backward walk; gradients start as NaN, so that one which is only added to is seen.
void net_run(Net *net);

// For builders.
int net_pick(Net *net, int low, int high); // a random size, both inclusive
Value *net_input(Net *net, int n, int h, int w, int c);
void net_loss(Net *net, Value *y); // adds Σ r · y
Value *net_conv(Net *net, const char *name, Value *x, int k, int taps, int stride, bool relu, Value *addend);
// A trainable 1×1 convolution of a new input: what a gradient has to flow back to.
Value *net_stem(Net *net, const char *name, int n, int h, int w, int c, bool relu);

// Of every parameter's gradient an element in several is held against central differences; the walk gives the same bits
// when repeated, with poisoned memory, and with three threads (two, one in later rounds). `rounds` draws of the sizes.
void check_net(NetBuild *build, int rounds);

// ---- of any model's parameters -------------------------------------------------------------------------------------

// Where logical element i of a parameter stands in its buffer.
size_t param_element(const Param *q, size_t i);
// All trainable gradients, without padding. Caller frees.
double *copy_gradients(const Params *p, size_t *n);
