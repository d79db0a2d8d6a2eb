// OUT/evaluation.html: what ./infer --data has scored, as the page of a run shows it. A run's own page has another
// name, so that OUT may be the run's folder.
#pragma once
#include "base/file_set.h"
#include "evaluation/task.h"
#include "inference/options.h"

#define SCORE_PAGE "evaluation.html"

// False with a message where it would replace a file that is read.
bool score_page_spares(const InferOptions *o, FileSet *inputs, Err *err);

// `results` are the task's, scored as `m`.
// False with a message where it cannot be written.
bool score_page_write(const InferOptions *o, const ModelConfig *config, const Dataset *d, const void *results,
                      const Metrics *m, Err *err);
