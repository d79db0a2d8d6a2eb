// Engine: one device with a model's parameters, the graphs of all canvases over one arena, and the step.
// What train.c and infer.c share.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/loader.h"
#include "models/maskrcnn.h"
#include "nn/device.h"
#include "nn/params.h"

typedef struct Category {
  int64_t id; // in the data set's files
  char name[64];
} Category;

// Device memory for one batch, and where it is described.
typedef struct Inputs {
  int images, capacity;
  ImageInfo *info;
  uint8_t *bytes;
  int64_t max_bytes, max_words;
  void *box; // real
  int *label, *count;
  Bitmap *bitmap;
  uint32_t *bits;
} Inputs;

// What graphs are for: training or inference, at these canvases and this batch size.
typedef struct Shapes {
  int canvases;
  Canvas canvas[MAX_CANVASES];
  int images;                   // per step; 0 = none of these graphs
  int max_objects;              // of an image
  int64_t max_bytes, max_words; // of an image: decoded, bitmaps
} Shapes;
Shapes shapes_of(const Dataset *d, int images);
Resize resize_of(const ModelConfig *c); // what the model expects of its images

typedef struct Engine {
  Device *dev;
  ModelConfig config;
  Category *category; // [config.classes - 1]; owned
  Params params;
  Shapes train_shapes, infer_shapes;
  MaskRcnn *train, *infer;                                        // [canvases] each
  void *step_program[MAX_CANVASES], *infer_program[MAX_CANVASES]; // recorded at their second run, where a device can
  int step_runs[MAX_CANVASES], infer_runs[MAX_CANVASES];
  bool uncaptured; // do not record: every kernel is queued by the host (timers, comparison)
  Inputs train_inputs, infer_inputs;
  void *arena;
  void *hyper, *stats;       // of grad_stats and sgd
  const SgdFactors *factors; // set before the first step; NULL = one rate and one decay for all
  void *scale;               // of loss_scale_update
  size_t arena_bytes, total_bytes;
} Engine;

// What --amp accepts, and the activations that each means: "off" as the masters, "bf16", "fp16".
extern const char *const amp_names[];
extern const DType amp_types[];

// How it is computed.
typedef struct Compute {
  const char *device; // "cpu", "cuda:0"
  DType amp;          // BF16 or F16 activations; F32 (0) = as the masters
  bool tf32;          // fp32 convolutions in TF32
  const char *conv;   // rung of the convolution ladder; NULL = chosen for each problem
} Compute;

// Opens the device, builds every graph, makes the one plan and allocates. The parameters hold nothing yet: follow with
// params_randomise or engine_load. `category` is copied. print_plan: the memory map on stdout, before allocating.
bool engine_open(Engine *e, const Compute *compute, const ModelConfig *config, const Category *category,
                 const Shapes *train, const Shapes *infer, bool print_plan, Err *err);
void engine_close(Engine *e);

typedef struct StepOptions {
  float learning_rate, momentum, weight_decay, clip;
} StepOptions;
typedef struct StepResult {
  double loss[LOSSES], total;
  double grad_norm;
  bool finite;       // false: nothing was updated
  double loss_scale; // that the next step will use
  int skipped;       // steps so far that were not finite
  int rois, positives;
  double forward_seconds, backward_seconds, update_seconds; // 0 where the step is one recorded program
} StepResult;
// One training step on a batch of the training shapes.
void engine_step(Engine *e, const Batch *batch, const StepOptions *options, StepResult *result);

// The state of fp16's loss scaling: scale, clean steps since it changed, steps skipped. Part of a checkpoint.
void engine_get_scale(Engine *e, double scale[3]);
void engine_set_scale(Engine *e, const double scale[3]);

// Runs inference on a batch of the inference shapes. Results stay on the device until engine_detections.
void engine_infer(Engine *e, const Batch *batch);

typedef struct Detection {
  int image; // place in the batch
  int label; // 1 … classes-1
  float score;
  float box[4]; // x1 y1 x2 y2, pixels of the decoded image
  Rle mask;     // decoded image's size; owned
} Detection;
typedef struct Detections {
  Detection *items;
  int n;
} Detections;
// The last batch's detections, masks pasted at `threshold`. Free with detections_free.
void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out);
void detections_free(Detections *d);
