// The EXIF orientation of the images that ./infer reads: followed as the weights were trained, and said so.
#pragma once
#include "inference/options.h"
#include "weights/checkpoint.h"

// Gives --exif its value if it was not given: named images are rotated, those of --data as in
// training, or as their annotations tell if the weights do not say.
void orientation_settle(InferOptions *o, const Checkpoint *weights);
// One line about what is done with the images, which are rotated if `upright`, `turned` of `read` of which have an EXIF
// orientation, and whether training did the same; turned < 0: it is not known how many. NULL: there is nothing to say.
// Caller frees.
char *orientation_text(const InferOptions *o, const Checkpoint *weights, bool upright, int turned, int read);
