// OUT/scores.json: what ./infer --data has scored, for the page that is drawn of it. A run's own evaluation has another
// name, so that OUT may be the run's folder.
#pragma once
#include "base/file_set.h"
#include "evaluation/report.h"
#include "inference/infer_task.h"

// False with a message where it, or its page, would replace a file that is read.
bool score_file_spares(const InferOptions *o, FileSet *inputs, Err *err);

// How many of the scored images the weights were trained on; -1: they do not say, which is noted. `text` gets what the
// line of the scores says of it, "" where there are none.
int score_file_trained(const InferRun *run, const Dataset *d, const bool *read, char text[128]);

// Writes it, and has its page drawn: `r`, scored as `m`, on `trained` images of training. False with a message where
// either cannot be written.
//   name, state  which weights on what
//   scored_on_training_images  null: the weights do not say
//   facts, settings  {name: value as text}
//   and what evaluation/report.h has
bool score_file_write(const InferRun *run, const Metrics *m, int trained, const EvaluationReport *r, Err *err);
// Detections of at least that count in precision and recall, and in pictures: as --labels and --crops have it.
extern const double score_file_least;
