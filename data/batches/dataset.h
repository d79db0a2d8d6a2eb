// One split of a data set, whatever its format, ready to be sampled: its usable images, their objects, the canvases,
// and the room that the largest batch needs.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/bad_images.h"
#include "data/batches/object_type.h"
#include "data/coco/categories_match.h"
#include "data/coco/crowds.h"
#include "data/images/image.h"

typedef struct Object { // an annotation that can be trained on
  int ann;              // index into coco.anns
  int label;            // category + 1; where there is no background, the category
  float box[4];         // x1 y1 x2 y2, pixels of the image, clipped to it
} Object;

typedef struct Dataset {
  const ObjectType *type; // of its objects
  Coco coco;
  char *folder;    // of the image files
  int classes;     // categories, and the background where there is one
  Resize resize;   // to the largest of `sizes`
  Sizes sizes;     // that training draws from
  float box_extra; // as in the options, and below
  bool polygons;
  bool upright; // pictures are turned as their EXIF orientation says
  int num_canvases;
  Canvas canvas[MAX_CANVASES];
  int num_images;         // usable ones, ascending by id
  int *image;             // [num_images] index into coco.images
  uint8_t *image_canvas;  // [num_images] the smallest canvas that holds the resized image
  Object *object;         // grouped by image, in file order
  int *first_object;      // [num_images + 1] those of image i are object[first_object[i] … first_object[i + 1])
  int max_objects;        // most of any image, but at least 1: the capacity for ground truth
  int64_t max_bytes;      // of the largest decoded image
  int64_t max_words;      // of the bitmaps and polygons of one image, at most
  atomic_uchar *reported; // [num_images] whether an image was reported as bad, whichever loader met it
  BadImages *bad;         // what is said of them
  int64_t *file_bytes; // [coco.num_images] length of an image's file when the set was opened; 0: not looked for, or not
                       // there; NULL: images are in memory
  bool *absent;        // [coco.num_images] whether an image's file was not there when the set was opened
  double patience;     // of DatasetOptions
  float view;          // how much of an image a map shows: augment_map
  uint8_t *gray;       // [coco.num_images, h, w] where images are in memory, all of one size; NULL: files
  uint8_t *shrink;     // [coco.num_images] by what both sides of an image are divided once it is decoded; NULL: none is
  int64_t max_whole;   // as max_bytes, before that
  int others;          // files that are no images
  int num_listed;      // images of the file that were looked at, from its first: fewer with a limit
  CategoryNotes notes; // on its categories
  bool *left_out;      // [coco.num_images] the next
  char **why;          // [coco.num_images] why it was; NULL where it was not
  int bad_images;      // left out, because neither annotations nor file give a size that can be, or the file is smaller
  int missing;         // files of usable images that are not there: the loader will meet them
  int without_objects; // images with nothing to train on
  int crowds;          // annotations left out because they mark a crowd
  int former_crowds;   // taken as objects though they are marked as crowds
  int dropped_boxes;   // … because their box has no area inside the image
  int unlabelled;      // … because their category is not in the file
} Dataset;

enum { STORAGE_PATIENCE = 10 }; // seconds, of runs

typedef struct DatasetOptions {
  Resize resize;
  Sizes sizes;  // multi-scale: instead of resize.size. Canvases are for the largest, so that the batches of an epoch do
                // not depend on what is drawn
  bool upright; // annotations are of pictures turned as their EXIF orientation says; COCO's are of pixels as stored
  float box_extra;   // x2 = x + width - box_extra: 1 where corners are pixels
  bool polygons;     // masks are wanted as polygons, where they are given so
  int max_canvases;  // 1 … MAX_CANVASES
  bool strict;       // a file that is missing or of no known size is an error; otherwise only when most are missing
  CrowdChoice crowd; // what crowds are that cover one object each
  bool keep_empty;   // also images without a usable object (evaluation; presets that train on background)
  double patience;   // seconds that files may be away which were there when the set was opened (data/batches/outage.h)
  int limit;         // only the first `limit` usable images by id; 0 = all
  const char *index; // folder for the index of the annotations (data/coco/coco_index.h); NULL: none
} DatasetOptions;

// Reads the annotations of a split and decides what is usable, as torchvision's reference training does
// (ConvertCocoPolysToMask): no crowds, boxes clipped to the image, none without area. Image files are looked for but
// not opened, but for those whose size is not in the annotations and the largest, which decides how much memory a batch
// takes. False when files are not there, are malformed, or hold no usable image.
bool dataset_open(Dataset *d, const char *dir, const char *split, const DatasetOptions *options, Err *err);
void dataset_close(Dataset *d);
// The box of an annotation as training takes it: x1 y1 x2 y2, clipped to the image where its size is known; `extra` is
// box_extra. False where it has no area.
bool dataset_box(const CocoImage *im, const CocoAnn *a, float extra, float box[4]);

// Its categories, for whoever holds others against them; borrowed.
CategoryList dataset_categories(const Dataset *d);
// Gives its categories ids, names and order of `known`, as categories_match finds them; labels follow. False
// where objects have others, or where the file lists none.
bool dataset_take_categories(Dataset *d, const CategoryList *known, Err *err);
// A line for each note.
void dataset_print_notes(const Dataset *d, FILE *out);

// The file of usable image i; caller frees.
char *dataset_path(const Dataset *d, int i);
// The same into path[dataset_path_size], which it returns.
char *dataset_path_to(const Dataset *d, int i, char *path);
size_t dataset_path_size(const Dataset *d, int i); // with the NUL
// How many polygons an object's mask is; 0 where it is not given so or not wanted so.
int dataset_polygons(const Dataset *d, const Object *o);
// Reads it whole: false, saying why, when it cannot be decoded or has another size than the annotations say.
bool dataset_image(const Dataset *d, int i, Image *im, Err *err);
// Of its header alone: false, saying why, when there is none or another size than the annotations say.
bool dataset_size_holds(const Dataset *d, int i, Err *err);
// The mask of an object of usable image i, at the image's size: its segmentation or, without a usable one, its box.
// Caller frees.
Rle dataset_mask(const Dataset *d, int i, const Object *o);
// The same with memory of `scratch`, or the annotation's own runs: not to be freed.
Rle dataset_mask_in(Scratch *scratch, const Dataset *d, int i, const Object *o);
// Height and width of usable image i as the loader lays it out.
Size dataset_size(const Dataset *d, int i);
// RGB [h, w, 3] of usable image i of those in memory: gray, three times.
void dataset_pixels(const Dataset *d, int i, uint8_t *rgb);
// Says why an image (index into coco.images) is bad and leaves it out, or returns false with that where `strict`.
bool dataset_leave_out(Dataset *d, int image, bool strict, const Err *bad, Err *err);
// Says, once a program, that usable image i is bad, and what becomes of it: "replaced", "left out"; NULL: it is listed
// alone, of another process. From any thread.
void dataset_tell_bad(const Dataset *d, int i, const char *how, const char *reason);
// Images that turned out bad so far, those left out from the start among them.
int dataset_bad_images(const Dataset *d);
// As ObjectType.print.
void dataset_print(const Dataset *d, FILE *out);
