// IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist): arrays of unsigned bytes after a header with their
// dimensions, plain or gzip. Images are [n, h, w] grey, 0 black; labels [n].
#pragma once
#include <stdint.h>
#include "base/error.h"

enum { IDX_LABELS = 1, IDX_IMAGES = 3 }; // dimensions

typedef struct Idx {
  int n, h, w;    // labels: h = w = 1
  uint8_t *bytes; // [n, h, w]; owned
} Idx;

// Reads an array with that many dimensions. False, with a message, for a file that is not IDX, has another type or
// number of dimensions, no elements, more pixels per image than IMAGE_MAX_PIXELS, or fewer or more bytes than its
// header implies.
bool idx_load(Idx *a, const char *path, int dimensions, Err *err);
// The same from memory; `name` is for messages.
bool idx_parse(Idx *a, const uint8_t *bytes, size_t size, const char *name, int dimensions, Err *err);
void idx_free(Idx *a);

// Writes the array, gzipped if the path ends in ".gz", replacing the file. The same array gives the same bytes.
bool idx_save(const Idx *a, const char *path, int dimensions, Err *err);

// Whether a folder holds a file with an IDX file's name.
bool idx_in(const char *dir);
// Whether images, labels or both exist for one of the names: then idx_find is worth calling, although it may still
// fail.
bool idx_has(const char *dir, const char *const *names);
// Finds the images and labels of a split, which has one of these names (NULL ends the list): DIR/NAME-images-idx3-ubyte
// and DIR/NAME-labels-idx1-ubyte, also ….idx3-ubyte, ending in .gz, or with a prefix ("emnist-letters-train-…"). The
// first name that has a file is used; a plain file is preferred to a compressed one of the same name. False if one of
// the two is missing or several files match. Paths are malloc'ed.
bool idx_find(const char *dir, const char *const *names, char **images, char **labels, Err *err);
// Reads both. Also false if the numbers of images and labels differ.
bool idx_load_pair(Idx *images, Idx *labels, const char *image_path, const char *label_path, Err *err);
