// The slots of the small arrays that steer the optimiser's step, as nn/ops.h lays them out (Sgd, grad_stats,
// loss_scale_update); on the CPU and CUDA.
#pragma once

enum { LEARNING_RATE, MOMENTUM, DECAY, LIMIT, INV_SCALE }; // hyper[]
enum { NORM, FINITE };                                     // stats[]
enum { SCALE, CLEAN, SKIPPED };                            // state[]
