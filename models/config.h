// ModelConfig: everything that decides what a model computes, so that a checkpoint carries it and two implementations'
// conventions differ in nothing but these fields. Defaults are torchvision's maskrcnn_resnet50_fpn.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/cli.h"
#include "base/error.h"
#include "nn/batch.h"
#include "nn/ops.h"

typedef enum NormType { NORM_FROZEN_BN, NORM_BN, NORM_GN, NORM_SYNC_BN } NormType;
extern const char *const norm_names[]; // "frozen-bn", "bn", "gn", "syncbn", NULL

// Whose conventions: torchvision's references, detectron2's Base-RCNN-FPN, MLPerf's maskrcnn-benchmark. The order is
// that of the values in models/config.def.
typedef enum Conventions { CONVENTIONS_TORCHVISION, CONVENTIONS_DETECTRON2, CONVENTIONS_MLPERF } Conventions;
enum { CONVENTION_SETS = CONVENTIONS_MLPERF + 1 };
extern const char *const conventions_choices[];     // "own", then the names of Conventions
#define conventions_names (conventions_choices + 1) // "torchvision", "detectron2", "mlperf", NULL

// What each field means, its unit, range and values: models/config.def.
typedef struct ModelConfig {
#define INT(name, ...) int name;
#define BOOL(name, ...) bool name;
#define FLOAT(name, ...) float name;
#define FLOATS(name, count, ...) float name[count];
#define ENUM(name, type, ...) type name;
#include "models/config.def"
  int model;       // whose configuration it is: an index into models/model.h's list; stored by name in a checkpoint
  bool full_masks; // benchmarks only, in no checkpoint: as many RoIs as the mask head has rows for
} ModelConfig;

// Whether training normalises by statistics of its images: those of a rank's, or, NORM_SYNC_BN, of all ranks'.
static inline bool config_batch_norm(const ModelConfig *c) { return c->norm == NORM_BN || c->norm == NORM_SYNC_BN; }

// Boxes per level before NMS and proposals per image after it, in inference. A proposal is at most one detection of a
// class: where more detections than usual are asked for, there are as many proposals.
static inline int config_at_least(const ModelConfig *c, int n) {
  return c->detections > USUAL_DETECTIONS ? MAX(n, c->detections) : n;
}
static inline int config_pre_nms(const ModelConfig *c) { return config_at_least(c, c->rpn_pre_nms_test); }
static inline int config_proposals(const ModelConfig *c) { return config_at_least(c, c->rpn_post_nms_test); }

// Makes inference keep n proposals per image, and training as many times more as it did, at least n. NMS gets at least
// n per level.
void config_set_proposals(ModelConfig *c, int n);

// The defaults of all fields, conventions torchvision's.
void config_defaults(ModelConfig *c);
// Sets every field in which conventions differ; depends on c's size, norm and rpn_post_nms_test.
void config_conventions(ModelConfig *c, Conventions whose);

// The fields by name, as text: what a checkpoint stores. Integers are decimal, a bool is 0 or 1, floats have nine
// digits, which give back their bits, and commas between them, an enumerator its name.
int config_fields(void); // how many; the fields are 0 … config_fields() - 1
const char *config_field_name(int field);
void config_get(const ModelConfig *c, int field, char *text, size_t size);
// Which fields, of c's model.
typedef struct ListFor {
  int least_size; // pixels of an image that the model needs
  bool detector;  // only fields that a detector has; else only those of a classifier
  bool trained;   // for config_set_list: only fields that do not change the meaning of the weights
} ListFor;
// For each field its name, its value in c, what it is, and its range there; wrapped to `columns` columns. For ./train
// --help model.
void config_print_help(const ModelConfig *c, const ListFor *of, int columns, FILE *out);
// Fails on unknown names and unusable values; a value outside its range is for config_ranges to refuse.
bool config_set(ModelConfig *c, const char *name, const char *text, Err *err);
// Sets fields from "FIELD=VALUE FIELD=VALUE …", the text of --set: values as config_print_help has them, each within
// its range; that they fit together is for config_check. The message begins with "--set"; c may be changed by the pairs
// before the wrong one.
bool config_set_list(ModelConfig *c, const ListFor *of, const char *list, Err *err);
// Whether such a list, which may be NULL, sets a field.
bool config_list_sets(const char *list, const char *name);
// Of options with such a list: false with a message if one of them that has a field's name was given, and the list sets
// that field, too. list may be NULL.
bool config_list_alone(const char *list, const Option *rows, int n, const void *values, Err *err);
// The ranges that the ops rely on, and what has to hold between fields, for a model that needs images of at least
// `least_size` pixels. One message, of the first that does not.
bool config_ranges(const ModelConfig *c, int least_size, Err *err);
