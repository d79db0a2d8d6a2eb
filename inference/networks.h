// Networks: runs the network for a queue of batches, as its Runner, using only include/maskrcnn.h.
//
// One handle takes all ordinary images; if memory does not suffice for a batch it is opened for half as many. An image
// of more pixels, or one too long for any canvas, gets a handle of its own, with batch size one, which is kept for the
// next such image that fits. An image's canvas depends only on its size and the options.
#pragma once
#include "data/coco/tiles.h"
#include "include/maskrcnn.h"
#include "inference/infer_task.h"
#include "inference/queue.h"
#include "inference/speed.h"

typedef struct Networks Networks;
enum { NETWORKS_UNDER_WAY = 3 }; // batches: one being copied, one being computed, one whose results are being made

// For named images: of any size, at most `batch` at a time. `speed` is informed of every opening; `stopped` is asked
// between the tiles of an image whether to drop it. Opens nothing yet: the first batch does, or networks_ordinary;
// errors in the options' weights or device appear then.
Networks *networks_of_named(const InferRun *run, int batch, Speed *speed, bool (*stopped)(void));
// For a data set, on the job's device: with its canvases, its largest image, and batches of --batch, for which memory
// must suffice. Results have `top` classes per image, 0: all.
Networks *networks_of_set(const InferRun *run, const Dataset *d, int top);
Runner networks_runner(Networks *h);
// The handle for ordinary images, opened if necessary; NULL with `status` and a message.
maskrcnn *networks_ordinary(Networks *h, maskrcnn_status *status, Err *err);
// From the runner's results, those of a batch's i-th image or, if the options ask for tiles and an image is larger,
// those of the i-th tile of this one image, in the order of networks_tiles.
const maskrcnn_result *networks_result(const void *results, int i);
bool networks_tiled(const InferOptions *o, int h, int w); // whether such an image is cut into tiles
TilePlan networks_tiles(const InferOptions *o, int h, int w);
int networks_shape(const Networks *h, int group); // the canvas of a group, for Speed
int networks_exit(const Networks *h); // the exit status after the queue has failed, which depends on the cause
void networks_close(Networks *h);     // NULL is allowed
