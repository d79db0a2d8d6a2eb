// A small COCO data set, written into the scratch folder: images of noise with rectangular objects.
#pragma once
#include "data/batches/dataset.h"

enum { IMAGES = 14, OBJECT_W = 9, OBJECT_H = 7 };

// What is in image 0 … 13, whose file is "<image>.png" and whose id is 100 + image. Images 4 and 9 have nothing to
// train on, only a crowd, a box outside the image and an unknown category.
Size image_size(int image);
int image_objects(int image);
uint8_t image_byte(int image, int64_t i); // of RGB [h, w, 3]
// Object o covers OBJECT_W × OBJECT_H pixels from here; its label is 1 or 2 in turn. Segmentations take turns over the
// set: polygon, run lengths, none.
int object_x(int image, int o);
int object_y(int o);

// Writes the split "train" into a folder of that name. Returns its path, static until the next call.
const char *small_set(const char *name);

extern const DatasetOptions small_options;
// Opens the split and reports a failure as one of the test, which from here on has two minutes: a loader's threads
// might wait for ever.
bool open_set(Dataset *d, const char *dir, const DatasetOptions *options);
// Which of the images index `index` of the data set is.
int image_number(const Dataset *d, int index);

// Replaces a file.
void write_text(const char *path, const char *text);
