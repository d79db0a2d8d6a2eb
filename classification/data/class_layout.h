// How sets of classes lie in a folder, and where their splits are.
#pragma once
#include "base/error.h"

typedef enum ClassLayout { CLASSES_NONE, CLASSES_IDX, CLASSES_FOLDERS } ClassLayout;
// What a folder holds: IDX files; DIR/train/CLASS/… or DIR/CLASS/…; or neither, as where COCO's annotations/ is.
ClassLayout classes_layout(const char *dir);

// Whether there is such a split as it lies there, without a fraction; not whether it can be opened.
bool classes_has(const char *dir, const char *split);

// The names that a split ("train", "val", "test" or "t10k") may have, the likeliest first, NULL at the end; NULL: there
// is no such split.
const char *const *class_split_names(const char *split);
// DIR/NAME of the first name that is a folder of folders; NULL: none is. Caller frees.
char *class_split_folder(const char *dir, const char *const *names);
// False with a message where another folder has a name of the same split: neither is taken for it.
bool class_split_is_one(const char *dir, const char *folder, Err *err);
