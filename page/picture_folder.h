// The folder of a page's pictures, which lies beside it: FILE-pictures/ of FILE.html.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "data/pictures/thumbnail.h"

typedef struct PictureFolder {
  char *path;
  char *address; // of the folder as the page refers to it, with %XX for what is no letter
  int count;     // pictures written
} PictureFolder;

// Makes the folder, and marks it as ours by a file that says so. A folder with files in it and without that mark is
// somebody else's: false.
bool picture_folder_open(PictureFolder *p, const char *page, Err *err);
// Writes one picture more, in place of an earlier page's; *address is the caller's to free.
bool picture_folder_add(PictureFolder *p, const Jpeg *picture, char **address, Err *err);
// Removes the pictures of an earlier page that this one has not replaced; other files stay.
void picture_folder_prune(const PictureFolder *p);
void picture_folder_close(PictureFolder *p);
