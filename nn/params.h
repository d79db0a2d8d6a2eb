// Params: all parameters and buffers of a model, under torchvision's state_dict names. They live in flat buffers, so
// that the optimizer is one pass and an all-reduce works on contiguous memory.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "nn/param.h"

void params_init(Params *p, Device *dev, DType shadow_dtype);
void params_free(Params *p);

// Declares a parameter, or returns the one declared before (several graphs share one Params).
Param *param_filter(Params *p, const char *name, int k, int r, int s, int c, bool connected, bool trainable, Init init);
// A bias or one of a norm's two vectors.
Param *param_vector(Params *p, const char *name, ParamRole role, int n, bool trainable, Init init, float fan_in);
Param *param_buffer(Params *p, const char *name, int n, Init init);
void param_moves(Params *p, Param *buffer); // before they are laid out
NormFold *param_fold(Params *p, Param *filter, Param *gamma, Param *beta, Param *mean, Param *var, float eps);
// Inference reads this filter as filter_pack makes it for this convolution, if a rung of the device asks for that.
void param_pack(Params *p, Param *filter, const Conv *conv);
// Two filters over the same input, or their biases, as one: a convolution's first channels, 4·n of them, then others.
void param_join(Params *p, Param *first, Param *second);
Param *params_find(const Params *p, const char *name); // or NULL

// Lays out the flat buffers, without taking them: `bytes` is known, and nothing can be declared afterwards. Gradients
// that the backward walk completes first stand first. What is trained has a gradient's address already, at which
// nothing is: an op that states its workspace goes by what it is given to write.
void params_lay_out(Params *p);
// Takes them; lays them out where that was not done. False when memory is out.
bool params_allocate(Params *p, Err *err);
// Of `second`, with Adam's state behind the moments; 0 where the optimiser is not Adam. Once they are laid out.
size_t params_second_bytes(const Params *p);
size_t params_average_bytes(const Params *p); // of `average`; 0 where there is none

// Parts of the gradients as grad_sums cuts them.
int grad_parts(const Params *p);

// Fills every parameter by its Init from (seed, name): independent of the order of declaration.
void params_randomise(Params *p, uint64_t seed);
// Recomputes the folds and every shadow: after loading, and after updates before inference. An update itself leaves the
// shadows that training reads as they have to be, but not folds of filters that training reads plain: those are
// inference's, which needs the folds of running statistics that have moved as well.
void params_refresh(Params *p);

// Moving averages: they begin as the parameters; and the two exchange their values, so that evaluation computes with
// the averages, until the next exchange. Shadows and folds follow. The gradients are lost. Nothing without averages.
void params_begin_averages(Params *p);
void params_exchange_averages(Params *p);

// Host copies in torch's shape and order, float. `what` is &param->master or &param->momentum.
size_t param_elements(const Param *p); // in torch's shape
void param_export(const Params *p, const Param *q, const Tensor *what, float *torch_order);
void param_to_torch(const Param *q, const Tensor *host, float *torch_order); // `host`: a copy of `what` that is there
void param_import(Params *p, Param *q, const Tensor *what, const float *torch_order);
