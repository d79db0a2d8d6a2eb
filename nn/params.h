// Params: every learned or stored number of a model, by torchvision's state_dict name, over flat buffers, so that the
// optimiser is one pass and an all-reduce takes contiguous memory.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

// Two filters over the same input, with their biases, as one: a convolution's first channels, then its others.
typedef struct FilterJoin {
  struct Param *filter[2], *bias[2];
  Tensor filters; // [k + k, r, s, c], as their shadows
  void *biases;   // device, real [k + k]
} FilterJoin;

typedef struct Param {
  char *name;
  ParamKind kind;
  int ndim, dims[4]; // torchvision's shape
  bool filter;       // master is [k, r, s, c]: torch's [k, c, r, s] or, fully connected, [k, c·r·s]
  bool trainable;    // has gradient and momentum
  bool buffer;       // running statistics: not counted as a parameter, never trained
  bool moves;        // a buffer that every rank moves by its own images in training: param_moves
  Init init;
  float fan_in;                  // of the weight beside which a bias stands (INIT_LINEAR)
  NormFold *fold;                // of a filter; NULL = none
  FilterJoin *join;              // of the first filter of one; NULL = none
  bool plain;                    // some convolution reads it without the fold
  int last_use;                  // backward step that completes its gradient; orders the flat buffers
  int contributions;             // to the gradient, counted by the graph
  Tensor master, grad, momentum; // real; grad and momentum (for Adam the first moment) only if trainable
  Tensor second;                 // Adam's second moment; like momentum, where Params.adam
  Tensor shadow, folded; // filters: what convolutions read, as it is or scaled by fold; shadow may be the master
} Param;

enum { ADAM_STATE = 3 }; // reals of Params.adam_state, as nn/ops.h has them

typedef struct Params {
  Device *dev;
  DType shadow_dtype; // of what convolutions read, and so of activations
  Param **list;
  int n;
  NormFold **folds;
  int num_folds;
  FilterJoin **joins;
  int num_joins;
  size_t elements, trainable, moving;    // flat sizes: the trainable ones stand first, then those that move
  bool adam;                             // set before they are laid out: there are second moments and a state
  void *master, *grad, *momentum, *rest; // device, flat; rest: shadows, folds, joins
  void *second, *adam_state; // device, flat: Adam's second moments, and behind them what Adam.state points to
  void *agreed;     // device, real [PARAM_ALIGN] that end where grad begins: what is reduced with the first gradients
  UpdatePart *part; // device, [parts]: what is trained, with the shadows that training reads
  int parts;
  size_t rest_bytes, bytes; // of rest; of all of it
  int *order;               // [n] once laid out: places in list, as the flat buffers have them
} Params;

void params_init(Params *p, Device *dev, DType shadow_dtype);
void params_free(Params *p);

// Declares a parameter, or returns the one declared before (several graphs share one Params).
Param *param_filter(Params *p, const char *name, int k, int r, int s, int c, bool connected, bool trainable, Init init);
// A bias or one of a norm's two vectors.
Param *param_vector(Params *p, const char *name, ParamKind kind, int n, bool trainable, Init init, float fan_in);
Param *param_buffer(Params *p, const char *name, int n, Init init);
void param_moves(Params *p, Param *buffer); // before they are laid out
NormFold *param_fold(Params *p, Param *filter, Param *gamma, Param *beta, Param *mean, Param *var, float eps);
FilterJoin *param_join(Params *p, Param *const filter[2], Param *const bias[2]); // the first of 4·n channels
Param *params_find(const Params *p, const char *name);                           // or NULL

// Lays out the flat buffers, without taking them: `bytes` is known, and nothing can be declared afterwards. Gradients
// that the backward walk completes first stand first. What is trained has a gradient's address already, at which
// nothing is: an op that states its workspace goes by what it is given to write.
void params_lay_out(Params *p);
// Takes them; lays them out where that was not done. False when memory is out.
bool params_allocate(Params *p, Err *err);
// Of `second`, with Adam's state behind the moments; 0 where the optimiser is not Adam. Once they are laid out.
size_t params_second_bytes(const Params *p);

// Fills every parameter by its Init from (seed, name): independent of the order of declaration.
void params_randomise(Params *p, uint64_t seed);
// Recomputes the folds, every shadow and the joins: after loading, and after updates before inference. An update itself
// leaves the shadows that training reads as they have to be, but neither joins nor folds of filters that training reads
// plain: those are inference's, which needs the folds of running statistics that have moved as well.
void params_refresh(Params *p);

// Host copies in torch's shape and order, float. `what` is &param->master or &param->momentum.
size_t param_elements(const Param *p); // in torch's shape
void param_export(const Params *p, const Param *q, const Tensor *what, float *torch_order);
void param_to_torch(const Param *q, const Tensor *host, float *torch_order); // `host`: a copy of `what` that is there
void param_import(Params *p, Param *q, const Tensor *what, const float *torch_order);
