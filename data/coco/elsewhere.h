// Finds annotation files that are where no arrangement of data/coco/layout.h has them, for messages.
#pragma once
#include <stdbool.h>

// The first .json in dir/annotations, dir, dir/train or dir/labels that has a key "annotations", whatever its name, or
// else coco_in_subfolder, or, without dir/train, that of a whole export: dir/FOLDER/train/_annotations.coco.json. NULL:
// there is none. Caller frees.
char *coco_elsewhere(const char *dir);
// The annotation file of the first subfolder, by name, that has one as Roboflow, COCO or Label Studio call it, but is
// not the training split's. NULL: there is none. Caller frees.
char *coco_in_subfolder(const char *dir);
// Whether such a file is a list, as Label Studio's own JSON, while COCO's is an object.
bool coco_is_list(const char *path);
// Whether a folder of this name is the training split's.
bool coco_is_training(const char *folder);
