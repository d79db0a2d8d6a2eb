// Model: one row per network architecture. Network: what its `build` creates for one canvas and batch size. The engine
// steps, records, saves and times any of them through this interface.
#pragma once
#include "models/config.h"
#include "nn/graph.h"
#include "nn/optim.h"

struct Checkpoint; // weights/checkpoint.h

enum { MAX_LOSSES = 8, MAX_COUNTERS = 4, MAX_RESULTS = 4 };

// Network.result of detectors. Boxes: a group an image, resized pixels of the canvas, index % classes = label.
// Masks: probabilities [detections of all images, m, m, 1], rows compacted over the batch as rois_compact does it.
enum { DETECTED_BOXES, DETECTED_MASKS };
// Of classifiers: probabilities [images, classes] real, ldc = classes.
enum { CLASS_PROBS };

// What a model is, for the table of options alone: which options apply to it. Whatever else differs between models is
// a member of their rows, or of the rows that these point to.
enum {
  MODEL_DETECTOR = 1,
  MODEL_CLASSIFIER = 2,
  MODEL_STAGES = 4, // ModelConfig.trainable_layers means something to it
  MODEL_NORMS = 8,  // so does ModelConfig.norm
  MODEL_MASKS = 16  // its detections have masks
};

typedef struct Network Network;

// What a network is built for. Validation has the losses of training without a backward walk, over the statistics that
// inference uses: it changes nothing of the model.
typedef enum Purpose { FOR_TRAINING, FOR_INFERENCE, FOR_VALIDATION } Purpose;

typedef struct ModelLoss {
  const char *name;  // its key in the log
  const char *label; // of its curve
  int drawn;         // position of its curve in the legend, from 0
} ModelLoss;

// One of a model's sizes, as --model names it.
typedef struct Variant {
  const char *name;
  int depth; // ModelConfig.depth; 0: it is not asked for
} Variant;

// How it is trained where the options of ./train do not say.
typedef struct Learning {
  int batch, epochs;
  int eval_epochs;           // between evaluations; 0: one at the end
  int eval_steps;            // between evaluations, at least, and these take at most a tenth of the time; 0: no matter
  bool adam;                 // by Adam rather than SGD
  double rate;               // of SGD, for …
  int rate_images;           // … so many images a step
  Decay decay;               // of the rate
  const char *phases;        // epochs and rates, as --phases has them; other rates are constant then. NULL: none
  float clip;                // the gradient's norm; 0: no limit
  int warmup, warmup_epochs; // steps, or epochs
  double warmup_factor;      // from which the rate starts
} Learning;

// How files of torchvision's that hold a model are known, tensors under the names that we use (models/torchvision.h).
typedef struct Published {
  bool (*holds)(const struct Checkpoint *weights); // whether it is a network of this architecture, with its head
  // Its configuration: variant, widths and classes as the tensors have them, all else as the variant's default.
  bool (*configure)(const struct Checkpoint *weights, ModelConfig *c, Err *err);
  const char *(*category)(int classes, int label); // the name of one; NULL: the files do not tell them
  // What such a file is, in a few words; NULL: the model's name and the number of classes.
  void (*describe)(const ModelConfig *c, char *text, size_t size);
} Published;

typedef struct Model Model;
struct Model {
  const char *name; // a checkpoint's
  unsigned traits;
  bool background;                      // class 0 is none of the data's categories
  bool square;                          // it sees squares of one size: ModelConfig.size is max_size
  const struct Task *task;              // evaluation/task.h: what is made of its results over a data set
  const struct Outputs *outputs;        // engine/outputs.h: how its results come to the host
  const struct ResultType *result_type; // lib/result_type.h: what the library makes of them
  const struct InferTask *infer;        // inference/infer_task.h: what ./infer does
  const struct Source *source;       // data/batches/source.h: in what form its data sets lie, and how they are opened
  const Variant *variants;           // what config_init knows it by; no name at the end
  void (*configure)(ModelConfig *c); // makes config_defaults, with the variant's depth, its own
  int least_size;                    // of ModelConfig.size: pixels that it needs
  unsigned inputs, targets;          // which arrays of a batch it reads, and which for its losses besides: BATCH_BIT
  void (*build)(Network *n);         // declares parameters, appends all nodes, fills in what Network says
  void (*release)(Network *n);       // frees `parts`
  // Whether batches of so many images can be built of c, which is in its ranges; NULL: always. One line that says why
  // not.
  bool (*check)(const ModelConfig *c, int images, Err *err);
  ModelLoss loss[MAX_LOSSES];        // in the order of Network.losses; no name at the end
  const char *counter[MAX_COUNTERS]; // names, in the order of Network.counter; NULL at the end
  // Parts of the names of parameters whose shape depends on the classes; NULL at the end.
  const char *const *class_parameters;
  const char *backbone; // how the names of its backbone's parameters begin
  // How the names of tensors begin that weights may have and this network has not, such as heads that only training
  // or another model has; NULL: there are none.
  const char *const *ignored;
  Learning learning;
  const Published *published; // NULL: torchvision has none
  // Of a model that can begin with the backbone of another's weights, both; else NULL. Whether the file holds no more
  // than that for it:
  bool (*holds_backbone)(const struct Checkpoint *weights);
  // Makes c its configuration, with 0 classes, on the backbone of a file whose own configuration is `held`. False with
  // a message where it is no backbone.
  bool (*on_backbone)(const struct Checkpoint *weights, const ModelConfig *held, ModelConfig *c, Err *err);
  // Makes c what is trained: from_scratch, without weights; own, by no other program's conventions. NULL: as it is.
  void (*train)(ModelConfig *c, bool from_scratch, bool own);
  const Model *without_masks; // of a model that needs masks to learn from, the same without; else NULL
};
#define BATCH_BIT(array) (1u << (array))

struct Network {
  const Model *model;
  ModelConfig config;
  Purpose purpose;
  Graph graph;
  int images, canvas_h, canvas_w, max_objects;
  Value *input; // VALUE_IMAGES
  // What to learn, not for inference, one of them:
  Value *truth;  // VALUE_TRUTH
  Value *labels; // VALUE_LABELS, where the row's targets are BATCH_LABEL alone; an image without one has -1
  // set by build
  Value *losses;                     // [1, losses] real; not for inference
  int *const *counter[MAX_COUNTERS]; // where the device pointer of a number stands once the graph is bound
                                     // (classifiers: at inference nowhere, NULL, as nothing is known to hit)
  Value *result[MAX_RESULTS];        // inference; DETECTED_BOXES … or CLASS_PROBS
  void *parts;                       // the model's own
};

// All models, terminated by NULL; ModelConfig.model is an index into it.
extern const Model *const models[];
const Model *model_of(const ModelConfig *c);
// Makes c a configuration of the model of that name; false, with a message that lists them, when there is none.
bool model_choose(ModelConfig *c, const char *name, Err *err);
// The names of all variants as --model has them, in one line: "tiny, maskrcnn-r{18,34}-fpn, …".
void model_choices(char *text, size_t size);

// The model where none is named, and whose values a checkpoint's fields replace.
#define DEFAULT_MODEL "maskrcnn-r50-fpn"
#define DEFAULT_WITHOUT_MASKS "fasterrcnn-r50-fpn" // for data without masks
// Makes c the configuration of a variant. False with a message that lists them when there is none of that name.
bool config_init(ModelConfig *c, const char *variant, Err *err);
// What --model calls it; where no variant is like it, its model's name.
const char *config_variant(const ModelConfig *c);
// The variant of the same size that learns from boxes alone; NULL: this model needs no masks.
const char *config_without_masks(const ModelConfig *c);
// The shorter side becomes `size`, the longer 5/3 of it at most, or, where the model sees squares, as much.
void config_resize(ModelConfig *c, int size);
// What a user changes of a trained model; 0, of nms a negative number, and NULL: nothing.
typedef struct ModelChanges {
  int size, max_size, detections, proposals;
  float nms;
  const char *set; // model_set_list's
} ModelChanges;
// config_print_help and config_set_list for c's model.
void model_print_help(const ModelConfig *c, int columns, FILE *out);
bool model_set_list(ModelConfig *c, const char *list, bool trained, Err *err);
// Makes these changes and checks that the result is usable.
bool model_change(ModelConfig *c, const ModelChanges *changes, Err *err);
// config_ranges, and that the model has such a depth.
bool config_check(const ModelConfig *c, Err *err);
// How many of its classes have a name: all but a detector's background.
int model_names(const ModelConfig *c);
int model_losses(const Model *m);
int model_counters(const Model *m);

// Appends all nodes; parameters are declared in `params`. In training the batch is one rank's of `ranks`, NULL: alone.
// The graph is planned, not bound. n must not move afterwards.
void network_build(Network *n, const Model *model, const ModelConfig *config, Device *dev, Params *params,
                   const RankGroup *ranks, Purpose purpose, int images, int canvas_h, int canvas_w, int max_objects);
void network_free(Network *n);
// The batch that the graph reads from here on: device pointers by BatchArray.
void network_connect(Network *n, const void *const array[BATCH_ARRAYS]);
