// A folder of overlays: a PNG for each of a list of images, whose names it knows before the first is drawn, or one by
// one, where nobody knows what comes.
#pragma once
#include "base/file_set.h"
#include "data/pictures/draw.h"

typedef struct Overlays {
  char *folder;
  char **path; // [n] where the overlay of each image goes; no two are the same
  int n;
  int rank; // several may write to the folder, whose unfinished files are apart
} Overlays;

// An overlay is called as its image's file, with .png for the ending. Where files of several folders share a name the
// first has it and the others are numbered: x.png, x-2.png, x-3.png; a number that is another file's own name is left
// out. The names depend on the list alone.
void overlays_open(Overlays *o, const char *folder, const char *const *files, int n);
// False, naming it, when an overlay would overwrite one of these files, or any other that is no overlay: the folder may
// hold pictures that are not read, such as another split's.
bool overlays_spare(const Overlays *o, FileSet *files, Err *err);
// One more image, the overlay of which is called as its file, with a number of its own in front: 000012-x.png. False as
// overlays_spare.
bool overlays_append(Overlays *o, const char *file, int64_t number, FileSet *files, Err *err);
// As what the overlay of image i is called, without folder and ending; and of that image. The caller frees it.
char *overlays_name(const Overlays *o, int i);
char *overlays_numbered(const char *file, int64_t number);
// Draws the items over a copy of image i and writes it, in place of what has its name: of a link, not of what that
// leads to. False when memory for it is out or it cannot be written; then what stood there stays.
bool overlays_write(const Overlays *o, int i, const Image *image, const DrawItem *items, int n, Err *err);
void overlays_close(Overlays *o);
