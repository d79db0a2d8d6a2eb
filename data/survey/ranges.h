// The range of values that 16-bit images use: cameras of 10, 12 or 14 bits write files of 16. A data set has one range,
// which is shown to the network as 0 … 255 (data/images/sample_range.h).
#pragma once
#include "base/record.h"
#include "data/batches/dataset.h"

// Data sets of fewer images are measured as a whole; of larger ones this many 16-bit images, evenly spaced by id.
enum { RANGES_SAMPLE = 1000 };

typedef struct ImageRange { // values of an image, alpha left out
  int low, high;            // smallest and largest, without outliers
  int most_low, most_high;  // all but one in 500 values at either end lie between these
} ImageRange;

typedef struct Ranges {
  int deep;             // usable images with 16 bits per sample
  int shallow;          // other images
  int measured;         // of `deep`, those whose values were looked at
  int *image;           // [measured] usable images
  int first_shallow[4]; // the first usable images of these
  ImageRange *of;       // [measured]
  double *ms;           // [num_images] usable images: the time it took to read all values; 0: not read, or not whole
  SampleRange range;    // of the set; that of the type where nothing was measured
} Ranges;

// Reads the header of every image file, and all values of the sample. Files that cannot be read are left to the loader.
//
// The outliers of an image are one in 500 of its values at either end, if these make its range more than four times
// larger: hot pixels. The largest value, of whatever number, is left out if it is four times as far from all others as
// these are apart: it marks pixels without data. The range of the set is from the lowest to the highest value of its
// images, without those images that reach eight times as far as nine in ten. The same data give the same range.
void ranges_measure(Ranges *r, const Dataset *d);
void ranges_free(Ranges *r);
// Whether image i can be decoded and has the annotated size; *ms: the time to decode it. Those that were measured are
// not decoded again. r may be NULL. False with a message.
bool ranges_try_image(const Ranges *r, const Dataset *d, int i, double *ms, Err *err);

// What ranges_measure says of an image with count[v] samples of each value v; false if it has none.
bool image_range(const uint32_t count[SAMPLE_VALUES], ImageRange *r);
// What it says of a set of n images.
SampleRange range_of_images(const ImageRange *of, int n);

// "range 0 to 4080, measured on 60 of 60 16-bit images": malloc'ed.
char *ranges_text(const Ranges *r, SampleRange range);
// For JSON: members images_16_bit and, if they were measured, measured_16_bit and range_16_bit, [low, high].
void ranges_record(Record *record, const Ranges *r);
// Adds notes on images that do not agree with the range with which they are read: those that stay nearly black, those
// that saturate, and those of 8 bits among those of 16.
void ranges_note(const Ranges *r, const Dataset *d, const char *split, SampleRange range, Notes *notes);
