// Compares two lists of categories: of training and evaluation data, or of weights and data. A category is an id and a
// name; the name identifies it. All comparisons of categories use these functions.
#pragma once
#include "base/error.h"
#include "base/notes.h"
#include "data/coco/coco.h"

typedef struct CategoryList {
  const char *of;           // the list's origin, for messages: a file or a folder
  const CocoCategory *item; // [n] a name that is NULL, blank or marked `unnamed` counts as none
  int n;
  bool by_name;    // ids are only indices, as with folders
  bool of_weights; // names that are all numbers, "7" or "class 7", may mean that there are no names
} CategoryList;

// Finds the index in `known` of each category of `own`: to[own->n]. Names decide, tried in this order: the same id and
// name; the same name; names that differ only by case or spaces. If one of the two lists has no names at all, ids
// decide, and a note says so; if weights have none, equally many categories are matched in their order. -1: no match,
// and no object has the category: one without objects never takes the match of one with objects. objects[own->n]:
// number of objects of each; NULL: all must match. Adds notes. False, with the pairs that differ, if objects have a
// category that is not known.
bool categories_match(const CategoryList *known, const CategoryList *own, const int *objects, int *to, Notes *notes,
                      Err *err);
// Whether both have the same ids and names in the same order; false with the first pair that differs.
bool categories_same(const CategoryList *known, const CategoryList *own, Err *err);
// Whether each category keeps its index, and `known` has no others.
bool categories_in_place(const CategoryList *known, const CategoryList *own, const int *to);
// Notes oddities within one list: names that occur twice, or differ only by case or spaces.
void categories_examine(const CategoryList *list, Notes *notes);

// Replaces the data set's categories by those of `known`, and its annotations' ids accordingly: `to` from
// categories_match.
void coco_take_categories(Coco *c, const CategoryList *known, const int *to);
// Whether the file lists categories, if it has annotations; false with a message.
bool coco_has_categories(const Coco *c, Err *err);
