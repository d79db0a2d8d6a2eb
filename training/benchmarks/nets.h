// ./train --benchmark without --data: the speed of a network's passes alone, on synthetic images that stay on the
// device: forward as in training (batch statistics, dropout), forward and backward, and the whole step.
#pragma once
#include "training/options.h"

// For each batch size, opens an engine for a model that learns from BATCH_LABEL, on a canvas of --size square, with
// weights, images and labels drawn with --seed. Each pass, recorded as a program if the device can, is timed separately
// by the device's clock, and a record is printed on stdout, text on stderr. A batch size that does not fit into memory
// gets a record that says so. Other errors end the program with one line.
void benchmark_net(const TrainSpec *o);
