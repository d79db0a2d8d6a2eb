// Submitting images: they are checked, given slots in batches, and copied.
#pragma once
#include "lib/handle.h"
#include "lib/incoming.h"

// Reads n images. Those that cannot be used have their result in s->results when it returns. NULL: no memory for the
// list; free() it.
Incoming *submit_read(maskrcnn *h, Submission *s, const maskrcnn_image *images, int n);
// Copies images `first` … `first` + n - 1 of the list, as far as they can be used. MASKRCNN_FULL, and after a failure,
// too: none of them. What an image fails by is its result.
maskrcnn_status submit_stage(maskrcnn *h, Submission *s, const Incoming *list, int first, int n, maskrcnn_error *error);
