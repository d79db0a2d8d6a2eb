// Pictures of training images as augmentation shows them, drawn from the batch that training would get.
#pragma once
#include "data/batches/loader.h"
#include "data/pictures/thumbnail.h"

// A JPEG of the image at a position of the batch, with its objects. Caller frees the bytes.
Jpeg augmented_picture(const Dataset *d, const Batch *b, int position);
