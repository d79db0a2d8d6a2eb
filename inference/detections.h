// Detection in ./infer: a result file, overlays, label maps, crops and, for a data set, COCO's scores.
#pragma once
#include "inference/infer_task.h"

extern const InferTask infer_detections;
