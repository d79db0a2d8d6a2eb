// Mask R-CNN inference as a library: it takes weights and images, as pixels or as JPEG and PNG files in memory, and
// returns boxes, scores, labels and masks, or, for a classification network, classes and their probabilities.
//
// Plain C, usable from C++ and through foreign-function interfaces. The ABI is stable: enumerators and members are only
// ever appended, and structs that may grow are either allocated by the library, which returns pointers to them, or
// carry their size in their first member.
//
// Threads: any call may come from any thread, for one handle from several at a time. Each handle has threads of its own
// that compute and that sleep while there is nothing to do; a call that hands over images copies or decodes them with
// up to four threads, which end with it. No call changes what belongs to its thread or process: the floating-point
// environment, the locale, signal masks, OpenMP's settings, CUDA's current device. Handles share nothing. A handle does
// not survive a fork: in the child its calls return MASKRCNN_DEAD; open one there.
//
// A thread that is cancelled (pthread_cancel, deferred as by default) within a call completes the call, also one that
// waits, and ends at its next cancellation point after it; a loop of calls alone has none but pthread_testcancel.
// Results that the call returned are for the thread's cleanup handlers to free. Threads with asynchronous cancellation
// must not call the library.
//
// Failures: a call that can fail returns a status and takes a maskrcnn_error, which may be NULL, for one line that says
// what, where and what to do. What is wrong with an image is the status of its result and leaves the others alone. The
// library never prints, exits or handles signals.
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

#define MASKRCNN_VERSION_MAJOR 2
#define MASKRCNN_VERSION_MINOR 0
// "2.0" of the library that is loaded, with the commit that it was built from.
MASKRCNN_API const char *maskrcnn_version(void);

typedef struct maskrcnn maskrcnn; // a model on a device, and its pipeline

// Below zero something has failed. The handle is as usable as before, except after MASKRCNN_DEAD.
typedef enum maskrcnn_status {
  MASKRCNN_OK = 0,
  MASKRCNN_FULL = 1,    // maskrcnn_submit: take results first, nothing was taken
  MASKRCNN_NOT_YET = 2, // maskrcnn_next, _wait, _poll: the submission is under way
  MASKRCNN_EMPTY = 3,   // maskrcnn_next, _wait, _poll, _cancel: there is no such submission
  MASKRCNN_BAD_ARGUMENT = -1,
  MASKRCNN_BAD_WEIGHTS = -2, // not there, no weights, damaged, or of a model that the options do not fit
  MASKRCNN_BAD_DEVICE = -3,  // not there, or not usable by this build
  MASKRCNN_NO_MEMORY = -4,   // there is none, or it would exceed max_device_bytes or max_host_bytes
  MASKRCNN_BAD_IMAGE = -5,   // of a result: no size, no pixels, damaged, or larger than the options allow
  MASKRCNN_DEAD = -6,        // the device or the engine failed: every further call says so, but for maskrcnn_close
  MASKRCNN_CANCELLED = -7,   // of a result: maskrcnn_cancel
  MASKRCNN_BAD_FILE = -8     // maskrcnn_write_png: it cannot be written
} maskrcnn_status;
// "ok", "full", … "bad file".
MASKRCNN_API const char *maskrcnn_status_name(maskrcnn_status status);

// Why a call has failed: one line, its numbers with a point whatever the locale. "" after a status of 0 or more.
typedef struct maskrcnn_error {
  char message[1024];
} maskrcnn_error;

// ---- devices --------------------------------------------------------------------------------------------------------

typedef struct maskrcnn_device {
  const char *name;        // as in maskrcnn_options: "cpu", "cuda:0", …
  const char *description; // "NVIDIA H200, 132 SMs, 140 GiB"
  size_t total_bytes;      // of its memory; 0: not known
  size_t free_bytes;       // now; 0: not known, as of a GPU that this process has not opened
} maskrcnn_device;

typedef struct maskrcnn_devices {
  int n;
  const maskrcnn_device *const *devices; // [n] those that this build can use: GPUs first, then the CPU
  const char *why_no_gpu;                // ""; or why there is none that can be used
} maskrcnn_devices;
MASKRCNN_API maskrcnn_status maskrcnn_list_devices(maskrcnn_devices **devices, maskrcnn_error *error);
MASKRCNN_API void maskrcnn_devices_free(maskrcnn_devices *devices); // NULL: nothing

// ---- opening --------------------------------------------------------------------------------------------------------

typedef struct maskrcnn_size {
  int height, width;
} maskrcnn_size;

typedef enum maskrcnn_log_level {
  MASKRCNN_LOG_INFO = 1,    // what was opened and how the weights were read; memory that a handle takes later
  MASKRCNN_LOG_WARNING = 2, // what the caller may not want: no GPU can be used, an image was refused
  MASKRCNN_LOG_ERROR = 3    // the handle is dead
} maskrcnn_log_level;
// Called by the handle's thread or a caller's within a call, one at a time. It must not call the handle.
typedef void (*maskrcnn_log)(void *context, maskrcnn_log_level level, const char *message);

// Strings, arrays and weights have to stay until maskrcnn_open returns.
typedef struct maskrcnn_options {
  size_t size;              // of this struct, as its caller knows it; set by maskrcnn_options_init
  const char *weights;      // file: a checkpoint of maskrcnn.c's or torchvision's, .safetensors or .pth; or
  const void *weights_data; // its contents, and …
  size_t weights_bytes;     // … their length. One of them has to be set
  const char *device;       // "auto" (the first usable GPU, else the CPU), "cpu", "cuda:0", …
  const char *amp;          // 16-bit activations on a GPU: "off", "bf16", "fp16"
  int tf32;                 // 1: fp32 convolutions on a GPU may round to TF32
  const char *conv;         // rung of the convolution ladder on a GPU; NULL: the fastest for each problem
  int batch;                // images that are computed at a time, at most; 1
  int queue;                // images that may be submitted and not yet computed; 0: four batches
  int threads;              // that compute on the CPU, and at most as many copy; 0: one per core that is free to use
  float min_score;          // detections below it are dropped; 0.05
  float mask_threshold;     // a mask pixel of at least this probability is foreground; 0.5
  int image_size;           // shorter side that images are resized to; 0: as trained
  int max_image_size;       // longer side at most; 0: as trained, or 5/3 of image_size
  // Of an image, at most; 16 · 1024 · 1024. It takes no memory by itself: there is room for images as large as the
  // canvases, and a batch of larger ones makes it grow, on the host and on the device. Where there is no memory for
  // that, the image's status is MASKRCNN_NO_MEMORY, and the handle goes on with smaller ones.
  int64_t max_pixels;
  // Of a classifier both sides of what it sees are image_size, and max_image_size and canvases have to be unset.
  const maskrcnn_size *canvases; // padded shapes that graphs are built for, multiples of 32; NULL: a few that hold all
  int num_canvases;              // images that the model's rule of resizing can lead to; at most 8
  int sync_nodes; // 1: wait after every node and kernel, so that an error of the GPU names it; slow, the same results
  size_t top;     // classes of an image that results name, the likeliest; 0: all; 5
  size_t detections_per_image; // at most, 1 to 10000; 0: as trained. Of a classifier it has to be 0
  // Of an image that are classified, 1 to 10000; at least detections_per_image if that is above 100; 0: as trained. Of
  // a classifier it has to be 0.
  size_t proposals_per_image;
  // Of detections of one class that overlap by more than this IoU one is kept, that with the highest score; negative:
  // as trained, the default. Of a classifier it has to be negative.
  float nms;
  // "FIELD=VALUE FIELD=VALUE …": other fields of the model's configuration, as far as what was learnt does not depend
  // on them; train --help model lists them. NULL: none.
  const char *set;
  int exif; // encoded images: 1: rotate by their EXIF orientation, 0: do not; -1: as trained, the default
  // Limits of the memory that the handle takes when it opens and later, without that of results and of the GPU's
  // driver; 0: none. Where they do not suffice, maskrcnn_open or the image has the status MASKRCNN_NO_MEMORY.
  size_t max_device_bytes, max_host_bytes;
  maskrcnn_log log; // NULL: nothing is logged
  void *log_context;
} maskrcnn_options;
// Sets the defaults: maskrcnn_options_init(&options, sizeof options).
MASKRCNN_API void maskrcnn_options_init(maskrcnn_options *options, size_t size);

// Loads the weights, builds the graphs and takes the memory that inference needs. *handle is NULL after a failure.
MASKRCNN_API maskrcnn_status maskrcnn_open(maskrcnn **handle, const maskrcnn_options *options, maskrcnn_error *error);
// Waits for what is being computed, drops what is not, frees all but results. NULL: nothing. No other call on the
// handle may be under way.
MASKRCNN_API void maskrcnn_close(maskrcnn *handle);

typedef struct maskrcnn_memory {
  size_t size;                     // of this struct, as its caller knows it; to be set
  size_t device_bytes, host_bytes; // that maskrcnn_open would take: of the GPU (0 on the CPU), of the host
  size_t device_free, host_free;   // that are free now; 0: not known, or on the CPU
} maskrcnn_memory;
// What a handle with these options would take, without taking it. MASKRCNN_NO_MEMORY: it would not fit; *memory is
// filled in then, too.
MASKRCNN_API maskrcnn_status maskrcnn_plan(const maskrcnn_options *options, maskrcnn_memory *memory,
                                           maskrcnn_error *error);

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
  int threads; // that compute: as many of those asked for as could be started; 1 on a GPU
  int64_t max_pixels;
  size_t device_bytes, host_bytes; // taken by maskrcnn_open: of the GPU (0 on the CPU), of the host
  int exif; // whether training rotated images by their EXIF orientation: 1 yes, 0 no, -1 the weights do not say
  int range_low, range_high; // the values of 16-bit images that become 0 and 255, as in training
} maskrcnn_description;
// Valid until the handle is closed; NULL for NULL.
MASKRCNN_API const maskrcnn_description *maskrcnn_describe(const maskrcnn *handle);

// ---- images and results ---------------------------------------------------------------------------------------------

typedef enum maskrcnn_format {
  MASKRCNN_RGB = 1,    // three bytes a pixel: red, green, blue
  MASKRCNN_BGR = 2,    // three bytes a pixel: blue, green, red
  MASKRCNN_RGBA = 3,   // four bytes a pixel; alpha is ignored
  MASKRCNN_GREY = 4,   // one byte a pixel, taken for red, green and blue
  MASKRCNN_GREY16 = 5, // one uint16_t a pixel, aligned, of which a range becomes a byte
  MASKRCNN_ENCODED = 6 // the contents of a JPEG or PNG file
} maskrcnn_format;

typedef enum maskrcnn_place {
  MASKRCNN_HOST = 0,
  MASKRCNN_GPU = 1 // memory of the handle's GPU, whose contents are complete when the call is made
} maskrcnn_place;

// Members behind `data` and its format may be 0 where they say so: {sizeof image, rgb, MASKRCNN_RGB, width, height}.
typedef struct maskrcnn_image {
  size_t size; // of this struct, as its caller knows it: sizeof(maskrcnn_image); the same for all of an array
  const void *data;
  maskrcnn_format format;
  int width, height;    // ENCODED: not used
  int64_t pitch;        // row y begins at data + y · pitch bytes; 0: rows are dense; all rows span at most 1 TiB
  size_t bytes;         // ENCODED: the length of data; otherwise not used
  maskrcnn_place place; // 0: in the host's memory
  // GREY16, and ENCODED of 16 bits: the values that become 0 and 255, those between in 256 equal parts:
  // (sample - low) · 256 / (high - low + 1). Both 0: as trained (maskrcnn_description).
  int range_low, range_high;
} maskrcnn_image;

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
  maskrcnn_status status; // MASKRCNN_OK; or _BAD_IMAGE, _NO_MEMORY, _CANCELLED: both pointers at the end are NULL
  const char *message;    // why not; "" for MASKRCNN_OK
  maskrcnn_kind kind;     // which of the pointers at the end is set; the other is NULL
  int width, height;      // the image's, of an encoded one as it is decoded and rotated; 0 where that is not known
  const maskrcnn_detections *detections;
  const maskrcnn_classes *classes;
} maskrcnn_result;

// Of one maskrcnn_run or maskrcnn_submit. Results own all that they point to: they may outlive the handle, be read by
// several threads and be freed by any.
typedef struct maskrcnn_results {
  uint64_t tag; // of maskrcnn_submit; 0 of maskrcnn_run
  int n;
  const maskrcnn_result *const *images; // [n] in the order in which they were given
  int failed;                           // how many have a status other than MASKRCNN_OK
} maskrcnn_results;
MASKRCNN_API void maskrcnn_results_free(maskrcnn_results *results); // NULL: nothing

// COCO's compressed string of a mask. As snprintf: writes at most room - 1 characters and a NUL, and returns how many
// there are, the NUL not counted.
MASKRCNN_API size_t maskrcnn_mask_string(const maskrcnn_rle *mask, char *text, size_t room);
// A mask as bytes, 1 inside and 0 outside: row y begins at bytes + y · pitch (0: mask->width).
MASKRCNN_API maskrcnn_status maskrcnn_mask_bitmap(const maskrcnn_rle *mask, uint8_t *bytes, int64_t pitch);

// ---- running --------------------------------------------------------------------------------------------------------
//
// Images may have any sizes and formats, mixed: each is resized as the model wants it, padded to the smallest canvas
// that holds it and computed together with others of that canvas. What is made of an image does not depend on those
// beside it.

// Finds what is in n images, or tells their classes (0: nothing), and waits for it.
MASKRCNN_API maskrcnn_status maskrcnn_run(maskrcnn *handle, const maskrcnn_image *images, int n,
                                          maskrcnn_results **results, maskrcnn_error *error);

// The same as a pipeline, for throughput: copies and computes while the caller goes on. Returns when the images are
// copied and decoded. MASKRCNN_FULL: nothing was taken, because the queue has no room for n images. An n above `queue`
// is refused. Each submission that was taken has its results taken by one maskrcnn_next or maskrcnn_wait, cancelled or
// not; `tag` is the caller's name for it.
MASKRCNN_API maskrcnn_status maskrcnn_submit(maskrcnn *handle, const maskrcnn_image *images, int n, uint64_t tag,
                                             maskrcnn_error *error);

// Takes results: those of the oldest submission, or of the oldest with this tag. Waits for them for at most so many
// milliseconds, 0: not at all, negative: as long as it takes; then MASKRCNN_NOT_YET. MASKRCNN_EMPTY: there is no such
// submission, or another thread takes its results. *results is NULL for every status but MASKRCNN_OK.
MASKRCNN_API maskrcnn_status maskrcnn_next(maskrcnn *handle, int milliseconds, maskrcnn_results **results,
                                           maskrcnn_error *error);
MASKRCNN_API maskrcnn_status maskrcnn_wait(maskrcnn *handle, uint64_t tag, int milliseconds, maskrcnn_results **results,
                                           maskrcnn_error *error);
// Whether maskrcnn_wait would return results at once: MASKRCNN_OK, _NOT_YET or _EMPTY. How many of the submission's
// images are done and how many of these failed; each may be NULL.
MASKRCNN_API maskrcnn_status maskrcnn_poll(maskrcnn *handle, uint64_t tag, int *done, int *failed,
                                           maskrcnn_error *error);
// Drops the images of the oldest submission with this tag that have not been computed: their status is
// MASKRCNN_CANCELLED. Those in a batch that has begun are dropped when it ends.
MASKRCNN_API maskrcnn_status maskrcnn_cancel(maskrcnn *handle, uint64_t tag, maskrcnn_error *error);

// ---- pictures -------------------------------------------------------------------------------------------------------

typedef struct maskrcnn_picture {
  int width, height;
  uint8_t *rgb; // [height][width][3], the caller's to change
} maskrcnn_picture;

// An image as the handle reads it, with the detections of a result drawn over it; result NULL: without any. The result
// has to be of an image of that size, and its status MASKRCNN_OK.
MASKRCNN_API maskrcnn_status maskrcnn_draw(maskrcnn *handle, const maskrcnn_image *image, const maskrcnn_result *result,
                                           maskrcnn_picture **picture, maskrcnn_error *error);
MASKRCNN_API void maskrcnn_picture_free(maskrcnn_picture *picture); // NULL: nothing
// Writes a picture as a PNG file, replacing a file of that name.
MASKRCNN_API maskrcnn_status maskrcnn_write_png(const maskrcnn_picture *picture, const char *path,
                                                maskrcnn_error *error);

#ifdef __cplusplus
}
#endif
