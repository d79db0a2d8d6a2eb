// Engine: one device with a model's parameters, the graphs of all canvases over one arena, and the step.
// What train.c and infer.c share.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "comm/comm.h"
#include "data/batches/loader.h"
#include "engine/inputs.h"
#include "engine/memory.h"
#include "engine/reduction.h"
#include "engine/ring.h"
#include "engine/slots.h"
#include "engine/snapshot.h"
#include "models/model.h"
#include "nn/device.h"
#include "nn/optim.h"
#include "nn/params.h"
#include "nn/profile.h"

typedef struct Category {
  int64_t id;     // in the data set's files
  char name[256]; // any that a folder can have; longer ones are cut
} Category;

// What graphs are for: training or inference, at these canvases and this batch size.
typedef struct Shapes {
  int canvases;
  Canvas canvas[MAX_CANVASES];
  int images;                   // per step; 0 = none of these graphs
  int max_objects;              // of an image
  int64_t max_bytes, max_words; // of an image: decoded, bitmaps
  int64_t max_whole;            // of an image as it is decoded, before the data set shrinks it; 0: max_bytes
  // What a data set takes on the host besides:
  int prefetch;   // batches that its loader is ahead; 0 = batches do not come from a loader
  int threads;    // of the loader; 0 = one per core
  int set_images; // of which inference keeps the results
  bool losses;    // of inference: engine_losses, too
  bool measured;  // training is timed, not kept: no room for checkpoints
} Shapes;
enum { PREFETCH = 2 };
#define MASK_THRESHOLD 0.5f                     // of a mask's pixels, unless Compute says otherwise
Shapes shapes_of(const Dataset *d, int images); // PREFETCH, any threads
Resize resize_of(const ModelConfig *c);         // what the model expects of its images

// Batches of inference whose results the host keeps apart: those that were started and not handed out, and, where they
// are fewer, those handed out last. A loader holds as many.
enum { BATCHES_UNDER_WAY = 3 };

// The graphs of all canvases, for training or for inference.
typedef struct Program {
  Shapes shapes;
  Network *network;     // [shapes.canvases]; NULL = none
  Profile *profile;     // [shapes.canvases] of the walks that were timed
  Observer *sync;       // [shapes.canvases] of a device that waits
  BucketWatch *buckets; // [shapes.canvases] of training
  Inputs inputs;
  Ring ring;                    // for the loader
  void *recorded[MAX_CANVASES]; // at their second run, where a device can
  int runs[MAX_CANVASES];
} Program;

typedef struct Engine {
  Device *dev;
  const Model *model;
  ModelConfig config;
  Category *category; // [model_names]; owned
  Params params;
  Comm *comm;                     // the ranks that train and evaluate together; NULL: alone
  Reduction reduction;            // what they agree on in a step
  Snapshot snapshot;              // to save; of the first rank's engine, where it trains
  Program train, infer, validate; // the last: losses on the shapes of inference
  bool timing;                    // walks are timed node by node
  uint64_t seed;                  // of Compute
  float mask_threshold;
  void *arena;
  Optimizer optimizer;
  void *hyper, *stats;            // of grad_stats and the update
  void *step;                     // uint64_t: the number of the step, by which is drawn
  void *scale;                    // of loss_scale_update
  StepSlot slot[STEPS_UNDER_WAY]; // step s uses slot s % STEPS_UNDER_WAY
  int64_t started, handed_out;    // steps
  int64_t batches;                // that running statistics have seen, here and before
  MemoryPlan memory;
  size_t arena_bytes;
  void *results; // what the model's outputs are made in; their own
} Engine;

// What --amp accepts, and the activations that each means: "off" as the masters, "bf16", "fp16".
extern const char *const amp_names[];
extern const DType amp_types[];

// How it is computed.
typedef struct Compute {
  const char *device;          // "cpu", "cuda:0"
  DType amp;                   // BF16 or F16 activations; F32 (0) = as the masters
  bool tf32;                   // fp32 convolutions in TF32
  const char *conv;            // rung of the convolution ladder; NULL = chosen for each problem
  bool sync_nodes;             // wait after every kernel and node, to see which one fails
  bool team;                   // on the CPU: OpenMP's threads are started first, as many as there are to be had
  const float *mask_threshold; // a mask pixel of at least this probability is foreground; NULL: 0.5
  uint64_t seed;               // of what is drawn in a step of training: dropout
  Optimizer optimizer;         // of training
  ReductionOptions ranks;
  int ranks_here; // of this host that there are to be, where a plan asks before there are any; 0: as ranks.comm says
} Compute;

// Opens the device, builds every graph, makes the one plan, sees whether there is so much memory, and takes it all. The
// parameters hold nothing yet: follow with params_randomise or state_load. `category` is copied. print_plan: the plan
// goes to stdout and nothing is taken; the engine can only be closed. False with a plan (memory.rows) where memory is
// all that was lacking.
bool engine_open(Engine *e, const Compute *compute, const Model *model, const ModelConfig *config,
                 const Category *category, const Shapes *train, const Shapes *infer, bool print_plan, Err *err);
void engine_close(Engine *e); // also one that did not open, or is all zero

typedef struct StepOptions {
  int64_t step; // its number in the run, from 0: what is drawn in it follows from that and the seed
  float learning_rate, momentum, weight_decay, clip;
  bool stop;      // this rank was asked to stop
  bool batchless; // it has no batch: the step is made on the one before, and void on every rank
} StepOptions;
typedef struct StepResult {
  int64_t step;                   // counted from the first that this engine started
  double loss[MAX_LOSSES], total; // in the order of Model.loss; means over ranks
  double grad_norm;
  bool finite;               // false: nothing was updated
  bool stop;                 // some rank was asked to stop before this step
  bool is_void;              // some rank had no batch: not finite for no other reason
  double scale[3];           // of engine_get_scale: the next step uses the first; the last is how many were not finite
  int counter[MAX_COUNTERS]; // in the order of Model.counter; this rank's
  const int *index;          // [images] this rank's batch's, valid until the next engine_stage
  double wait_seconds;       // how long the device had nothing to do because the batch was not there
  // 0 where the step is one recorded program; measured by waiting when graphs are timed.
  double transfer_seconds, forward_seconds, backward_seconds, update_seconds;
} StepResult;

// Training is a pipeline, in which nothing waits for a step to end: stage batch 0; then, again and again, start a step
// on the batch that was staged last, stage the next batch, and take what results are there.
//
// engine_start waits until its batch has arrived. A batch crosses once the step before has begun, so when step s has
// been started, all up to s - 2 are complete: the host is at most two steps ahead.
//
// Begins to copy a batch of the training shapes to the device, which may still compute the step before. The batch must
// stay as it is until the next engine_start. Batches of a loader in the program's ring are copied asynchronously.
void engine_stage(Engine *e, const Batch *batch);
// Queues one training step on the staged batch.
void engine_start(Engine *e, const StepOptions *options);
// The oldest result not handed out yet. False when there is none, or when it may still be computed and `wait` is false.
bool engine_result(Engine *e, bool wait, StepResult *result);
// The three at once: for a single step.
void engine_step(Engine *e, const Batch *batch, const StepOptions *options, StepResult *result);

// From here on every walk is timed node by node, or no longer. Timed steps are queued by the host, not replayed.
// `trace` receives every node as an event; NULL = none.
void engine_time_nodes(Engine *e, bool on, Trace *trace);

// The state of fp16's loss scaling: scale, clean steps since it changed, steps skipped. Part of a checkpoint.
void engine_get_scale(Engine *e, double scale[3]);
void engine_set_scale(Engine *e, const double scale[3]);

// Every rank gets the first one's parameters, moments and loss scale: after those were filled or loaded there.
void engine_share_state(Engine *e);

// Runs inference on a batch of the inference shapes, which has crossed when this returns. Results stay on the device:
// engine/detect.h makes detections of them, and has the pipeline for many batches. After training steps params_refresh
// comes first.
void engine_infer(Engine *e, const Batch *batch);
// The same for who keeps the batch until what is queued is known to have run: `wait` false.
void engine_queue_inference(Engine *e, const Batch *batch, bool wait);
// Gives inference room for batches of so many bytes of images, where the shapes promised less, and for what is found in
// such images, while no batch is under way; results that were handed out are gone. Each canvas is recorded anew. False
// when there is no memory, and nothing has changed.
bool engine_make_room(Engine *e, size_t bytes);
size_t engine_room(const Engine *e); // bytes of images of a batch
// The losses of a batch of the inference shapes, targets included, in the order of Model.loss. Waits. After training
// steps params_refresh comes first, here too.
void engine_losses(Engine *e, const Batch *batch, double loss[MAX_LOSSES]);
