// How many images and objects of a split have which size: what the doctor's page draws.
#pragma once
#include "data/batches/dataset.h"

// Objects' sizes fall into bins a fourth root of 3 wide, so that COCO's limits of small and large objects, 32 and 96
// pixels, are limits of bins. Bin i holds from size_limit(i) to size_limit(i + 1) pixels; what is less or more is in
// the first or last.
enum { SIZE_BINS = 40, SIZE_SMALL_BINS = 12 }; // bins below 32 pixels
double size_limit(int bin);
int size_bin(double size);

typedef struct Tally { // of whole numbers: value[i] was there count[i] times, ascending by value
  int n;
  int *value, *count;
} Tally;

typedef struct Histograms {
  bool objects;           // false: images of a set of classes, which have sizes alone
  int stored[SIZE_BINS];  // objects by the root of their area in the image, which is what AP of sizes goes by
  int resized[SIZE_BINS]; // by the root of their box's area at the training size
  Tally per_image;        // objects; those without count, too, where training leaves them out
  Tally image;            // images by the root of height · width, as stored, rounded
} Histograms;

// `objects`: they have boxes in images of d->resize.
void histograms_take(Histograms *h, const Dataset *d, bool objects);
void histograms_free(Histograms *h);
