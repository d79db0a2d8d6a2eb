// Groups of images that must not be divided between training and evaluation: those with identical files, and those of
// one patient, video or field by their names.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

// Images of a data set before any is left out.
typedef struct ImageList {
  const char *of; // the annotation file or folder, for messages
  int n;
  const char **name;           // [n] as in the annotations, or CLASS/FILE
  char **path;                 // [n] of the files; NULL: images are in memory
  const int64_t *bytes;        // [n] lengths of the files; 0: there is none
  const uint32_t *annotations; // [n] digests of them that are not 0; NULL: the names say all
  uint64_t *key; // [n] of images in memory: equal for equal pixels; of files: zeros, and file_key once read
} ImageList;

typedef struct ImageGroups {
  int n;         // groups
  int *of;       // [images] the group, 0 … n - 1, in the order of their first images
  int copies;    // images whose file is identical to an earlier one
  int unmatched; // names that the regular expression does not match
} ImageGroups;

// Whether this is a POSIX extended regular expression; false with a message.
bool image_groups_check(const char *regex, Err *err);
// Images are in one group if their files are identical (of those of equal length the first bytes are read, and then,
// where these are equal, all) or the regular expression finds the same text in their names: that of its first
// parentheses or, without any, all that it matches. A name that it does not match is in no group by name. regex may be
// NULL. The partition does not depend on the order of the images.
void image_groups_find(ImageGroups *g, ImageList *l, const char *regex);
void image_groups_free(ImageGroups *g);
// Reads the keys of the marked images' files, unless they have been read, on all cores.
void image_list_read(ImageList *l, const bool *marked);
