// The caller's options, validated and with defaults filled in.
#pragma once
#include "base/error.h"
#include "include/maskrcnn.h"

enum { OPTIONS_CANVASES = 8, OPTIONS_PIXELS = 1 << 28 }; // the most that can be asked for

// Copies `given`, whose size may be that of an older header: what it does not have gets its default, and so do strings
// that are NULL. Zeros that mean "as …" are filled in where that depends on no weights. False with what is wrong.
bool options_take(maskrcnn_options *own, const maskrcnn_options *given, Err *err);

// What the engine says about options of programs ("--max-size"), in place about the library's ("max_image_size").
void options_words(Err *err);
