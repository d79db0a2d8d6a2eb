#include "engine/categories.h"
#include "base/alloc.h"

CategoryList categories_of_model(const Category *category, int n, const char *of) {
  CocoCategory *item = xcalloc((size_t)n, sizeof *item);
  for (int i = 0; i < n; i++) item[i] = (CocoCategory){.id = category[i].id, .name = (char *)category[i].name};
  return (CategoryList){.of = of, .item = item, .n = n, .of_weights = true};
}
