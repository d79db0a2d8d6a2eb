// How a stream of images that are named starts, whatever is made of them.
#pragma once
#include "inference/decoders.h"
#include "inference/options.h"

// How many images at a time. Looks at the device: what it cannot do is said in the words of the options, and more than
// one image at a time only pays off where a batch costs less than its images one by one. `list`: more than the named
// images may come.
int start_batch_of(const InferOptions *o, int named, bool list);
// For so many images, 0: nobody knows. Ends the program where threads cannot be started.
Decoders *start_decoders(const InferOptions *o, Sources *sources, int images, int batch);
