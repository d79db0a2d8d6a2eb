// The categories of a model as a list that data sets are held against (data/coco/categories_match.h).
#pragma once
#include "data/coco/categories_match.h"
#include "engine/engine.h"

// `of`: whose they are, for messages. The names are borrowed, the items are the caller's to free.
CategoryList categories_of_model(const Category *category, int n, const char *of);
