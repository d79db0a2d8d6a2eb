// Engine: one device with a model's parameters, the graphs of all canvases in one arena, and the training step.
// Shared by training and inference.
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
#include "nn/timeline.h"

typedef struct Category {
  int64_t id;     // id in the data set's files
  char name[256]; // as long as a folder's name may be; longer ones are cut
} Category;

// What graphs are for: training or inference, at these canvases and this batch size.
typedef struct Shapes {
  int canvases;
  Canvas canvas[MAX_CANVASES];
  int images;                   // images per step; 0 = no such graphs
  int max_objects;              // per image
  int64_t max_bytes, max_words; // per image: bytes decoded, words of bitmaps
  int64_t max_whole;            // bytes per decoded image before it is scaled down; 0: max_bytes
  // Further host memory of a data set:
  int prefetch;   // batches that its loader prefetches; 0 = batches do not come from a loader
  int threads;    // decoder threads; 0 = one per core
  int set_images; // images whose results inference keeps
  bool losses;    // inference: engine_losses will be called too
  bool measured;  // training is only timed: no memory for checkpoints
} Shapes;
enum { PREFETCH = 2 };
#define MASK_THRESHOLD 0.5f                     // default threshold of mask pixels: Compute.mask_threshold
Shapes shapes_of(const Dataset *d, int images); // with prefetch PREFETCH and any number of threads
Resize resize_of(const ModelConfig *c);         // how the model's images are resized

// Number of inference batches whose results are kept in separate slots: batches started and not handed out and, if they
// are fewer, the last ones handed out. A loader keeps as many batches.
enum { BATCHES_UNDER_WAY = 3 };

// The graphs of all canvases, for training or for inference.
typedef struct Program {
  Shapes shapes;
  Network *network;         // [shapes.canvases]; NULL = none
  Profile *profile;         // [shapes.canvases] of timed walks
  Timeline *timeline;       // [shapes.canvases] training: of recorded steps
  Observer *sync;           // [shapes.canvases] for --sync-nodes
  GradientWatch *gradients; // [shapes.canvases] training
  Inputs inputs;
  Ring ring;                    // memory for the loader's batches
  void *recorded[MAX_CANVASES]; // recorded at the second run, if the device can
  int runs[MAX_CANVASES];
} Program;

typedef struct Engine {
  Device *dev;
  const Model *model;
  ModelConfig config;
  Category *category; // [model_names]; owned
  Params params;
  Comm *comm;                     // the ranks that train and evaluate together; NULL: a single rank
  Reduction reduction;            // what ranks exchange in a step
  Snapshot snapshot;              // for checkpoints; in training, on rank 0
  Program train, infer, validate; // validate: losses with the shapes of inference
  bool timing;                    // walks are timed node by node
  bool stamping;                  // recorded steps are stamped
  uint64_t seed;                  // from Compute
  float mask_threshold;
  void *arena;
  Optimizer optimizer;
  void *hyper, *stats;            // arguments of the update; results of grad_stats
  void *towards;                  // argument of ema
  void *step;                     // uint64_t: the number of the step, for random numbers
  void *scale;                    // state of loss_scale_update
  StepSlot slot[STEPS_UNDER_WAY]; // step s uses slot s % STEPS_UNDER_WAY
  int64_t started, handed_out;    // steps
  int64_t batches;                // batches that running statistics have seen, including earlier runs
  MemoryPlan memory;
  size_t arena_bytes;
  void *results; // memory of the model's Outputs
  // NULL, or called when a step on the CPU begins to compute, and before its update: between the two the trained
  // parameters and their moments are those of the step before.
  void (*computing)(void *context, bool begins);
  void *computing_context;
} Engine;

// Values of --amp, and the type of activations for each: "off" (that of the masters), "bf16", "fp16".
extern const char *const amp_names[];
extern const DType amp_types[];

// Options of how to compute.
typedef struct Compute {
  const char *device;          // "cpu", "cuda:0"
  DType amp;                   // type of activations: BF16 or F16; F32 (0) = that of the masters
  bool tf32;                   // fp32 convolutions in TF32
  const char *conv;            // rung of the convolution ladder; NULL = chosen for each problem
  bool sync_nodes;             // wait after every kernel and node, to identify the one that fails
  bool every_value;            // as Device.every_value
  bool team;                   // on the CPU: start OpenMP's threads first, as many as can be started
  const float *mask_threshold; // a mask pixel of at least this probability is foreground; NULL: 0.5
  uint64_t seed;               // seed of random numbers within a training step: dropout
  Optimizer optimizer;         // for training
  ReductionOptions ranks;
  // plan_only: makes the plan and compares it with what is free, prints and allocates nothing, as print_plan.
  bool plan_only;
  size_t most_device, most_host; // MemoryPlan's
  int ranks_here;                // number of ranks on this host, for a plan made before they exist; 0: from ranks.comm
} Compute;

// Opens the device, builds all graphs, makes one memory plan, compares it with the free memory, and allocates
// everything. Parameters are uninitialised: call params_randomise or state_load next. `category` is copied. print_plan:
// prints the plan to stdout and allocates nothing; the engine can then only be closed. If only memory is lacking,
// returns false with a plan (memory.rows is not 0).
bool engine_open(Engine *e, const Compute *compute, const Model *model, const ModelConfig *config,
                 const Category *category, const Shapes *train, const Shapes *infer, bool print_plan, Err *err);
void engine_close(Engine *e); // also after a failed engine_open, or if all zero

typedef struct StepOptions {
  int64_t step; // its number in the run, from 0; with the seed it determines all random numbers
  float learning_rate, momentum, weight_decay, clip;
  bool stop;      // this rank was asked to stop
  bool batchless; // this rank has no batch: it repeats the previous one, and the step is void on every rank
} StepOptions;
typedef struct StepResult {
  int64_t step;                   // counted from the first that this engine started
  double loss[MAX_LOSSES], total; // losses in the order of Model.loss; means over ranks
  double grad_norm;
  bool finite;  // false: nothing was updated
  bool stop;    // a rank was asked to stop before this step
  bool is_void; // a rank had no batch; this alone makes `finite` false
  // As in engine_get_scale: the first is used by the next step, the last is the number of skipped steps.
  double scale[3];
  int counter[MAX_COUNTERS]; // counters of this rank in the order of Model.counter
  const int *index;          // [images] indices of this rank's batch, valid until the next engine_stage
  double wait_seconds;       // time the device was idle because the batch had not arrived
  // 0 if the step is one recorded program; measured with synchronisation if graphs are timed.
  double transfer_seconds, forward_seconds, backward_seconds, update_seconds;
} StepResult;

// Training is a pipeline in which nothing waits for a step to end: stage batch 0; then, repeatedly, start a step on the
// staged batch, stage the next batch, and take the available results.
//
// engine_start waits until its batch has arrived. A batch is copied once the step before has started, so when step s
// has been started, all up to s - 2 are complete: the host is at most two steps ahead.
//
// Starts copying a batch of the training shapes to the device, which may still be computing the step before. The batch
// must not change until the next engine_start. Batches of a loader in the program's ring are copied asynchronously.
void engine_stage(Engine *e, const Batch *batch);
// Queues one training step on the staged batch.
void engine_start(Engine *e, const StepOptions *options);
// Hands out the oldest result. False if there is none, or if it may still be being computed and `wait` is false.
bool engine_result(Engine *e, bool wait, StepResult *result);
// Calls all three: for a single step.
void engine_step(Engine *e, const Batch *batch, const StepOptions *options, StepResult *result);

// Starts or stops timing every walk node by node. Timed steps are queued by the host, not replayed. `trace` receives
// every node as an event; NULL = none.
void engine_time_nodes(Engine *e, bool on, Trace *trace);

// Starts or stops stamping training steps, which are recorded anew; the host then waits for each.
void engine_stamp_steps(Engine *e, bool on);

// The state of fp16's loss scaling: scale, clean steps since it changed, steps skipped. Part of a checkpoint.
void engine_get_scale(Engine *e, double scale[3]);
void engine_set_scale(Engine *e, const double scale[3]);

// Copies rank 0's parameters, moments and loss scale to every rank; called after they were initialised or loaded there.
void engine_share_state(Engine *e);

// Runs inference on a batch of the inference shapes, which has been copied to the device on return. Results stay on the
// device: engine/detect.h makes detections of them, and has a pipeline for many batches. After training steps, call
// params_refresh first.
void engine_infer(Engine *e, const Batch *batch);
// The same; with `wait` false, the caller must keep the batch until the queued work has run.
void engine_queue_inference(Engine *e, const Batch *batch, bool wait);
// Makes room for inference batches of this many bytes of images, if the shapes were for fewer, and for their results.
// No batch may be in flight; results handed out before become invalid. Each canvas is recorded again. False if there is
// not enough memory; then nothing has changed.
bool engine_make_room(Engine *e, size_t bytes);
// Bytes of the device and of page-locked memory that room for such batches takes more than there is now.
void engine_room_costs(const Engine *e, size_t bytes, size_t *device, size_t *host);
size_t engine_room(const Engine *e); // room for the images of a batch in bytes
// The losses of a batch of the inference shapes, which must include targets, in the order of Model.loss. Waits. After
// training steps, call params_refresh first.
void engine_losses(Engine *e, const Batch *batch, double loss[MAX_LOSSES]);
