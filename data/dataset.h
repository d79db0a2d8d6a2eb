// One split of a COCO data set, ready to be sampled: its usable images, their objects, the canvases, and the room that
// the largest batch needs.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/canvas.h"
#include "data/coco.h"
#include "data/image.h"
#include "nn/util.h"

typedef struct Object { // an annotation that can be trained on
  int ann;              // index into coco.anns
  int label;            // category + 1
  float box[4];         // x1 y1 x2 y2, pixels of the image, clipped to it
} Object;

typedef struct Dataset {
  Coco coco;
  char *folder; // of the image files
  int classes;  // categories + background
  Resize resize;
  int num_canvases;
  Canvas canvas[MAX_CANVASES];
  int num_images;        // usable ones, ascending by id
  int *image;            // [num_images] index into coco.images
  uint8_t *image_canvas; // [num_images] the smallest canvas that holds the resized image
  Object *object;        // grouped by image, in file order
  int *first_object;     // [num_images + 1] those of image i are object[first_object[i] … first_object[i + 1])
  int max_objects;       // most of any image, but at least 1: the capacity for ground truth
  int64_t max_bytes;     // of the largest decoded image
  int64_t max_words;     // of the bitmaps of one image, at most
  // For the report.
  int without_objects; // images with nothing to train on
  int crowds;          // annotations left out because they mark a crowd
  int dropped_boxes;   // … because their box has no area inside the image
  int unlabelled;      // … because their category is not in the file
  int box_masks;       // objects without a usable segmentation: the mask is the box
} Dataset;

typedef struct DatasetOptions {
  Resize resize;
  int max_canvases; // 1 … MAX_CANVASES
  bool keep_empty;  // also images without a usable object (evaluation; presets that train on background)
  int limit;        // only the first `limit` usable images by id; 0 = all
} DatasetOptions;

// Reads the annotations of a split and decides what is usable, as torchvision's reference training does
// (ConvertCocoPolysToMask): no crowds, boxes clipped to the image, none without area. A box that is absent is that of
// the mask. Image files are looked for but not opened, unless an image's size is not in the annotations. False when
// files are not there, are malformed, or hold no usable image.
bool dataset_open(Dataset *d, const char *dir, const char *split, const DatasetOptions *options, Err *err);
void dataset_close(Dataset *d);

// The file of usable image i; caller frees.
char *dataset_path(const Dataset *d, int i);
// Reads it: false, saying why, when it cannot be decoded or has another size than the annotations say.
bool dataset_image(const Dataset *d, int i, Image *im, Err *err);
// The mask of an object of usable image i, at the image's size: its segmentation or, without a usable one, its box.
// Caller frees.
Rle dataset_mask(const Dataset *d, int i, const Object *o);
// What there is to train on, what was left out, and the canvases: a few lines.
void dataset_print(const Dataset *d, FILE *out);
