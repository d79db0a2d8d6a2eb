// A model of a few thousand parameters, and batches for it that need no files: images of noise with elliptic objects in
// the colour of their class, as the loader would hand them over.
#pragma once
#include "data/batches/loader.h"
#include "models/model.h"

// tiny, with channels and heads scaled down until every gradient can be checked.
ModelConfig synthetic_config(int canvas_h, int canvas_w, int classes);

enum { SYNTHETIC_EMPTY = -1 }; // instead of a number of objects: the slot holds no image

// Place i is decoded at other sizes than it is resized to, every other one mirrored, with objects[i] ≤ capacity of
// them. Free with synthetic_free.
Batch synthetic_batch(int images, int canvas_h, int canvas_w, int capacity, int classes, const int *objects,
                      uint64_t key);
void synthetic_free(Batch *b);
