// Two lists of categories held against each other, of training's data and of what is evaluated, of weights and of data.
// A category is an id and a name; the name says what it is. Whoever compares categories does it here.
#pragma once
#include "base/error.h"
#include "data/coco/coco.h"

typedef struct CategoryList {
  const char *of;           // whose they are, for messages: a file, a folder
  const CocoCategory *item; // [n] a name that is NULL, empty or no more than the id's number is none
  int n;
  bool by_name; // ids are no more than places in the list: those of folders
} CategoryList;

enum { CATEGORY_NOTES = 6 };
typedef struct CategoryNotes { // what is to be said although it stops nothing: a line each
  char *line[CATEGORY_NOTES];
  int n;
} CategoryNotes;

// The place in `known` of each category of `own`: to[own->n]. In this order: the same id and name; the same id and
// names that differ by case or blanks alone; the same name; names that differ so; the same id where one of the two has
// no name. Where weights know no names at all ("class 7"), as many categories are taken in their order. -1: there is
// none, and no object has it. objects[own->n]: how many have it; NULL: all are needed. Adds notes. False, with the
// pairs that differ, where objects have a category that is not known.
bool categories_match(const CategoryList *known, const CategoryList *own, const int *objects, int *to,
                      CategoryNotes *notes, Err *err);
// Whether both have the same ids and names in the same order; false with the first pair that differs.
bool categories_same(const CategoryList *known, const CategoryList *own, Err *err);
// Whether each category keeps its place, and there are no others in `known`.
bool categories_in_place(const CategoryList *known, const CategoryList *own, const int *to);
// Notes what is odd within one list: names that come twice, or differ by case or blanks alone.
void categories_examine(const CategoryList *list, CategoryNotes *notes);
void category_notes_free(CategoryNotes *notes);

// The categories of `known` in place of the data set's own, whose annotations get their ids: `to` as of
// categories_match.
void coco_take_categories(Coco *c, const CategoryList *known, const int *to);
// Whether the file lists categories, where it has annotations; false with a message.
bool coco_has_categories(const Coco *c, Err *err);
