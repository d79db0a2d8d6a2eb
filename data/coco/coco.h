// A COCO data set in memory: images, categories, annotations, with masks as polygons or runs, grouped by image.
// Everything that grows with the annotations is in flat arrays without pointers, so that a file can hold them
// (data/coco/coco_index.h). Format: https://cocodataset.org/#format-data ; edge cases are treated as in pycocotools.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/growing.h"
#include "data/coco/result_classes.h"
#include "data/coco/rle.h"

typedef struct CocoCategory {
  int64_t id;    // as in the file: any integer
  char *text_id; // the id in the file if it is a text: `id` was given to it; NULL: it is not
  char *name;
  bool is_parent; // another category has its name as supercategory
  bool unnamed;   // the file gives no name, or only spaces: `name` is the id as text
} CocoCategory;

typedef enum SegType { SEG_NONE, SEG_POLYGONS, SEG_RLE } SegType;

// The form of a segmentation that cannot be used.
typedef enum SegForm {
  FORM_OTHER,
  FORM_FEW,       // polygons of fewer than three points
  FORM_RUNS,      // run lengths that do not add up to their size
  FORM_TEXT,      // a string
  FORM_RLE_SIZE,  // detected later: run lengths for another size than the image's
  FORM_FRACTIONS, // detected later: polygons whose coordinates are all from 0 to 1
  SEG_FORMS
} SegForm;

// Why an annotation was left out when the file was read.
typedef enum CocoFault {
  FAULT_NONE,
  FAULT_NUMBER, // Infinity or NaN
  FAULT_BOX,    // bbox is not four numbers
  FAULT_IDS,    // without image_id or category_id, or they are no ids
  FAULT_TYPE,   // another value, or the annotation itself, has a wrong type
} CocoFault;
extern const char *const coco_faults[]; // "its bbox is not 4 numbers"

typedef struct CocoBroken {
  int64_t id, image_id; // image_id: 0 if unknown
  CocoFault fault;
} CocoBroken;

typedef struct CocoAnn {
  int64_t id;
  int64_t image_id, category_id;  // as in the file, for the evaluator
  int category;                   // index into categories, or -1: no such category
  double bbox[4];                 // x y w h, in pixels of the image; if absent, the mask's, or all zero without one
  double area;                    // if absent, the mask's, or the box's without one
  bool crowd, has_bbox;           // has_bbox: whether the file has one
  bool no_category;               // its category_id is null
  bool text_image, text_category; // while the file is read: image_id, category_id are numbers of TextIds
  bool left_out;                  // of data that are trained on or scored: its mask cannot be used
  bool was_crowd;                 // marked as a crowd in the file, but taken as an object (data/coco/crowds.h)
  bool bad_segmentation;          // all or part of its segmentation cannot be used
  SegForm form;                   // of the first unusable part; never one of those detected later
  bool odd_polygon;               // a polygon has an x without its y at the end
  bool replaced;                  // a later annotation in the file has the same id: the last one is
  int by;                         // index of that annotation in anns; -1 if its image is not in the file
  SegType type;
  int parts, first_part; // polygons: part p has points part_points[p] starting at xy[part_first[p]]
  int extent[4];         // polygons: x1 y1 x2 y2, whole pixels that contain all points
  int rle_h, rle_w;      // SEG_RLE: the size as given in the annotation, and
  int num_runs;          // its runs, from runs[first_run] on: coco_ann_runs
  size_t first_run;
  uint64_t drawn; // digest of the box and mask in the file
} CocoAnn;

typedef struct CocoImage {
  int64_t id;
  char *text_id;       // as CocoCategory.text_id
  char *file_name;     // relative to the split's folder; NULL when absent (allowed for evaluation)
  int h, w;            // as in the file; 0 if absent
  int first_ann, anns; // annotations of this image: anns[first_ann …], in file order
  uint64_t drawn;      // digest of their boxes and masks; 0: no annotations
  uint64_t areas;      // digest of their areas in the file
  // Digest of the names of their categories, and which are crowds, as they are used: coco_digest_labels.
  uint64_t labelled;
} CocoImage;

typedef struct Coco {
  char *path;
  int num_images, num_categories, num_anns;
  CocoImage *images;        // ascending by id
  CocoCategory *categories; // ascending by id: index i is label i + 1, 0 is background
  CocoAnn *anns;            // grouped by image in the order of `images`, file order within
  int *part_points;         // polygon parts of all annotations
  size_t *part_first;       // index of the first coordinate in xy
  double *xy;               // x, y pairs
  uint32_t *runs;           // of all masks that are run lists
  CocoBroken *broken;       // annotations that were left out, in file order
  int num_broken;
  int num_parts;
  size_t num_xy, num_runs; // numbers in xy and runs
  bool own_ids;            // the evaluator numbers annotations itself instead of using the file's ids
  bool no_categories;      // the file has no such list
  bool own_categories;     // in a mapped index: the categories are nevertheless allocated by malloc
  char *origin;            // how an index was used, for the report; NULL: none was requested
  void *map;               // the mapped index that holds the arrays, map_bytes long; NULL: the arrays are malloc'ed
  size_t map_bytes;
  // Counts of irregularities, for the report
  int unknown_image, unknown_category, no_segmentation, bad_segmentation, odd_polygon, duplicate_images,
      duplicate_categories;
  int64_t unknown_image_ann, duplicate_image, duplicate_category; // id of the first of them
} Coco;

// Reads an annotation file. Unknown keys are skipped; of a repeated key or id the last counts, as in pycocotools;
// annotations of unknown images are dropped and counted, those with unusable values are listed in `broken`. Ids that
// are texts are numbered in the order of the file. A category without objects that is the supercategory of another
// (Roboflow's root) is dropped.
// false with "FILE:LINE:COLUMN: expected …" on malformed JSON, wrong types outside of annotations, or a second list of
// the same name; also if most annotations are broken.
bool coco_load(Coco *c, const char *path, Err *err);
void coco_free(Coco *c);
// Leaves out the images that are not marked, with their annotations: keep[num_images]. Their masks stay in memory.
void coco_keep_images(Coco *c, const bool *keep);
// Leaves out the categories that are not marked, with their annotations: keep[num_categories].
void coco_keep_categories(Coco *c, const bool *keep);
// Recomputes CocoImage.labelled; must be called after categories or crowds were changed.
void coco_digest_labels(Coco *c);
int coco_find_image(const Coco *c, int64_t id);     // index or -1
int coco_find_category(const Coco *c, int64_t id);  // index or -1
Rle coco_ann_runs(const Coco *c, const CocoAnn *a); // of a SEG_RLE; borrowed, must not be freed
// Whether the annotation has a usable mask at the given image size: what the two functions below return.
bool coco_ann_has_mask(const CocoAnn *a, int h, int w);
// The mask of an annotation at the given image size, as in pycocotools' annToRLE: parts merged. Caller frees. False if
// there is no usable segmentation (the caller may fall back on the box).
bool coco_ann_rle(const Coco *c, const CocoAnn *a, int h, int w, Rle *out);
// The same with memory from `scratch`, or the annotation's own runs: must not be freed.
bool coco_ann_rle_in(Scratch *scratch, const Coco *c, const CocoAnn *a, int h, int w, Rle *out);

// One detection as COCO result files hold it.
typedef struct CocoResult {
  int64_t image_id, category_id;
  double bbox[4]; // x y w h, original image pixels
  double score;
  bool has_bbox, has_segm;
  bool bad_segm;    // there is a segmentation, but all or part of it cannot be used
  bool shares_runs; // the runs of rle are part of CocoResults.runs
  Rle rle;          // valid if has_segm
} CocoResult;
typedef struct CocoResults {
  CocoResult *items;
  int n;
  uint32_t *runs; // runs of masks that were read as run lists; NULL: none
} CocoResults;
// Reads a result file: an array of {image_id, category_id, score, bbox and/or segmentation (both RLE forms or
// polygons)}. `gt` gives image sizes for polygons. An object with a key "detections" holding that array is accepted
// too.
bool coco_results_load(CocoResults *r, const char *path, const Coco *gt, Err *err);
bool coco_results_save(const CocoResults *r, const char *path, Err *err); // compressed RLE, atomically
void coco_results_free(CocoResults *r);

// A result file that grows (base/growing.h), with compressed RLE.
typedef struct CocoWriter {
  GrowingFile grown;
  int64_t n; // detections written so far
  // May be set after opening:
  bool polygons;                // writes masks as "polygons" (data/coco/polygons.h) in addition to runs
  const ResultClasses *classes; // writes their names as "category"; NULL: none
  const char *file_name;        // of the next image, written as "file_name"; NULL: none
} CocoWriter;
bool coco_writer_open(CocoWriter *w, const char *path, Err *err);
// Adds all detections or none. False if they cannot be written, or if a bbox or score is not finite, because JSON has
// no NaN. After a failure nothing more can be added.
bool coco_writer_add(CocoWriter *w, const CocoResult *results, int n, Err *err);
// Completes the file and renames it to FILE. Releases the writer in any case.
bool coco_writer_commit(CocoWriter *w, Err *err);
void coco_writer_keep(CocoWriter *w);  // keeps the partial file
void coco_writer_abort(CocoWriter *w); // removes it
// The members of a detection's object, except image_id and names; polygons: also writes the mask as polygons.
void coco_result_write(FILE *f, const CocoResult *r, bool polygons);
// False, naming the first detection with a value that is not finite, because JSON has no NaN. `before` detections are
// already in the file at `path`.
bool coco_results_finite(const CocoResult *results, int n, const char *path, int64_t before, Err *err);
