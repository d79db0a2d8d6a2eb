// A folder of overlays: a PNG for each of a list of images that is known in advance, or for images that come one by
// one.
#pragma once
#include "base/file_set.h"
#include "data/pictures/draw.h"

typedef struct Overlays {
  char *folder;
  char **path; // [n] path of each image's overlay; all differ
  int n;
  int rank; // several ranks may write to the folder; their temporary files differ
} Overlays;

// Names each overlay after its image's file, ending in .png. If files of several folders share a name, the first keeps
// it and the others are numbered: x.png, x-2.png, x-3.png, skipping names that other files have. The names depend only
// on the list.
void overlays_open(Overlays *o, const char *folder, const char *const *files, int n);
// False, naming it, if an overlay would overwrite one of these files, or any other file that is not an overlay: the
// folder may hold images that are not read, such as another split's.
bool overlays_spare(const Overlays *o, FileSet *files, Err *err);
// Names the overlay of one more image after its file, with a unique number in front: 000012-x.png. False as in
// overlays_spare.
bool overlays_append(Overlays *o, const char *file, int64_t number, FileSet *files, Err *err);
// The name of image i's overlay, or of that image's, without folder and extension. Caller frees.
char *overlays_name(const Overlays *o, int i);
char *overlays_numbered(const char *file, int64_t number);
// Draws the items over the pixels of image i and writes these as its overlay, replacing a file of that name; a link is
// replaced, not its target. False if out of memory or if it cannot be written; then the old file is kept.
bool overlays_write(const Overlays *o, int i, const Image *image, const DrawItem *items, int n, Err *err);
void overlays_close(Overlays *o);
