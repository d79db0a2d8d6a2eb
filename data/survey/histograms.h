// Histograms of a split's images and objects by size, for the doctor's page.
#pragma once
#include "data/batches/dataset.h"

// Bins of objects' sizes are a fourth root of 3 wide, so that COCO's limits of small and large objects, 32 and 96
// pixels, are bin limits. Bin i holds sizes from size_limit(i) to size_limit(i + 1) pixels; smaller or larger ones are
// in the first or last.
enum { SIZE_BINS = 40, SIZE_SMALL_BINS = 12 }; // bins below 32 pixels
double size_limit(int bin);
int size_bin(double size);

typedef struct Tally { // counts of integers: value[i] occurred count[i] times, ascending by value
  int n;
  int *value, *count;
} Tally;

typedef struct Histograms {
  bool objects;           // false: classification images, which only have image sizes
  int stored[SIZE_BINS];  // objects by the square root of their area in the image, as AP by size uses
  int resized[SIZE_BINS]; // by the square root of their box's area at the training size
  Tally per_image;        // objects per image, including images without any if training leaves them out
  Tally image;            // images by the square root of height · width, as stored, rounded
} Histograms;

// `objects`: the images have boxes and are resized by d->resize.
void histograms_take(Histograms *h, const Dataset *d, bool objects);
void histograms_free(Histograms *h);
