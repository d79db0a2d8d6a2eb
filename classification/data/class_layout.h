// The layouts of a classification data set, and where its splits are.
#pragma once
#include "base/error.h"

typedef enum ClassLayout { CLASSES_NONE, CLASSES_IDX, CLASSES_FOLDERS } ClassLayout;
// What a folder holds: IDX files; DIR/train/CLASS/… or DIR/CLASS/…; or neither, such as COCO's annotations/.
ClassLayout classes_layout(const char *dir);

// Whether the split exists on disk, without --val-fraction. It may still fail to open.
bool classes_has(const char *dir, const char *split);

// The names that a split ("train", "val", "test" or "t10k") may have on disk, the most common first, NULL at the end;
// NULL: there is no such split.
const char *const *class_split_names(const char *split);
// DIR/NAME for the first name that is a folder of folders; NULL: there is none. Caller frees.
char *class_split_folder(const char *dir, const char *const *names);
// False with a message if another folder's name is another spelling of the split's: neither is then used.
bool class_split_is_one(const char *dir, const char *folder, Err *err);
