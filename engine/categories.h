// The categories of a model as a list, for comparison with those of data sets (data/coco/categories_match.h).
#pragma once
#include "data/coco/categories_match.h"
#include "engine/engine.h"

// `of`: their origin, for messages. The names are borrowed; the caller frees the items.
CategoryList categories_of_model(const Category *category, int n, const char *of);
