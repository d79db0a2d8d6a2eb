// The library as ./infer calls it: its options by the program's, and what it says of them in the program's words.
#pragma once
#include "include/maskrcnn.h"
#include "inference/options.h"

// All but min_score, which the model has a say in, and batch, queue, max_pixels and the canvases, which follow from the
// images. Borrows what the options borrow.
maskrcnn_options network_options(const InferOptions *o, const char *device);
// Puts the program's options in place of the library's.
void program_words(Err *err);
