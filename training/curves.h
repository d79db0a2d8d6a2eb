// The learning curves of a run as a picture.
#pragma once
#include "models/model.h"

// Reads DIR/log.jsonl and writes DIR/curves.svg: the losses of the model's row, gradient norm, learning rate and, where
// there was an evaluation, the metrics of its task over steps.
bool curves_draw(const char *dir, const Model *m, Err *err);
