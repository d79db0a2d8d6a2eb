// Handles: the network as a stream's Runner, run through include/maskrcnn.h alone.
//
// One handle takes all ordinary images; where memory does not suffice for a batch it is opened for half as many. An
// image of more than 64 megapixels, or so long that no ordinary canvas holds it, has a handle of its own, with a batch
// of one, which is kept for the next that fits it. Which canvas an image goes to depends on its size and the options
// alone.
#pragma once
#include "data/coco/tiles.h"
#include "include/maskrcnn.h"
#include "inference/options.h"
#include "inference/runner.h"
#include "inference/speed.h"

typedef struct Handles Handles;
enum { HANDLES_UNDER_WAY = 3 }; // batches

// Opens nothing yet: the first batch does. What is wrong with the options' weights or device fails that. `speed` is
// told of every opening. Between the tiles of an image `stopped` is asked whether to drop it, as a stream's visitor is
// between batches.
Handles *handles_open(const InferOptions *o, const ModelConfig *config, int batch, Speed *speed, bool (*stopped)(void));
Runner handles_runner(Handles *h);
// Of the runner's results, the i-th image's of a batch or, where the options ask for tiles and an image is larger, the
// i-th tile's of this one image, in the order of handles_tiles.
const maskrcnn_result *handles_result(const void *results, int i);
bool handles_tiled(const InferOptions *o, int h, int w); // whether such an image is cut into tiles
TilePlan handles_tiles(const InferOptions *o, int h, int w);
int handles_shape(const Handles *h, int group); // the canvas of a group, for Speed
int handles_exit(const Handles *h); // with what a program ends whose stream has failed: of whom the fault is
void handles_close(Handles *h);
