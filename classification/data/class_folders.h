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
  int others;      // files in class folders whose names are not a JPEG's or PNG's
} ClassFolders;

// Lists the classes and their files: names that end in .jpg, .jpeg or .png in any case, in the class's folder and
// below. Names that begin with a dot are skipped. False if the folder cannot be read, holds no folder, a folder's name
// is not UTF-8, or two folders have the same name (name_key) or are the same folder.
bool class_folders_list(ClassFolders *f, const char *dir, Err *err);
void class_folders_free(ClassFolders *f);
// Whether a folder holds another one.
bool class_folders_in(const char *dir);
