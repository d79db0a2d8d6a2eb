// Detections as COCO's strings, as result files hold them, for benchmarks: TaskRow.begin and finish.
#pragma once
#include "engine/task.h"

void detect_begin(Engine *e, const Batch *batch);
void detect_finish(Engine *e, TaskBatch *out);
