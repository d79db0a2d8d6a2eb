// What inference finds in a batch, as the rank that computed it sends it to rank 0: image by image, in the order of the
// batch. Images that could not be read are not in it.
#pragma once
#include "data/coco/coco.h"
#include "evaluation/byte_buffer.h"

// An image and what was found in it.
void gathered_put(ByteBuffer *to, int image, const CocoResult *found, int n);
// Gets them in the same order. False when that is not what stands there, or `image` is none of so many; then nothing is
// left to free. *found: n results, malloc'ed, which own their masks.
bool gathered_take(ByteReader *from, int images, int *image, CocoResult **found, int *n);
