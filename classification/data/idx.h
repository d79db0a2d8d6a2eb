// IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist): arrays of unsigned bytes behind a header of their
// dimensions, plain or gzip. Images are [n, h, w] gray, 0 black; labels [n].
#pragma once
#include <stdint.h>
#include "base/error.h"

enum { IDX_LABELS = 1, IDX_IMAGES = 3 }; // dimensions

typedef struct Idx {
  int n, h, w;    // labels: h = w = 1
  uint8_t *bytes; // [n, h, w]; owned
} Idx;

// Reads an array of so many dimensions. False, saying what and what to do, for what is no IDX file, has another type or
// number of dimensions, no element, more pixels an image than IMAGE_MAX_PIXELS, or fewer or more bytes than its header
// says.
bool idx_load(Idx *a, const char *path, int dimensions, Err *err);
// The same from memory; `name` is for messages.
bool idx_parse(Idx *a, const uint8_t *bytes, size_t size, const char *name, int dimensions, Err *err);
void idx_free(Idx *a);

// Writes the array, gzip where the path ends in ".gz", replacing the file. The same array gives the same bytes.
bool idx_save(const Idx *a, const char *path, int dimensions, Err *err);

// Whether a folder holds a file that is named as an IDX file is.
bool idx_in(const char *dir);
// Whether one of the names has images, labels or both there: idx_find, which may yet fail, is worth trying.
bool idx_has(const char *dir, const char *const *names);
// Finds the images and labels of a split, which has one of these names (NULL ends them): DIR/NAME-images-idx3-ubyte and
// DIR/NAME-labels-idx1-ubyte, also ….idx3-ubyte, ending in .gz, or with more before NAME ("emnist-letters-train-…").
// The first name that has a file counts; a plain file comes before a compressed one of the same name. False when one of
// the two is missing, or several files could be meant. Paths are malloc'ed.
bool idx_find(const char *dir, const char *const *names, char **images, char **labels, Err *err);
// Reads both. False, too, when there is not one label for every image.
bool idx_load_pair(Idx *images, Idx *labels, const char *image_path, const char *label_path, Err *err);
