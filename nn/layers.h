// Layers: what a network is built of. Each function appends one node and returns its output.
#pragma once
#include "nn/graph.h"

// Convolution, y = relu(w · x + bias + addend).
typedef struct ConvLayer {
  int k, r, s, stride, pad;
  bool connected; // torch's weight is [k, c·r·s]
  bool relu, bias, trainable;
  Init init, bias_init;
  Value *addend;       // NULL, or the residual: same size, or half the size and upsampled
  const char *fold;    // NULL, or the name of a batch norm folded into it: <fold>.weight, .bias, .running_mean, …
  bool fold_trainable; // that norm's gamma and beta are parameters (trained elsewhere), not buffers
  float fold_eps;
  const char *sibling; // NULL, or the name of a layer that differs in its k alone, whose channels follow this one's, so
  int sibling_k;       // that the input is read once
  bool detached;       // its gradients are made elsewhere, from what else its parameters compute: none flows through it
  bool transposed;     // the transpose of a convolution with this stride: k = output channels, no padding
} ConvLayer;
// 3×3, as many pixels as its input, with bias and ReLU, trained.
ConvLayer conv_3x3(int k, Init init, Init bias_init);
Value *layer_conv(Graph *g, const char *name, Value *x, const ConvLayer *c);
// Declares its parameters, <name>.weight and <name>.bias, and gives them to a node, in this order; `in` channels.
void layer_conv_params(Graph *g, Node *n, const char *name, int in, const ConvLayer *c);
// ResNet's bottleneck as one node, where the device can (conv_bottleneck of nn/ops.h), norms are folded in, and no
// gradient has to flow back: then only y is in memory. NULL: not so, and nothing was appended.
typedef struct BottleneckLayer {
  const char *name[BOTTLENECK_CONVS]; // NULL for the projection: the shortcut is x
  ConvLayer conv[BOTTLENECK_CONVS];   // as each would be alone
} BottleneckLayer;
Value *layer_bottleneck(Graph *g, const char *name, Value *x, const BottleneckLayer *b);
// Fully connected over all of x, with a bias, trained: [n, 1, 1, k].
typedef struct Dense {
  int k;
  bool relu;
  Init init, bias_init;
} Dense;
Value *layer_dense(Graph *g, const char *name, Value *x, const Dense *d);
// The same weights over several inputs, as one node.
void layer_conv_shared(Graph *g, const char *name, int pairs, Value **x, Value **y, const ConvLayer *c);

// Two nodes with a ReLU pool their own output, if nobody else reads it, so that the values before pooling are in no
// memory: a convolution, where the device can and no gradient has to flow back (layer_conv_pooled), and a norm in a
// training graph by windows of 3 × 3 at stride 2 (layer_norm_pooled). Both then return x with its new shape, [h, w];
// else NULL.
Value *layer_max_pool(Graph *g, const char *name, Value *x, Pool pool);
Value *layer_conv_pooled(Graph *g, const char *name, Value *x, const Pool *pool);
Value *layer_norm_pooled(Graph *g, const char *name, Value *x, const Pool *pool, int h, int w);
Value *layer_max_pool_ceil(Graph *g, const char *name, Value *x, Pool pool); // windows rounded up: torch's ceil_mode
Value *layer_avg_pool(Graph *g, const char *name, Value *x, AvgPool pool, bool ceil);
Value *layer_adaptive_avg_pool(Graph *g, const char *name, Value *x, int h, int w); // 1 × 1 is global

// y = x[0], x[1] … side by side along channels; at most MAX_CONCAT.
Value *layer_concat(Graph *g, const char *name, int parts, Value **x);

// Group norm, or batch norm, y = relu(norm(x) + addend): in a training graph by the statistics of x, towards which the
// running ones move, elsewhere by those.
typedef struct NormLayer {
  bool batch;
  bool over_ranks; // batch norm: by the statistics of all ranks of the graph, not of this rank's images
  int groups;      // group norm
  float eps, momentum;
  bool relu, trainable;
  Value *addend;
  Pool pool; // of its output, by the same op: layer_norm_pooled sets it; size 0: none
} NormLayer;
Value *layer_norm(Graph *g, const char *name, Value *x, const NormLayer *n);
// Its parameters, for one that is appended later: their order is that in which they are first named.
enum { NORM_GAMMA, NORM_BETA, NORM_AFFINE, NORM_MEAN = NORM_AFFINE, NORM_VAR, NORM_PARAMS }; // batch norm has all
int layer_norm_params(Graph *g, const char *name, int c, const NormLayer *n, Param *p[NORM_PARAMS]); // how many
// Where its statistics are kept, real: mean, 1 / deviation.
Tensor layer_norm_stats(const Graph *g, const Tensor *x, const NormLayer *n);
// The moments of a convolution's output, real [parts, 3, c], which it then tells from here on; NULL: x is none, or the
// device cannot.
Value *layer_conv_moments(Graph *g, const Value *x);
// A convolution's filter whose gradient this node alone writes, and can tell the squares of, in so many sums, once the
// filter has GradSquares; NULL: the device cannot.
Param *layer_conv_squares(const Graph *g, const Node *n, int *sums);
// y = relu(norm(x) + norm(addend)) as one node, batch norm only in a training graph and not over ranks; `addend_name`:
// of the second norm's parameters.
Value *layer_norm_pair(Graph *g, const char *name, Value *x, const char *addend_name, const NormLayer *n);

// Dropout in a training graph, by the graph's seed, the layer's name and the step's number: x itself elsewhere, and for
// p = 0.
Value *layer_dropout(Graph *g, const char *name, Value *x, float p);

// Writes a classifier's loss to element `index` of losses [1, …] real, a result of several nodes perhaps, and its hits,
// from logits [n, 1, 1, classes] and VALUE_LABELS.
void layer_class_loss(Graph *g, const char *name, Value *logits, Value *labels, const ClassLoss *p, Value *losses,
                      int index, Value *hits);
// Probabilities [n, classes] real, ldc = classes.
Value *layer_class_probs(Graph *g, const char *name, Value *logits);
