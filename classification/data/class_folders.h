// Folders of images by class: DIR/CLASS/….jpg, the layout of torchvision's ImageFolder.
#pragma once
#include "base/error.h"

typedef struct ClassFile {
  char *path; // CLASS/…, relative to the folder that was listed
  int label;  // index into the names
} ClassFile;

typedef struct ClassFolders {
  int classes, files;
  char **name;     // [classes] ascending, byte by byte
  ClassFile *file; // [files] ascending by path within a class
  int others;      // files in class folders that are not named as JPEG or PNG are
} ClassFolders;

// Lists the classes and, in them and in folders below them, what is called .jpg, .jpeg or .png in any case. Names that
// begin with a dot are not looked at. False where the folder cannot be read, holds no folder, one's name is not UTF-8,
// or two folders have one name (class_name_key) or are one.
bool class_folders_list(ClassFolders *f, const char *dir, Err *err);
void class_folders_free(ClassFolders *f);
// Whether a folder holds another one.
bool class_folders_in(const char *dir);
