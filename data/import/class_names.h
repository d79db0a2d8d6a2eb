// Names of the classes of label images, from whichever file beside them lists them.
#pragma once
#include "data/import/import.h"

typedef struct ClassName {
  char *name;
  int value;       // of a label image; -1: none
  int64_t colour;  // 0xRRGGBB; -1: none
  bool background; // or to be ignored
} ClassName;

typedef struct ClassNames {
  ClassName *item;
  int n;
  int file; // of the tree; -1: there is none
} ClassNames;

// labels.txt, class_names.txt, classes.txt: a name a line, of the values from 0 on, or from -1 or 1 if the first is not
// the background but to be ignored, or a class; labelmap.txt: NAME:R,G,B:…; label_colors.txt: R G B NAME;
// class_dict.csv: NAME,R,G,B; _classes.csv (Roboflow): VALUE, NAME.
ClassNames class_names_read(ImportSet *s);
void class_names_free(ClassNames *c);
const ClassName *class_of_value(const ClassNames *c, int value); // NULL: there is none
const ClassName *class_of_colour(const ClassNames *c, int64_t colour);
void class_names_declare(ImportSet *s, const ClassNames *c); // as the categories, in their order
int64_t voc_colour(int value);                               // of Pascal VOC's palette
