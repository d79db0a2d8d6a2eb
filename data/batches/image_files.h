// Finds the image files that an annotation file names, also where tools and file systems changed the names.
#pragma once
#include "data/batches/dataset.h"
#include "data/coco/layout.h"

// How a file was found. A way is tried only if those before it fail.
typedef enum FileNaming {
  NAMED_EXACTLY,
  NAMED_ENCODED,  // after decoding %20 and the like
  NAMED_SLASHES,  // with slashes instead of backslashes
  NAMED_CASE,     // ignoring case
  NAMED_COMPOSED, // ignoring how letters with marks are composed, too
  NAMED_LAST,     // by the last part of its name, which no other image or file has
  NAMED_UPLOAD,   // by that without the eight digits that Label Studio puts before the names of uploads
  FILE_NAMINGS
} FileNaming;

// Chooses d->folder, the layout's folder with most of the images, looks for the file of every image, and fills in
// d->file, d->file_bytes and d->absent. Adds a note on files that were not found under their exact names.
void image_files_find(Dataset *d, const CocoLayout *layout);
