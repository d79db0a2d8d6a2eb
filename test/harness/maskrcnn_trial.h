// Mask R-CNN in double, for tests of the whole list of nodes: what is made of one set of parameters, on small images.
#pragma once
#include "models/rcnn.h"
#include "test/harness/poison.h"
#include "test/harness/synthetic.h"

enum { CANVAS_H = 64, CANVAS_W = 96, CAPACITY = 4, CLASSES = 4, MAX_IMAGES = 3, MAX_THREADS = 3 };

// Training, inference and validation over one set of parameters, each once more with poisoned memory.
typedef enum Use { TRAIN, TRAIN_POISONED, INFER, INFER_POISONED, VALIDATE, VALIDATE_POISONED, USES } Use;
typedef struct MaskrcnnTrial {
  Device *dev;
  Params params;
  Network use[USES];
  Poison poison[USES];
  void *arena[USES];
  Batch batch;
  Tensor box; // the batch's, in double
} MaskrcnnTrial;

// On the CPU, images with so many objects each, parameters drawn.
void trial_open(MaskrcnnTrial *m, const ModelConfig *config, int images, const int *objects);
void trial_close(MaskrcnnTrial *m);
void trial_feed(MaskrcnnTrial *m, int images, const int *objects); // others, as many images
// A walk forward and back; the gradients, malloc'ed, and how many.
double *trial_train(MaskrcnnTrial *m, Use use, size_t *n);
const double *trial_losses(const Network *n);
double trial_loss(const Network *n); // their sum
void *trial_copy(const void *p, size_t bytes);

ModelConfig trial_r50(NormType norm);
ModelConfig
trial_conventions(Conventions whose); // the other conventions, with the bottleneck that they put the stride into
