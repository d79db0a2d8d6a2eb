// What a file is that was given as weights but is neither PyTorch's nor safetensors: weights of other programs, a model
// that PyTorch stores in another way, an image.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// As foreign_file (base/foreign.h), which it asks last. To be asked once reading has failed; torch: it begins as a
// PyTorch file does, of which zip archives only are told apart.
const char *foreign_weights(const unsigned char *bytes, size_t size, bool torch);
