// Classification in ./infer: a line of JSON for each image and, for a data set, top-1, top-5 and the confusion matrix.
#pragma once
#include "inference/infer_task.h"

extern const InferTask infer_classes;
