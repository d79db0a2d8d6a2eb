// Defects of a data set by type: how many, the first example, and what training does about them.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/dataset.h"
#include "data/survey/ranges.h"

typedef enum Defect {
  DEFECT_IMAGE_ID,    // repeated image id
  DEFECT_CATEGORY_ID, // repeated category id
  DEFECT_ANN_ID,      // repeated annotation id
  DEFECT_BROKEN,      // a value of the annotation cannot be used
  DEFECT_NO_IMAGE,    // the annotation's image is not in the file
  DEFECT_NO_CATEGORY, // the annotation's category is not in the file
  DEFECT_CROWD,       // marked as a crowd but taken as an object
  DEFECT_BOX_EMPTY,   // its box has no area inside the image
  DEFECT_BOX_BEYOND,  // its box reaches more than a pixel beyond the image
  DEFECT_BOX_APART,   // its box and its mask do not match
  DEFECT_TWICE,       // duplicate: same image and category, nearly the same box and mask
  DEFECT_MASK_NONE,   // the annotation has no mask, but others have
  DEFECT_MASK_BAD,    // all or part of the mask cannot be read
  DEFECT_MASK_ODD,    // a polygon has an x without its y
  DEFECT_MASK_SIZE,   // its runs are for another image size
  DEFECT_MASK_EMPTY,  // its mask covers no pixel
  DEFECT_MASK_UNIT,   // all polygon coordinates lie between 0 and 1
  DEFECT_SHARED,      // the image file is also in the training split
  DEFECT_TURNED,      // the image has an EXIF orientation that is not applied, and none of the other split has one
  DEFECT_MISSING,     // the image file is missing
  DEFECT_FILE,        // the image file cannot be decoded, or its size differs from the annotations
  DEFECTS
} Defect;

typedef struct DefectInfo {
  const char *key;       // "box-beyond", for JSON and HTML
  const char *what;      // "boxes that reach …"
  const char *treatment; // what training does
  const char *scored;    // what an evaluation does; NULL: the same
  const char *of;        // what DefectCount.id identifies: "annotation", "image", "category"
} DefectInfo;
extern const DefectInfo defect_info[DEFECTS];
// How it is treated in training or, if scored, in an evaluation.
const char *defect_treatment(Defect defect, bool scored);

typedef struct DefectCount {
  int count;
  int64_t id; // of the first one
  int image;  // the image that has it: index into coco.images, or -1
} DefectCount;

typedef struct Defects {
  const Coco *coco; // borrowed
  bool masks;       // annotations have masks
  DefectCount of_type[DEFECTS];
  uint32_t *of_image;   // [coco.num_images] bit 1 << Defect for the image and its annotations
  uint32_t *of_ann;     // [coco.num_anns] likewise
  char **reason;        // [coco.num_images] why the file cannot be used; NULL if it can, or was not read
  int corners;          // number of DEFECT_BOX_APART whose box matches if read as x1 y1 x2 y2
  uint8_t *orientation; // [coco.num_images] of EXIF; 0: the file was not read
  int oriented;         // images whose orientation is known
  int turned;           // those of them that are not upright as stored
  uint64_t *file_key;   // [num_images] equal for equal files; 0 if it was not read
  double decode_ms;     // median time for an image on one core; 0 if none was decoded
} Defects;

// How thorough the examination is: annotations only; also image headers, for their sizes; or all image files decoded
// and all masks rasterised, on all cores.
typedef enum DefectDepth { DEPTH_ANNOTATIONS, DEPTH_HEADERS, DEPTH_FILES } DefectDepth;

// Examines every annotation of the selected images. The result does not depend on the number of cores. ranges, of
// d's images, and progress may be NULL; progress is called from one thread at a time.
void defects_find(Defects *f, const Dataset *d, DefectDepth depth, const Ranges *ranges,
                  void (*progress)(int done, int total));
// The same for an annotation file without images.
void defects_find_annotations(Defects *f, const Coco *c);
// Adds DEFECT_SHARED for images of d whose file is also in train.
void defects_find_shared(Defects *f, const Dataset *d, const Dataset *train);
// Finds the EXIF orientations of up to `most` images of d, evenly spaced, if they have not been found.
void defects_find_orientations(Defects *f, const Dataset *d, int most);
// Adds DEFECT_TURNED for images of d, if at least a tenth of those that are known have an EXIF orientation, it is not
// applied, and no image of the other split has one.
void defects_find_turned(Defects *f, const Dataset *d, const Defects *other);
void defects_free(Defects *f);

bool defects_any(const Defects *f);
enum { DEFECT_DETAILS = 4 };
// The first example, and possible causes: sentences without a full stop, malloc'ed. Returns their number.
int defects_details(const Defects *f, Defect type, char *detail[DEFECT_DETAILS]);
// One line about a defect, malloc'ed; `scored`: for an evaluation's ground truth.
char *defects_line(const Defects *f, Defect type, bool scored);
