// Translates between ./infer's options and the library's: values in one direction, error messages in the other.
#pragma once
#include "include/maskrcnn.h"
#include "inference/options.h"
#include "models/model.h"

// Sets all but min_score, which depends on the model, and batch, queue, max_pixels and canvases, which follow from the
// images. Borrows what the options borrow.
maskrcnn_options network_options(const InferOptions *o, const char *device);
// What the options change of the model as it was trained.
ModelChanges network_changes(const InferOptions *o);
// Replaces the library's option names in a message by the program's.
void program_words(Err *err);
