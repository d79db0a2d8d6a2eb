// Figures about a set of classes: images of each class, their sizes, what cannot be decoded, what is there twice.
#pragma once
#include <stdint.h>
#include "classification/data/classes.h"

typedef enum ClassDefect {
  CLASS_UNREADABLE, // cannot be decoded
  CLASS_CONFLICT,   // is there again under another class
  CLASS_SHARED,     // of val: is in train, too
  CLASS_DEFECTS
} ClassDefect;

typedef struct ClassDefectInfo {
  const char *what, *treatment;
} ClassDefectInfo;
extern const ClassDefectInfo class_defects[CLASS_DEFECTS];

typedef struct ClassSurvey {
  int *count;               // [classes] images
  Size least, median, most; // by area, as stored
  int small;                // images with a side of less than half the canvas's
  int unreadable;           // that cannot be decoded
  int first_unreadable;     // usable image, or -1
  char *reason;             // why; NULL: all can be
  int copies;               // images that another one before them equals
  int conflicts;            // of these, those that it gives another class
  int copy[2], conflict[2]; // the first of each, and what it equals: usable images, or -1
  uint32_t *wrong;          // [coco.num_images] bit 1 << ClassDefect
  uint64_t *key;            // [num_images] equal for equal files, of IDX for equal pixels; 0: not read
  double decode_ms;         // of an image on one core, median; 0 where none was decoded
} ClassSurvey;

// With `files` every image is read and decoded, on all cores; IDX's are in any case. The result does not depend on
// their number. progress may be NULL; it is called from one thread at a time.
void class_survey_take(ClassSurvey *s, const Dataset *d, bool files, void (*progress)(int done, int total));
void class_survey_free(ClassSurvey *s);
// Images of b that equal one of a, which b then knows; `first` of them, and the one of a, or -1.
int class_survey_shared(const ClassSurvey *a, const Dataset *of_a, ClassSurvey *b, const Dataset *of_b, int first[2]);
