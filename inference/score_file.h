// OUT/scores.json: what ./infer --data has scored, for the page that is drawn of it. A run's own evaluation has another
// name, so that OUT may be the run's folder.
#pragma once
#include "base/file_set.h"
#include "evaluation/report.h"
#include "inference/infer_task.h"

// False with a message where it, or its page, would replace a file that is read.
bool score_file_spares(const InferOptions *o, FileSet *inputs, Err *err);

// Writes it, and has its page drawn: `r`, scored as `m`. False with a message where either cannot be written.
//   name, state  which weights on what
//   facts, settings  {name: value as text}
//   and what evaluation/report.h has
bool score_file_write(const InferRun *run, const Metrics *m, const EvaluationReport *r, Err *err);
// Detections of at least that count in precision and recall, and in pictures: as --labels and --crops have it.
extern const double score_file_least;
