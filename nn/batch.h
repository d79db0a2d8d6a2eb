// A batch on its way from files to the device: the loader fills it, the engine sends it, a network's first nodes read
// it. Its elements are plain data, the same on the host and on the device.
#pragma once
#include <stddef.h>
#include <stdint.h>

// How an image is shown, beyond resizing and mirroring it: a detector's where augmentation draws it, a classifier's
// always (data/batches/augment.c). exact/view.h and exact/affine.h apply it.
typedef struct ImageView {
  int moved; // shown through `map` instead of resized and mirrored
  // a b c d e f: the canvas's point (x, y) shows the image's point (a·x + b·y + c, d·x + e·y + f), both in pixels with
  // centres at half-integers.
  float map[6];
  int coloured; // the factors below apply
  float contrast, brightness, saturation;
  float mean; // of the image's luminance [0, 255], for contrast
} ImageView;

typedef struct ImageInfo { // one image of the batch; h = w = rh = rw = 0: an empty slot
  int64_t offset;          // its bytes in the batch's buffer: RGB [h, w, 3]
  int h, w;                // as decoded
  int rh, rw;              // after resizing; the rest of the canvas is zero
  int flip;                // mirrored left-right; everything in canvas coordinates is mirrored already
  uint64_t key;            // of its random numbers: (seed, epoch, image)
  ImageView view;
} ImageInfo;

// Detections of an image, at most: by default, and as many as can be asked for.
enum { USUAL_DETECTIONS = 100, MOST_DETECTIONS = 10000 };
enum { USUAL_ROIS = 512, MOST_ROIS = 8192 }; // sampled per image in training; a threadblock sorts them

// How images are resized, to whose pixel: each rounds in its own way.
typedef enum ResizeRule { RESIZE_TORCHVISION, RESIZE_DETECTRON2, RESIZE_BENCHMARK } ResizeRule;

// Where an object's box comes from after its image was moved: its mask's pixels, its polygons where the mask has them,
// or the corners of the box, cut off at the canvas. Each falls back to the next.
typedef enum MovedBoxes { MOVED_MASK, MOVED_POLYGON, MOVED_BOX } MovedBoxes;

enum { NO_MASK = -1 };
typedef struct Bitmap { // an instance's mask, cropped, in the decoded image's pixels (not flipped, not moved)
  int64_t offset;       // of its first word in the batch's bits; rows of (w + 31) / 32 words, bit x % 32 of word x / 32
  int x, y, w, h;       // crop window in the image; outside it the mask is 0
  // > 0: no bits, but so many polygons in canvas pixels (resized, flipped, moved): of each the number of points, then
  // their x and y as floats, a word each. NO_MASK: the object has a box alone, and no part in the mask loss.
  int parts;
} Bitmap;

// What the number of elements of an array goes by.
typedef enum BatchExtent {
  PER_IMAGE,
  PER_OBJECT, // images · capacity; row g of image n at n·capacity + g
  PER_BYTE,   // of all decoded images, without gaps
  PER_WORD,   // of all bitmaps and polygons, without gaps
} BatchExtent;

// The list of all arrays: X(constant, member, element, extent, elements for each). Floats become reals of the device.
// clang-format off
#define EACH_BATCH_ARRAY(X)                                                                                            \
  X(BATCH_INFO,   info,   ImageInfo, PER_IMAGE,  1)                                                                    \
  X(BATCH_BYTES,  bytes,  uint8_t,   PER_BYTE,   1) /* RGB */                                                          \
  X(BATCH_BOX,    box,    float,     PER_OBJECT, 4) /* x1 y1 x2 y2, canvas pixels */                                   \
  X(BATCH_LABEL,  label,  int,       PER_OBJECT, 1) /* 1 … classes - 1; sets of classes: 0 … classes - 1 */            \
  X(BATCH_COUNT,  count,  int,       PER_IMAGE,  1) /* objects of an image */                                          \
  X(BATCH_BITMAP, bitmap, Bitmap,    PER_OBJECT, 1) /* all zero when masks are not asked for */                        \
  X(BATCH_BITS,   bits,   uint32_t,  PER_WORD,   1) /* of all bitmaps */
// clang-format on

#define BATCH_CONSTANT(constant, member, element, extent, each) constant,
typedef enum BatchArray { EACH_BATCH_ARRAY(BATCH_CONSTANT) BATCH_ARRAYS } BatchArray;

// `images` slots, of which `used` hold an image. An empty slot has index -1, a zero ImageInfo and no objects; it can
// stand anywhere: past the end of an evaluation, or where a file could not be read and nothing may replace it. Rows
// past an image's count are zero. On the host; whoever makes a batch owns its arrays.
typedef struct Batch {
  int canvas; // index into the data set's canvases
  int images, used;
  int *index;        // [images] which image of the data set, or -1
  int capacity;      // of objects per image
  int64_t num_bytes; // in `bytes`
  int64_t num_words; // in `bits`
  int64_t step;
  double wait_seconds; // how long the consumer waited for this batch
#define BATCH_MEMBER(constant, member, element, extent, each) element *member;
  EACH_BATCH_ARRAY(BATCH_MEMBER)
} Batch;

typedef struct BatchLayout { // of one array
  const char *name;
  BatchExtent extent;
  size_t each;    // elements for each of the extent
  size_t element; // bytes
  int is_real;    // floats, which are reals on the device
  size_t member;  // offset of the pointer in Batch
} BatchLayout;
extern const BatchLayout batch_layout[BATCH_ARRAYS];

typedef struct BatchSize { // what a batch holds, or has room for
  int images, capacity;
  int64_t bytes, words; // of all images
} BatchSize;
BatchSize batch_size(const Batch *b);
size_t batch_elements(const BatchSize *size, BatchArray array);

void *batch_array(const Batch *b, BatchArray array);
void batch_set_array(Batch *b, BatchArray array, void *p);
// Empties one slot: its rows become zero.
void batch_clear(Batch *b, int position);
