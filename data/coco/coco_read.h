// Parsing shared by annotations (coco_load.c) and detections (coco_results.c) only.
#pragma once
#include "base/json.h"
#include "data/coco/coco.h"

// A data set under construction: annotations are in file order, ungrouped, without their category's index.
typedef struct CocoReader {
  Json json;
  char *text;
  size_t map_bytes; // of text, if the file is mapped; 0: text is a copy
  Coco coco;
  double *scores; // [num_anns]; NaN if the object has none
  size_t images_cap, categories_cap, anns_cap, scores_cap, part_points_cap, part_first_cap, xy_cap, runs_cap;
} CocoReader;

// Makes the file's text available; false on failure. coco_read_close releases everything except `coco`.
bool coco_read_open(CocoReader *r, const char *path, Err *err);
void coco_read_close(CocoReader *r);

// Parses one annotation or detection and appends it. Fails without an image_id and a category_id; everything else may
// be absent. A segmentation that cannot be used is dropped and counted, as one bad mask should not cost a data set.
void coco_read_object(CocoReader *r);

int64_t coco_read_id(Json *j);   // an integer, or a string with one
char *coco_read_string(Json *j); // malloc'ed; NULL for a value of any other type
int coco_read_extent(Json *j);   // height or width: pixels, 0 or more
