// Param: one learned or stored number array of a model. Params: all of them, and the flat buffers they lie in.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "nn/device.h"
#include "nn/ops.h"
#include "nn/tensor.h"

typedef enum Init { // as torch.nn.init names them; fans are those of torch's shape
  INIT_ZERO,
  INIT_ONE,
  INIT_NORMAL_001,      // N(0, 0.01²)
  INIT_KAIMING_NORMAL,  // N(0, 2 / fan_out): mode = fan_out, nonlinearity = relu
  INIT_KAIMING_FAN_IN,  // N(0, 2 / fan_in): mode = fan_in, nonlinearity = relu
  INIT_KAIMING_UNIFORM, // U(±√(3 / fan_in)): a = 1
  INIT_LINEAR,          // U(±1 / √fan_in): the default of Linear and Conv2d, weight and bias
} Init;

struct Param;

// Frozen (or inference-time) batch norm, folded: the convolution reads scale · w and adds shift.
typedef struct NormFold {
  struct Param *gamma, *beta, *mean, *var;
  float eps;
  void *scale, *shift; // device, real [c]
} NormFold;

typedef struct Param {
  char *name;
  ParamRole role;
  int ndim, dims[4]; // torchvision's shape
  bool filter;       // master is [k, r, s, c]: torch's [k, c, r, s] or, fully connected, [k, c·r·s]
  bool trainable;    // has gradient and momentum
  bool buffer;       // running statistics: not counted as a parameter, never trained
  bool moves;        // a buffer that every rank moves by its own images in training: param_moves
  Init init;
  float fan_in;                  // of a bias: that of its layer's weight (INIT_LINEAR)
  NormFold *fold;                // of a filter; NULL = none
  struct Param *behind, *before; // joined: stands directly behind this one in all buffers, and so is one tensor with it
  bool plain;                    // some convolution reads it without the fold
  int last_use;                  // backward step that completes its gradient; orders the flat buffers
  int contributions;             // to the gradient, counted by the graph
  GradSquares squares;           // of the gradient, where wgrad tells them
  Tensor master, grad, momentum; // real; grad and momentum (for Adam the first moment) only if trainable
  Tensor second;                 // Adam's second moment; like momentum, where Params.adam
  Tensor average;                // moving average of the master; like momentum, where Params.averages
  Tensor shadow, folded; // filters: what convolutions read, as it is or scaled by fold; shadow may be the master
  bool packs;            // inference reads `packed` instead, made of folded, or, without a fold, of shadow, …
  Conv conv;             // … for this convolution
  Tensor packed;
} Param;

// Elements in the flat buffers, padding channels included; a vector that another one stands behind has none.
static inline size_t param_extent(const Param *q) {
  return q->behind && !q->filter ? (size_t)q->dims[0] : tensor_elements(&q->master);
}

enum { ADAM_STATE = 3 }; // reals of Params.adam_state, as nn/ops.h has them

typedef struct Params {
  Device *dev;
  DType shadow_dtype; // of what convolutions read, and so of activations
  Param **list;
  int n;
  NormFold **folds;
  int num_folds;
  size_t elements, trainable, moving;    // flat sizes: the trainable ones stand first, then those that move
  bool adam;                             // set before they are laid out: there are second moments and a state
  bool averages;                         // … and moving averages of what is trained
  void *master, *grad, *momentum, *rest; // device, flat; rest: shadows, folds
  void *second, *adam_state; // device, flat: Adam's second moments, and behind them what Adam.state points to
  void *average;             // device, flat: moving averages
  void *agreed;     // device, real [PARAM_ALIGN] that end where grad begins: what is reduced with the first gradients
  UpdatePart *part; // device, [parts]: what is trained, with the shadows that training reads
  int parts;
  size_t rest_bytes, bytes; // of rest; of all of it
  int *order;               // [n] once laid out: indices into list, in the order of the flat buffers
} Params;
