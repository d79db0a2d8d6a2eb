// Finds the annotation file of a split and the folders where its images may be, as the tools that export COCO's format
// arrange them.
#pragma once
#include "base/error.h"

enum { LAYOUT_FOLDERS = 24 };

typedef struct CocoLayout {
  const char *name;             // of the arrangement, "Roboflow"; "as given" for a file that was named
  char *annotations;            // path of the annotation file
  char *folder[LAYOUT_FOLDERS]; // folders that exist and may hold the images, most likely first; at least one
  int folders;
  int own;     // of them, the first ones have the split's name
  char *root;  // the folder that contains all of them
  char *other; // annotations of the same split in another arrangement, which are not read; NULL: there are none
  const char *other_name;
} CocoLayout;

// dir: the data set; split: "train", "val" or any other name, also of an alias ("valid"). json, if it is not NULL, is
// the annotation file, and images its folder of images (NULL: the file's folder): dir is not looked at. False with a
// message that names what was found and the option that reads it.
bool coco_layout_find(CocoLayout *l, const char *dir, const char *split, const char *json, const char *images,
                      Err *err);
// A note on annotations that were not read, with the options that read them; NULL: there are none. Caller frees.
char *coco_layout_note(const CocoLayout *l, const char *split);
// "--val-json FILE --val-images DIR" for this annotation file, quoted for a shell; --train-… for the split to train on.
// Caller frees.
char *coco_layout_options(const char *split, const char *json);
void coco_layout_free(CocoLayout *l);
// Whether a folder called `name` is another split's: there are annotations of a split of that name, or of that name
// without the digits at its end, other than those of `l`.
bool coco_layout_is_another(const CocoLayout *l, const char *name);
