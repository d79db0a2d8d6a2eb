// The format in which a rank sends a batch's detections to rank 0: image by image, in the order of the batch, without
// images that could not be read.
#pragma once
#include "data/coco/coco.h"
#include "evaluation/byte_buffer.h"

// Packs an image and its detections.
void gathered_put(ByteBuffer *to, int image, const CocoResult *found, int n);
// Unpacks an image and its detections, in the same order. False if the data are malformed, or `image` is out of range;
// then nothing needs to be freed. *found: n results, malloc'ed, which own their masks.
bool gathered_take(ByteReader *from, int images, int *image, CocoResult **found, int *n);
