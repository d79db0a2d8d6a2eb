// The learning curves of a run: out of its log, and as a picture.
#pragma once
#include <stddef.h>
#include "models/model.h"

typedef struct Curve { // one member of the log's records over steps
  double *x, *y;
  int n;
  size_t cap_x, cap_y;
} Curve;

// Reads log.jsonl: out[k] receives the numbers that stand under keys[k]. A last line that a crash cut short is ignored.
bool curves_read(const char *path, const char *const *keys, int count, Curve *out, Err *err);
void curves_free(Curve *curves, int count);

// Reads DIR/log.jsonl and writes DIR/curves.svg: the losses of the model's row, gradient norm, learning rate and, where
// there was an evaluation, the metrics of its task over steps.
bool curves_draw(const char *dir, const Model *m, Err *err);
