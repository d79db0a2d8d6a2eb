// Pixels: an incoming image as the RGB bytes that a batch holds.
#pragma once
#include "base/scratch.h"
#include "lib/handle.h"
#include "lib/incoming.h"

// How many parts an image can be copied in at the same time: an encoded one, and one on the GPU, is one.
int pixels_bands(const Incoming *in, int bands);
// Writes part `band` of `bands` of the image, scaled down by in->by, to rgb [h / by, w / by, 3]. False, with a message
// and whose fault it is, if it is damaged or there is no memory; any thread may call it.
bool pixels_copy(maskrcnn *h, const Incoming *in, uint8_t *rgb, int band, int bands, maskrcnn_status *status, Err *err);
