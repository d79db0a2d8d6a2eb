// The learning curves of a run as a picture.
#pragma once
#include "page/run_data.h"

// FOLDER/curves.svg: losses, gradient norm, learning rate and, where there was an evaluation, its metrics over steps.
bool curves_draw(const char *folder, const RunPage *run, Err *err);
