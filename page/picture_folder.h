// The folder of a page's pictures: FILE-pictures/ for FILE.html.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "data/pictures/thumbnail.h"

typedef struct PictureFolder {
  char *path;
  char *address; // the folder's address in the page, percent-encoded
  int count;     // number of pictures written
} PictureFolder;

char *picture_folder_of(const char *page); // its path; caller frees
// Makes the folder and a file in it that marks it as ours. Fails if the folder has files but not that mark.
bool picture_folder_open(PictureFolder *p, const char *page, Err *err);
// Writes the next picture, replacing an earlier page's; the caller frees *address.
bool picture_folder_add(PictureFolder *p, const Jpeg *picture, char **address, Err *err);
// Removes an earlier page's pictures that were not replaced; other files stay.
void picture_folder_prune(const PictureFolder *p);
void picture_folder_close(PictureFolder *p);
