// One split of a data set, whatever its format, ready to be sampled: its usable images, their objects, the canvases,
// and the memory that the largest batch needs.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/bad_images.h"
#include "data/batches/holdout.h"
#include "data/batches/object_type.h"
#include "data/coco/categories_match.h"
#include "data/coco/crowds.h"
#include "data/coco/from_masks.h"
#include "data/images/image.h"

typedef struct Object { // an annotation that can be trained on
  int ann;              // index into coco.anns
  int label;            // category + 1; without a background class, the category
  float box[4];         // x1 y1 x2 y2, pixels of the image, clipped to it
} Object;

typedef struct Dataset {
  const ObjectType *type; // of its objects
  Coco coco;
  char *folder;  // of the image files
  char *layout;  // where the annotations and images were found: "Roboflow: FILE, images in FOLDER"
  char **file;   // [coco.num_images] path of an image's file if it is not folder/file_name; NULL: it is, for one or all
  bool named;    // the folder of images was given, not found
  bool *by_last; // [coco.num_images] whether its file was found by the last part of its name alone; NULL: none was
  char *another; // a file that an image's name leads to by its last part, but that is in another split's folder; NULL
  int classes;   // categories, plus the background if there is one
  Resize resize;
  float box_extra; // as in the options, and below
  bool polygons;
  MovedBoxes moved_boxes;
  bool paste;
  bool upright;      // apply the EXIF orientation
  SampleRange range; // of 16-bit samples
  int num_canvases;
  Canvas canvas[MAX_CANVASES];
  int num_images;         // usable ones, ascending by id
  int *image;             // [num_images] index into coco.images
  uint8_t *image_canvas;  // [num_images] the smallest canvas that holds the resized image
  Object *object;         // grouped by image, in file order
  int *first_object;      // [num_images + 1] those of image i are object[first_object[i] … first_object[i + 1])
  float *repeat;          // [num_images] how often an epoch of training has it (data/batches/repeat.h); NULL: once
  int max_objects;        // maximum over images, at least 1: the capacity for ground truth
  int64_t max_bytes;      // bytes of the largest decoded image
  int64_t max_words;      // bound on the words of one image's bitmaps and polygons
  atomic_uchar *reported; // [num_images] whether an image was already reported as bad, by any loader
  BadImages *bad;         // where bad images are reported
  int64_t *file_bytes;    // [coco.num_images] length of an image's file when the set was opened; 0: not checked, or
                          // missing; NULL: images are in memory
  bool *absent;           // [coco.num_images] whether an image's file was missing when the set was opened
  double patience;        // from DatasetOptions
  float view;             // fraction of an image that a map shows: augment_classifier
  uint8_t *gray;          // [coco.num_images, h, w] images kept in memory, all of one size; NULL: files
  uint8_t *shrink;        // [coco.num_images] factor by which an image is scaled down after decoding; NULL: none is
  int64_t max_whole;      // max_bytes before images are scaled down
  int others;             // files ignored because they are not images
  Holdout *holdout;       // what was held out of it by HoldoutUse.draw; NULL: nothing
  int num_listed;         // number of images of the annotation file that were examined: fewer with a limit
  Notes notes;            // on the data set
  bool *left_out;         // [coco.num_images] whether an image was left out
  char **why;             // [coco.num_images] why it was left out; NULL if it was not
  int bad_images;         // images left out: neither annotations nor file give a valid size, or the file is smaller
  int missing;            // missing files of usable images, which the loader will report
  int without_objects;    // images without objects to train on
  int crowds;             // annotations left out because they mark a crowd
  int former_crowds;      // annotations marked as crowds but taken as objects
  int dropped_boxes;      // … because their box has no area inside the image
  bool box_areas;         // the areas in the file are those of the boxes, or many are 0, and they are used
  int unlabelled;         // … because their category is not in the file
  int other_classes;      // annotations that --classes leaves out
  int bad_masks;          // … because their mask cannot be used
} Dataset;

// Annotations of an image at most, crowds included: matching compares each anchor and proposal with every object.
enum { MOST_ANNOTATIONS = 10000 };
enum { STORAGE_PATIENCE = 10 }; // seconds; the default of training runs

// Whether images are rotated by their EXIF orientation: data/batches/upright.h.
typedef enum ExifChoice { EXIF_AUTO, EXIF_YES, EXIF_NO } ExifChoice;

typedef struct DatasetOptions {
  Resize resize; // with multi-scale training to the largest size, so that which images share a batch depends on no draw
  ExifChoice exif;
  bool upright_otherwise;     // if EXIF_AUTO finds no evidence: as the training set is read
  MeasureChoice boxes, areas; // of annotations that have a mask
  float box_extra;            // x2 = x + width - box_extra: 1 if corners are pixels
  bool polygons;              // keep masks as polygons, if they are given as polygons
  bool paste;                 // leave room in batches for objects that copy-paste adds
  MovedBoxes moved_boxes;     // where boxes come from once augmentation has moved an image
  int max_canvases;           // 1 … MAX_CANVASES
  bool strict;       // a missing file, one of unknown size, or an annotation that has to be left out is an error;
                     // otherwise only if most files are missing
  CrowdChoice crowd; // how to treat crowds that cover one object each
  const Coco *train; // of a validation set, the training set, whose decision on crowds is used; NULL: none
  bool keep_empty;   // keep images without a usable object (evaluation; presets that train on background)
  HoldoutUse holdout;
  double patience;          // seconds for which files that existed at opening may be unreadable (data/batches/outage.h)
  const char *classes;      // keep only these categories, names or ids separated by commas; NULL: all
  const CategoryList *only; // keep only the categories that match one of these; NULL: all
  int limit;                // only the first `limit` usable images by id; 0 = all
  const char *json, *images; // annotation file and folder of images, instead of a split of a folder; may be NULL
  const char *index;         // folder for the annotation index (data/coco/coco_index.h); NULL: none
} DatasetOptions;

// Reads the annotations of a split and selects usable objects as in torchvision's reference training
// (ConvertCocoPolysToMask): no crowds, boxes clipped to the image, none without area. Image files are checked for
// existence but not opened, except those whose size is not in the annotations and the largest, which determines a
// batch's memory. False if files are missing or malformed, an image has more than MOST_ANNOTATIONS, or no
// image is usable.
bool dataset_open(Dataset *d, const char *dir, const char *split, const DatasetOptions *options, Err *err);
void dataset_close(Dataset *d);
// The box of an annotation as used in training: x1 y1 x2 y2, clipped to the image if its size is known; `extra` is
// box_extra. False if it has no area.
bool dataset_box(const CocoImage *im, const CocoAnn *a, float extra, float box[4]);

// The set's categories, for comparison with others; borrowed.
CategoryList dataset_categories(const Dataset *d);
// Replaces the set's categories by `known` (ids, names and order), matched by categories_match; labels follow. False if
// objects have unknown categories, or the file lists none.
bool dataset_take_categories(Dataset *d, const CategoryList *known, Err *err);
// Prints a line for each note.
void dataset_print_notes(const Dataset *d, FILE *out);

// Of the images without objects to train on, those that are not among the num_images.
int dataset_empty_left_out(const Dataset *d);
// The path of usable image i; caller frees.
char *dataset_path(const Dataset *d, int i);
// The same into path[dataset_path_size], which it returns.
char *dataset_path_to(const Dataset *d, int i, char *path);
size_t dataset_path_size(const Dataset *d, int i); // including the NUL
// Number of polygons in an object's mask; 0 if it is not given as polygons or they are not wanted.
int dataset_polygons(const Dataset *d, const Object *o);
// Reads and decodes the image: false, with a reason, if it cannot be decoded or its size differs from the annotations.
bool dataset_image(const Dataset *d, int i, Image *im, Err *err);
// Whether an image of h x w pixels as stored, the file at `path`, has the annotated size if it is read as d->upright
// says; false with a message, which names --exif if that is the reason.
bool dataset_fits(const Dataset *d, int i, const char *path, int h, int w, int orientation, Err *err);
// Whether an image of h x w pixels is an annotated one that was resized: the sides have one factor, up to rounding.
bool dataset_is_resized(const CocoImage *im, int h, int w);
// Reads only the header: false, with a reason, if there is none or the size differs from the annotations. Unless images
// are rotated, the EXIF orientation may be missed (image_header).
bool dataset_header(const Dataset *d, int i, int *orientation, Err *err);
// The mask of an object of usable image i, at the image's size: its segmentation or, without a usable one, its box.
// Caller frees.
Rle dataset_mask(const Dataset *d, int i, const Object *o);
// The same in memory from `scratch`, or the annotation's own runs: must not be freed.
Rle dataset_mask_in(Scratch *scratch, const Dataset *d, int i, const Object *o);
// Whether an object of usable image i has a mask of its own, rather than its box in place of one.
bool dataset_has_mask(const Dataset *d, int i, const Object *o);
// Height and width of usable image i as the loader resizes it.
Size dataset_size(const Dataset *d, int i);
// RGB [h, w, 3] of usable image i, for images in memory: grey, three times.
void dataset_pixels(const Dataset *d, int i, uint8_t *rgb);
// Records why an image (index into coco.images) is bad and leaves it out; if `strict`, returns false with that message.
bool dataset_leave_out(Dataset *d, int image, bool strict, const Err *bad, Err *err);
// Reports, once per process, that usable image i is bad, and what happens to it: "replaced" or "left out"; NULL: it is
// only listed, because another process reports it. May be called from any thread.
void dataset_tell_bad(const Dataset *d, int i, const char *how, const char *reason);
// Number of bad images so far, including those left out from the start.
int dataset_bad_images(const Dataset *d);
// As ObjectType.print.
void dataset_print(const Dataset *d, FILE *out);
