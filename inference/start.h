// Start-up decisions for a stream of named images, for all result types.
#pragma once
#include "inference/decoders.h"
#include "inference/options.h"

// The batch size. Checks the device, with errors in terms of the options; more than one image at a time only pays off
// if a batch costs less than its images one by one. `list`: more images than those named may come.
int start_batch_of(const InferOptions *o, int named, bool list);
// Starts decoders for `images` images, 0: unknown. Exits if threads cannot be started.
Decoders *start_decoders(const InferOptions *o, SampleRange range, Sources *sources, int images, int batch);
