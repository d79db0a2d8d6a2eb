// Reports images that turn out bad while a data set is used: the first few as they are met, all of them in a file.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include "data/coco/coco.h"

enum { BAD_IMAGES_SAID = 10 };

typedef struct BadImages BadImages;

BadImages *bad_images_open(void);
void bad_images_close(BadImages *b); // may be NULL
// From now on, appends a row per bad image to the file at `path`; NULL: no file. Names are copied.
void bad_images_list_in(BadImages *b, const char *split, const char *path);
const char *bad_images_path(const BadImages *b); // NULL: no file
// May be called from any thread; does nothing if b is NULL. how: "replaced" or "left out"; NULL: the image is only
// listed.
void bad_images_add(BadImages *b, const CocoImage *im, const char *how, const char *reason);

// Writes a row of such a file: an image, or an annotation and its image. file and reason may be NULL.
extern const char defect_rows_head[];
void defect_row(FILE *f, const char *split, const char *defect, const char *of, int64_t id, const char *file,
                const char *reason);
