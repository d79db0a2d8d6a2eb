// The learning curves of a run as a picture.
#pragma once
#include "nn/util.h"

// Reads DIR/log.jsonl and writes DIR/curves.svg: losses, gradient norm, learning rate and, where there was an
// evaluation, AP over steps.
bool curves_draw(const char *dir, Err *err);
