// Networks: the network as the Runner of a queue of batches, run through include/maskrcnn.h alone.
//
// One handle takes all ordinary images; where memory does not suffice for a batch it is opened for half as many. An
// image of more pixels, or so long that no canvas holds it, has a handle of its own, with a batch of one, which is kept
// for the next that fits it. Which canvas an image goes to depends on its size and the options alone.
#pragma once
#include "data/coco/tiles.h"
#include "include/maskrcnn.h"
#include "inference/infer_task.h"
#include "inference/queue.h"
#include "inference/speed.h"

typedef struct Networks Networks;
enum { NETWORKS_UNDER_WAY = 3 }; // batches: one that crosses, one that is computed, one whose results are made

// Of images that are named: whatever their sizes, at most `batch` at a time. `speed` is told of every opening; between
// the tiles of an image `stopped` is asked whether to drop it. Opens nothing yet: the first batch does, or
// networks_ordinary. What is wrong with the options' weights or device fails that.
Networks *networks_of_named(const InferRun *run, int batch, Speed *speed, bool (*stopped)(void));
// Of a data set, on the job's device: its canvases, its largest image, and batches of --batch, for which memory has to
// suffice. Results name `top` classes of an image, 0: all.
Networks *networks_of_set(const InferRun *run, const Dataset *d, int top);
Runner networks_runner(Networks *h);
// The one of ordinary images, which it opens if need be; NULL with `status` and a message.
maskrcnn *networks_ordinary(Networks *h, maskrcnn_status *status, Err *err);
// Of the runner's results, the i-th image's of a batch or, where the options ask for tiles and an image is larger, the
// i-th tile's of this one image, in the order of networks_tiles.
const maskrcnn_result *networks_result(const void *results, int i);
bool networks_tiled(const InferOptions *o, int h, int w); // whether such an image is cut into tiles
TilePlan networks_tiles(const InferOptions *o, int h, int w);
int networks_shape(const Networks *h, int group); // the canvas of a group, for Speed
int networks_exit(const Networks *h); // with what a program ends whose queue has failed: of whom the fault is
void networks_close(Networks *h);     // NULL is nothing
