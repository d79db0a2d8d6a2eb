// Images that turn out bad while a data set is used: the first are said as they are met, and all are in a file.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include "data/coco/coco.h"

enum { BAD_IMAGES_SAID = 10 };

typedef struct BadImages BadImages;

BadImages *bad_images_open(void);
void bad_images_close(BadImages *b); // may be NULL
// From here on rows are added to the file at `path`; NULL: to none. Names are copied.
void bad_images_list_in(BadImages *b, const char *split, const char *path);
const char *bad_images_path(const BadImages *b); // NULL: there is none
// From any thread; nothing where b is NULL. how: "replaced", "left out"; NULL: it is only listed.
void bad_images_add(BadImages *b, const CocoImage *im, const char *how, const char *reason);

// A row of such a file: of an image, or of an annotation and its image. file and reason may be NULL.
extern const char defect_rows_head[];
void defect_row(FILE *f, const char *split, const char *defect, const char *of, int64_t id, const char *file,
                const char *reason);
