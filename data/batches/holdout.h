// Holds out a part of a data set's images for evaluation, and remembers which: weights store it, so that infer scores
// exactly these images.
#pragma once
#include "base/notes.h"
#include "data/batches/image_groups.h"

typedef struct HoldoutOptions {
  float fraction;    // of the images, that are held out; 0: a fold
  int fold, folds;   // hold out the fold-th of so many parts, from 1; folds 0: a fraction
  const char *group; // keep images together by their names: image_groups_find; NULL: only identical files
  uint64_t seed;     // another seed, other images
} HoldoutOptions;

// From the values of --val-fraction, --fold ("2/5", NULL), --group (NULL) and --split-seed. False with a message, which
// names the option, if they are wrong or do not go together.
bool holdout_options(HoldoutOptions *o, float fraction, const char *fold, const char *group, uint64_t seed, Err *err);
bool holdout_wanted(const HoldoutOptions *o);       // whether anything is to be held out
char *holdout_option_text(const HoldoutOptions *o); // "--val-fraction 0.2 --split-seed 1"; caller frees

typedef enum HoldoutSide { HOLDOUT_TRAIN, HOLDOUT_VAL } HoldoutSide;

typedef struct HeldImage {
  char *name;           // as in ImageList
  uint64_t key;         // of its contents
  uint32_t annotations; // digest of them; 0: unknown, in older weights
} HeldImage;

typedef struct Holdout {
  char *split;    // the split that was divided: "train"
  char *by;       // holdout_option_text
  int groups;     // of images that were not divided
  int trained;    // images that were trained on
  HeldImage *val; // [held] ascending by name, each name once
  int held;
  uint32_t *train; // [trained] digests of the other images' names, ascending
  bool is_new;     // drawn by this program from files that are open, not read from weights
} Holdout;

// What is to be held out of a data set that is opened.
typedef struct HoldoutUse {
  const HoldoutOptions *draw; // hold out some of the images, and open the others; NULL: none
  const Holdout *held;        // or: open one side of a hold-out …
  HoldoutSide side;           // … this one; NULL: all images
} HoldoutUse;

// Which categories an image has: of[first[i] … first[i + 1]) of image i, in any order, also repeatedly.
typedef struct ImageCategories {
  int n; // categories
  const int *first, *of;
} ImageCategories;

// Divides the images of a data set, stratified by category (data/batches/stratify.h); groups of images stay together
// (data/batches/image_groups.h). What cannot be read is trained on, where it is reported. Depends only on the options,
// names, contents and categories, not on the order of images, annotations or ids. Adds a note with the numbers. False
// if there are too few groups, or a name is missing or not UTF-8.
bool holdout_draw(Holdout *h, ImageList *l, const ImageCategories *c, const HoldoutOptions *o, const char *split,
                  Notes *notes, Err *err);
// Marks the images of a side, keep[l->n]. Unless it is new: false, with a message that names the first, if images that
// were held out are not there or have other contents; adds a note on images whose annotations have changed, and on
// those of neither side, added since.
bool holdout_select(const Holdout *h, ImageList *l, HoldoutSide side, bool *keep, Notes *notes, Err *err);

// As weights store it: a JSON object. malloc'ed.
char *holdout_text(const Holdout *h);
bool holdout_read(Holdout *h, const char *text, Err *err);
// Whether both hold out the same images with the same annotations; false with a message that names the first
// difference. Contents may differ with other_files.
bool holdout_same(const Holdout *was, const Holdout *is, bool other_files, Err *err);
void holdout_free(Holdout *h);
