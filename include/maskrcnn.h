// Mask R-CNN inference as a library: it takes weights and RGB images in memory, and returns boxes, scores, labels and
// masks, or, for a classification network, classes and their probabilities.
//
// Plain C, usable from C++ and through foreign-function interfaces. The ABI is stable: enumerators and members are only
// ever appended, and structs that may grow are either allocated by the library, which returns pointers to them, or
// carry their size (maskrcnn_options).
//
// Threads: any call may come from any thread, for one handle from several at a time. Each handle has one thread of its
// own that computes, so that no call changes what belongs to the caller's: CUDA's current device, the locale, signal
// masks, OpenMP's settings; a call that hands over photographs copies them by up to four threads, which end with it.
// Handles share nothing. A handle does not survive a fork: in the child its calls return MASKRCNN_DEAD; open one there.
//
// Failures: every call returns a status and leaves one line that says what, where and what to do. The library never
// prints, exits or handles signals.
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MASKRCNN_API __attribute__((visibility("default")))
#else
#define MASKRCNN_API
#endif

#define MASKRCNN_VERSION_MAJOR 1
#define MASKRCNN_VERSION_MINOR 3
// "1.3" of the library that is loaded, with the commit that it was built from.
MASKRCNN_API const char *maskrcnn_version(void);

typedef struct maskrcnn maskrcnn; // a model on a device, and its pipeline

// Below zero the call has failed and done nothing. The handle is as usable as before, except after MASKRCNN_DEAD.
typedef enum maskrcnn_status {
  MASKRCNN_OK = 0,
  MASKRCNN_FULL = 1,    // maskrcnn_submit: take results first, nothing was taken
  MASKRCNN_NOT_YET = 2, // maskrcnn_next without waiting: the oldest submission is under way
  MASKRCNN_EMPTY = 3,   // maskrcnn_next: no submission is under way
  MASKRCNN_BAD_ARGUMENT = -1,
  MASKRCNN_BAD_WEIGHTS = -2, // not there, no weights, or of a model that the options do not fit
  MASKRCNN_BAD_DEVICE = -3,  // not there, or not usable by this build
  MASKRCNN_NO_MEMORY = -4,
  MASKRCNN_BAD_IMAGE = -5, // no size, no pixels, or larger than the options allow
  MASKRCNN_DEAD = -6       // the device or the engine failed: every further call says so, but for maskrcnn_close
} maskrcnn_status;
// "ok", "full", … "dead".
MASKRCNN_API const char *maskrcnn_status_name(maskrcnn_status status);

// ---- opening --------------------------------------------------------------------------------------------------------

typedef struct maskrcnn_size {
  int height, width;
} maskrcnn_size;

// Strings and arrays have to stay until maskrcnn_open returns.
typedef struct maskrcnn_options {
  size_t size;          // of this struct, as its caller knows it; set by maskrcnn_options_init
  const char *weights;  // file: a checkpoint of maskrcnn.c's or torchvision's, .safetensors or .pth; has to be set
  const char *device;   // "auto" (the first usable GPU, else the CPU), "cpu", "cuda:0", …
  const char *amp;      // 16-bit activations on a GPU: "off", "bf16", "fp16"
  int tf32;             // 1: fp32 convolutions on a GPU may round to TF32
  const char *conv;     // rung of the convolution ladder on a GPU; NULL: the fastest for each problem
  int batch;            // images that are computed at a time, at most; 1
  int queue;            // images that may be submitted and not yet computed; 0: four batches
  float min_score;      // detections below it are dropped; 0.05
  float mask_threshold; // a mask pixel of at least this probability is foreground; 0.5
  int image_size;       // shorter side that images are resized to; 0: as trained
  int max_image_size;   // longer side at most; 0: as trained, or 5/3 of image_size
  // Of an image, at most; 16 · 1024 · 1024. It takes no memory by itself: there is room for images as large as the
  // canvases, and a batch of larger ones makes it grow, on the host and on the device. Where there is no memory for
  // that, maskrcnn_run or maskrcnn_submit says MASKRCNN_NO_MEMORY, and the handle goes on with smaller ones.
  int64_t max_pixels;
  // Of a classifier both sides of what it sees are image_size, and max_image_size and canvases have to be unset.
  const maskrcnn_size *canvases; // padded shapes that graphs are built for, multiples of 32; NULL: a few that hold all
  int num_canvases;              // images that the model's rule of resizing can lead to; at most 8
  int threads;                   // of the CPU, for computing; 0: one per core; as many of them as the system gives
  int sync_nodes; // 1: wait after every node and kernel, so that an error of the GPU names it; slow, the same results
  size_t top;     // classes of an image that results name, the likeliest; 0: all; 5
  // Since 1.3. Detections of an image, at most, 1 to 10000; 0: as trained. Of a classifier it has to be 0.
  size_t detections_per_image;
  // Since 1.3. Proposals of an image that are classified, 1 to 10000; at least detections_per_image if that is above
  // 100; 0: as trained. Of a classifier it has to be 0.
  size_t proposals_per_image;
  // Since 1.3. Of detections of one class that overlap by more than this IoU one is kept, that with the highest score;
  // negative: as trained, the default. Of a classifier it has to be negative.
  float nms;
  // Since 1.3. "FIELD=VALUE FIELD=VALUE …": other fields of the model's configuration, as far as what was learnt does
  // not depend on them; train --help model lists them. NULL: none.
  const char *set;
} maskrcnn_options;
// Sets the defaults: maskrcnn_options_init(&options, sizeof options).
MASKRCNN_API void maskrcnn_options_init(maskrcnn_options *options, size_t size);

// Loads the weights, builds the graphs and takes the memory that inference needs. *handle is NULL after a failure, and
// `message` (room for `room` bytes; 512 are enough for most, NULL with 0: not wanted) says why.
MASKRCNN_API maskrcnn_status maskrcnn_open(maskrcnn **handle, const maskrcnn_options *options, char *message,
                                           size_t room);
// Waits for what is being computed, drops what is not, frees all but results. NULL: nothing. No other call on the
// handle may be under way.
MASKRCNN_API void maskrcnn_close(maskrcnn *handle);

// Why the last call on the handle that failed did, whichever thread it came from; "" where none has. Valid until this
// thread asks again.
MASKRCNN_API const char *maskrcnn_message(maskrcnn *handle);

// ---- what was opened ------------------------------------------------------------------------------------------------

// What is made of an image. Callers leave alone what they do not know.
typedef enum maskrcnn_kind {
  MASKRCNN_DETECTIONS = 1, // maskrcnn_detections
  MASKRCNN_CLASSES = 2     // maskrcnn_classes
} maskrcnn_kind;

typedef struct maskrcnn_description {
  const char *model;   // "maskrcnn", "resnet", …
  const char *device;  // "NVIDIA H200, 132 SMs, 140 GiB", "CPU, …"
  const char *why_cpu; // why "auto" took the CPU; "": it did not, or this build knows no GPU
  const char *amp;     // "off", "bf16", "fp16"
  int num_kinds;
  const maskrcnn_kind *kinds; // of results that it makes
  // Label l, from 1 to num_categories, stands for categories[l - 1], of classes, too; 0 is background and never found.
  int num_categories;
  const int64_t *category_ids; // as in the annotations that it was trained on
  const char *const *category_names;
  int detections_per_image; // at most; 0: it finds none
  // An image's shorter side becomes image_size, unless the longer would exceed max_image_size. A classifier sees the
  // middle of an image, a square: what it was evaluated on while it was trained.
  int image_size, max_image_size;
  const char *resize_rule; // whose rounding: "torchvision", "detectron2", "maskrcnn-benchmark"
  int num_canvases;
  const maskrcnn_size *canvases;
  int batch, queue;
  int64_t max_pixels;
  size_t device_bytes, host_bytes; // taken by maskrcnn_open: of the GPU (0 on the CPU), of the host
  // Since 1.3. Whether training rotated images by their EXIF orientation, as a caller should then rotate photographs: 1
  // yes, 0 no, -1 the weights do not say.
  int exif;
  // Since 1.3. The values of 16-bit images that become 0 and 255, as in training: maskrcnn_scale_samples.
  int range_low, range_high;
} maskrcnn_description;
// Valid until the handle is closed; NULL for NULL.
MASKRCNN_API const maskrcnn_description *maskrcnn_describe(const maskrcnn *handle);

// ---- images and results ---------------------------------------------------------------------------------------------

typedef struct maskrcnn_image {
  const uint8_t *rgb; // row y begins at rgb + y · pitch and has `width` pixels of three bytes: red, green, blue
  int width, height;
  int64_t pitch; // bytes from row to row; 0: 3 · width; all rows span at most 1 TiB
} maskrcnn_image;

// Since 1.3. Makes bytes of 16-bit samples as training did: from range_low to range_high of maskrcnn_description in 256
// equal parts, (sample - range_low) * 256 / (range_high - range_low + 1), and what is beyond as 0 or 255. A gray sample
// then has to be repeated for red, green and blue.
MASKRCNN_API maskrcnn_status maskrcnn_scale_samples(maskrcnn *handle, const uint16_t *samples, size_t n,
                                                    uint8_t *bytes);

// Run-length coded as COCO does it: pixels column by column, alternately background and foreground.
typedef struct maskrcnn_rle {
  int height, width;      // the image's
  int num_counts;         // 0: the detection has no mask
  const uint32_t *counts; // [num_counts]; their sum is height · width
} maskrcnn_rle;

// Detection i, by descending score:
typedef struct maskrcnn_detections {
  int n;
  const float *boxes;  // [n][4] x1 y1 x2 y2, pixels of the caller's image: the left edge of its first pixel is 0
  const float *scores; // [n]
  const int *labels;   // [n] 1 … num_categories
  const int64_t *category_ids;
  const char *const *names; // of the categories; "" where the weights name none
  const maskrcnn_rle *const *masks;
} maskrcnn_detections;

// Class i, by descending probability, the lowest label first among equals:
typedef struct maskrcnn_classes {
  int n;               // of maskrcnn_options: `top`, or as many as there are
  const float *scores; // [n] probabilities, of all classes together 1
  const int *labels;   // [n] 1 … num_categories
  const int64_t *category_ids;
  const char *const *names;
} maskrcnn_classes;

typedef struct maskrcnn_result { // of an image
  maskrcnn_kind kind;            // which of the pointers at the end is set; the others are NULL
  int width, height;             // the image's
  const maskrcnn_detections *detections;
  const maskrcnn_classes *classes;
} maskrcnn_result;

// Of one maskrcnn_run or maskrcnn_submit. Results own all that they point to: they may outlive the handle, be read by
// several threads and be freed by any.
typedef struct maskrcnn_results {
  uint64_t tag; // of maskrcnn_submit; 0 of maskrcnn_run
  int n;
  const maskrcnn_result *const *images; // [n] in the order in which they were given
} maskrcnn_results;
MASKRCNN_API void maskrcnn_results_free(maskrcnn_results *results); // NULL: nothing

// COCO's compressed string of a mask. As snprintf: writes at most room - 1 characters and a NUL, and returns how many
// there are, the NUL not counted.
MASKRCNN_API size_t maskrcnn_mask_string(const maskrcnn_rle *mask, char *text, size_t room);
// A mask as bytes, 1 inside and 0 outside: row y begins at bytes + y · pitch (0: mask->width).
MASKRCNN_API maskrcnn_status maskrcnn_mask_bitmap(const maskrcnn_rle *mask, uint8_t *bytes, int64_t pitch);

// ---- running --------------------------------------------------------------------------------------------------------
//
// Images may have any sizes, mixed: each is resized as the model wants it, padded to the smallest canvas that holds it
// and computed together with others of that canvas. What is made of an image does not depend on those beside it.

// Finds what is in n images, or tells their classes (0: nothing), and waits for it. One image that is refused fails the
// call, which names it.
MASKRCNN_API maskrcnn_status maskrcnn_run(maskrcnn *handle, const maskrcnn_image *images, int n,
                                          maskrcnn_results **results);

// The same as a pipeline, for throughput: copies and computes while the caller goes on. Returns when the pixels are
// copied. MASKRCNN_FULL: nothing was taken, because the queue has no room for n images. An n above `queue` is refused.
MASKRCNN_API maskrcnn_status maskrcnn_submit(maskrcnn *handle, const maskrcnn_image *images, int n, uint64_t tag);
// The results of the oldest submission that have not been taken. `wait`: until they are there; otherwise
// MASKRCNN_NOT_YET where they are not. *results is NULL for every status but MASKRCNN_OK.
MASKRCNN_API maskrcnn_status maskrcnn_next(maskrcnn *handle, int wait, maskrcnn_results **results);

#ifdef __cplusplus
}
#endif
