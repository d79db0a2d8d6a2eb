// A folder of pictures of one type. Each has a text chunk with its type, so that only a picture of the same type may
// replace it, and is written atomically.
#pragma once
#include "data/images/png.h"

typedef struct Pictures {
  char *folder;     // owned
  const char *type; // "maskrcnn.c labels"
  int rank;         // several ranks may write to the folder; their temporary files differ
} Pictures;

// Makes the folder if necessary. The type is not copied.
bool pictures_open(Pictures *p, const char *folder, const char *type, int rank, Err *err);
// Whether what is at a path is no picture of that type, as a link is none; false for nothing.
bool picture_is_another(const char *path, const char *type);
// Writes FOLDER/NAME.png, replacing a picture of that name. False if the existing file
// is not a picture of the same type, if there is not enough memory to compress it, or if it cannot be written, with the
// reason also in errno; then the old file is kept.
bool pictures_write(const Pictures *p, const char *name, const PngPixels *pixels, int level, Err *err);
// Allocates memory for a picture; NULL, with a message that names the picture, instead of ending the program. Free with
// free().
uint8_t *pictures_memory(const Pictures *p, const char *name, size_t bytes, Err *err);
void pictures_close(Pictures *p);
