// Parsing shared by annotations (coco_load.c) and detections (coco_results.c) only.
#pragma once
#include "base/json.h"
#include "base/text_table.h"
#include "data/coco/coco.h"

// Ids of images or of categories that are texts. While a file is read, such an id is the text's number in the table.
typedef struct TextIds {
  TextTable texts;
  int64_t *id; // [texts.n] the number that stands for each, once it is known
} TextIds;

// A data set under construction: annotations are in file order, ungrouped, without their category's index.
typedef struct CocoReader {
  Json json;
  char *text;
  size_t map_bytes; // of text, if the file is mapped; 0: text is a copy
  // An annotation with a value that cannot be used is left out and listed in coco.broken; false: it is a failure.
  bool lenient;
  TextIds image_ids, category_ids;
  TextTable supercategories;
  int *supercategory; // [coco.num_categories] its number among supercategories; -1: none
  CocoFault fault;    // of the annotation being read; the first counts
  Coco coco;
  double *scores; // [num_anns]; NaN if the object has none
  int *mask_runs; // [num_masks] runs of each run list of the annotation being read
  int num_masks;
  size_t images_cap, categories_cap, anns_cap, scores_cap, part_points_cap, part_first_cap, xy_cap, runs_cap,
      mask_runs_cap, broken_cap, supercategory_cap;
} CocoReader;

// Makes the file's text available; false on failure. coco_read_close releases everything except `coco`.
bool coco_read_open(CocoReader *r, const char *path, Err *err);
void coco_read_close(CocoReader *r);

// Parses one annotation or detection and appends it. Needs an image_id and a category_id; everything else may be
// absent. A segmentation that cannot be used is dropped and counted, as one bad mask should not cost a data set.
// `key`: its key if annotations are the members of an object, its id if it has none of its own; NULL: they are a list.
void coco_read_object(CocoReader *r, const char *key);
void coco_read_segmentation(CocoReader *r, CocoAnn *a); // data/coco/segmentation.c
double coco_read_finite(CocoReader *r);                 // a number; if it is not finite, the annotation is at fault

// An id: an integer, a string with one, or any other string: then *is_text, and the id is a number of the table.
int64_t coco_read_id(Json *j, TextIds *ids, bool *is_text);
int64_t coco_text_id(TextIds *ids, const char *text, bool *is_text); // the same of a text
char *coco_read_string(Json *j);                                     // malloc'ed; NULL for a value of any other type
int coco_read_extent(Json *j);                                       // height or width: pixels, 0 or more
