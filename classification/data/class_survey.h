// Statistics of a classification data set: images per class, sizes, images that cannot be decoded, duplicates.
#pragma once
#include <stdint.h>
#include "classification/data/classes.h"
#include "data/survey/ranges.h"

typedef enum ClassDefect {
  CLASS_UNREADABLE, // cannot be decoded
  CLASS_CONFLICT,   // also appears under another class
  CLASS_SHARED,     // val: also in train
  CLASS_DEFECTS
} ClassDefect;

typedef struct ClassDefectInfo {
  const char *what, *treatment;
} ClassDefectInfo;
extern const ClassDefectInfo class_defects[CLASS_DEFECTS];

typedef struct ClassSurvey {
  int *count;               // [classes] images
  Size least, median, most; // smallest, median and largest by area, as stored
  int small;                // images with a side of less than half the canvas's
  int unreadable;           // images that cannot be decoded
  int first_unreadable;     // usable image, or -1
  char *reason;             // why; NULL: all can be decoded
  int copies;               // images identical to an earlier one
  int conflicts;            // copies that have another class
  int copy[2], conflict[2]; // the first of each, and the image it equals: usable images, or -1
  uint32_t *wrong;          // [coco.num_images] bit 1 << ClassDefect
  uint64_t *key;            // [num_images] equal for equal files, or, for IDX, equal pixels; 0: not read
  double decode_ms;         // median time for an image on one core; 0 if none was decoded
} ClassSurvey;

// With `files`, every image is read and decoded on all cores; IDX images always are. The result does not depend on the
// number of cores. ranges, of d's images, and progress may be NULL; progress is called from one thread at a time.
void class_survey_take(ClassSurvey *s, const Dataset *d, bool files, const Ranges *ranges,
                       void (*progress)(int done, int total));
void class_survey_free(ClassSurvey *s);
// Counts images of b that equal one of a, and marks them in b; `first`: the first of them and its equal in a, or -1.
int class_survey_shared(const ClassSurvey *a, const Dataset *of_a, ClassSurvey *b, const Dataset *of_b, int first[2]);
