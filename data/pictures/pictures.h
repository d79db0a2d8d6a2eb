// A folder of pictures of one kind. Each says in a text chunk what it is, so that it may be replaced by one of its kind
// and by nothing else, and stands there whole or not at all.
#pragma once
#include "data/images/png.h"

typedef struct Pictures {
  char *folder;     // owned
  const char *type; // "maskrcnn.c labels"
  int rank;         // several may write to the folder, whose unfinished files are apart
} Pictures;

// Makes the folder, if need be. The kind is not copied.
bool pictures_open(Pictures *p, const char *folder, const char *type, int rank, Err *err);
// Writes FOLDER/NAME.png, in place of what has its name: of a link, not of what that leads to. False when something is
// there that is no picture of the kind, when memory for packing it is out, or when it cannot be written, with the
// reason in errno, too; then what stood there stays.
bool pictures_write(const Pictures *p, const char *name, const PngPixels *pixels, int level, Err *err);
// Memory for a picture that is not worth ending the program for; NULL with a message that names it. For free().
uint8_t *pictures_memory(const Pictures *p, const char *name, size_t bytes, Err *err);
void pictures_close(Pictures *p);
