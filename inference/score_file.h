// OUT/scores.json: the scores of ./infer --data, from which a page is drawn. A training run's own evaluation has
// another name, so that OUT may be the run's folder.
#pragma once
#include "base/file_set.h"
#include "evaluation/report.h"
#include "inference/infer_task.h"

// False with a message if it, or its page, would replace an input file.
bool score_file_spares(const InferOptions *o, FileSet *inputs, Err *err);

// How many of the scored images the weights were trained on; -1: unknown, which is reported. `text` receives the part
// of the score line that says so; "" if there are none.
int score_file_trained(const InferRun *run, const Dataset *d, const bool *read, char text[128]);

// Writes the file for report `r` with metrics `m`, and draws its page; `trained`: the number of images also used for
// training. False with a message if either cannot be written.
//   name, state  which weights on what
//   scored_set   Metrics.set
//   scored_on_training_images  null: unknown
//   facts, settings  {name: value as text}
//   and the members of evaluation/report.h
bool score_file_write(const InferRun *run, const Metrics *m, int trained, const EvaluationReport *r, Err *err);
// Detections with at least that score count in precision and recall, and are drawn: as for --labels and --crops.
extern const double score_file_least;
