// The classes of a model, as results name them.
#pragma once
#include <stdint.h>

typedef struct ResultClass {
  int64_t id;       // category_id
  const char *name; // NULL or "": no name
} ResultClass;
typedef struct ResultClasses {
  const ResultClass *items;
  int n;
} ResultClasses;

// Position of a class in the list; -1: the id is unknown.
static inline int result_class_index(const ResultClasses *classes, int64_t id) {
  for (int i = 0; i < classes->n; i++)
    if (classes->items[i].id == id) return i;
  return -1;
}

// "" if the id is unknown or the class has no name.
static inline const char *result_class_name(const ResultClasses *classes, int64_t id) {
  const int i = result_class_index(classes, id);
  return i >= 0 && classes->items[i].name ? classes->items[i].name : "";
}
