// An import of a small data set, read back as COCO.
#pragma once
#include "data/coco/coco.h"
#include "data/import/formats.h"

typedef struct Imported {
  ImportSet set;
  Tree tree;
  const ImportFormat *format; // NULL: none was found
} Imported;

// Imports a folder or file, in the format that is found or of this name, and writes it to test_tmp()/out.
Imported import_folder(const char *dir, const char *format, ImportOptions options);
Imported import_case(const char *name); // test/exports/NAME
void imported_free(Imported *i);
// The annotations of a split as they were written; without images where there are none.
Coco imported_split(const char *split);
int imported_count(const Imported *i, const char *what); // how often something was dropped or noted

// One object of the category lies there: box and area in pixels, each within a tolerance. File NULL: any. Area -1: any;
// mask: whether it has a mask.
void expect_object(const Coco *c, const char *file, const char *category, const double box[4], double area,
                   double tolerance, bool mask);
#define BOX(...) ((const double[4]){__VA_ARGS__})
