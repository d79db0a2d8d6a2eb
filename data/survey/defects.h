// What is wrong with a data set, type by type: how often, where first, and what training does about it.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/dataset.h"

typedef enum Defect {
  DEFECT_IMAGE_ID,    // an image's id comes again
  DEFECT_CATEGORY_ID, // a category's
  DEFECT_ANN_ID,      // an annotation's
  DEFECT_NO_IMAGE,    // an annotation's image is not in the file
  DEFECT_NO_CATEGORY, // its category is not
  DEFECT_CROWD,       // it is marked as a crowd and taken as an object
  DEFECT_BOX_EMPTY,   // its box has no area inside the image
  DEFECT_BOX_BEYOND,  // its box reaches more than a pixel beyond the image
  DEFECT_BOX_APART,   // its box and its mask are in different places
  DEFECT_TWICE,       // it is there again: of its category in its image, and of nearly the same box and mask
  DEFECT_MASK_NONE,   // it has no mask
  DEFECT_MASK_BAD,    // its mask or a part of it cannot be read
  DEFECT_MASK_ODD,    // a polygon has an x without its y
  DEFECT_MASK_SIZE,   // its runs are for another image size
  DEFECT_MASK_EMPTY,  // its mask covers no pixel
  DEFECT_MASK_UNIT,   // no coordinate of its polygons lies outside 0 to 1
  DEFECT_SHARED,      // an image file is in the training split, too
  DEFECT_MISSING,     // an image file is not there
  DEFECT_FILE,        // an image file cannot be decoded, or has another size than the annotations say
  DEFECTS
} Defect;

typedef struct DefectInfo {
  const char *key;       // "box-beyond", for JSON and HTML
  const char *what;      // "boxes that reach …"
  const char *treatment; // what training does
  const char *scored;    // what an evaluation does; NULL: the same
  const char *of;        // what Finding.id is of: "annotation", "image", "category"
} DefectInfo;
extern const DefectInfo defect_info[DEFECTS];
const char *defect_treatment(Defect defect, bool scored); // what is done about it, there

typedef struct Finding {
  int count;
  int64_t id; // of the first one
  int image;  // that it is in or is: index into coco.images, or -1
} Finding;

typedef struct Defects {
  const Coco *coco; // borrowed
  Finding found[DEFECTS];
  uint32_t *of_image; // [coco.num_images] bit 1 << Defect for the image and its annotations
  uint32_t *of_ann;   // [coco.num_anns] likewise
  char **reason;      // [coco.num_images] why the file cannot be used; NULL where it can, or nobody looked
  int corners;        // of DEFECT_BOX_APART, those that fit when read as x1 y1 x2 y2
  int turned;         // image files with an EXIF orientation
  uint64_t *file_key; // [num_images] equal for equal files: size and CRC of the bytes; 0 where it was not read
  double decode_ms;   // of an image on one core, median; 0 where none was decoded
} Defects;

// How closely a data set is looked at: its annotations alone; also the headers of its image files, for their sizes; or
// all image files, decoded, and all masks, rasterised, on all cores.
typedef enum DefectDepth { DEPTH_ANNOTATIONS, DEPTH_HEADERS, DEPTH_FILES } DefectDepth;

// Looks at every annotation of the images that were asked for. The result does not depend on the number of cores.
// progress may be NULL; it is called from one thread at a time.
void defects_find(Defects *f, const Dataset *d, DefectDepth depth, void (*progress)(int done, int total));
// The same of an annotation file without images.
void defects_find_annotations(Defects *f, const Coco *c);
// Adds the images of d whose file one of `train` is, too.
void defects_find_shared(Defects *f, const Dataset *d, const Dataset *train);
void defects_free(Defects *f);

bool defects_any(const Defects *f);
enum { DEFECT_DETAILS = 3 };
// The first example, and what the defect may come from: sentences without a full stop, malloc'ed. Returns how many.
int defects_details(const Defects *f, Defect type, char *detail[DEFECT_DETAILS]);
// All about a defect in one line, malloc'ed; `scored`: of an evaluation's ground truth.
char *defects_line(const Defects *f, Defect type, bool scored);
