// ./train --benchmark without --data: how fast a network's walks are by themselves, on made-up images that stay on the
// device: forward as training does it (batch statistics, dropout), forward and backward, and the whole step.
#pragma once
#include "training/options.h"

// For each batch size an engine is opened, of a model that learns from BATCH_LABEL, on a canvas --size square, and
// weights, images and labels are drawn by --seed. Each run of a walk, recorded where the device can, is timed by itself
// on the device's clock, and a record printed on stdout; stderr tells people. A batch size that memory has no room for
// has a record, too, that says so. When something else is wrong, one line ends the program.
void benchmark_net(const TrainSpec *o);
