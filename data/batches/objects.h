// The objects of an image in its place of a batch: boxes on the canvas, labels, masks as bits or polygons.
#pragma once
#include "base/scratch.h"
#include "data/batches/dataset.h"
#include "nn/batch.h"

// Writes those of image i, which lies on the canvas as b->info[place] says; masks, where they are wanted, to the words
// of the place, counted from its first. Returns how many words; `scratch` is reset for each mask.
int64_t objects_write(const Dataset *d, int i, bool masks, Scratch *scratch, Batch *b, int place);
