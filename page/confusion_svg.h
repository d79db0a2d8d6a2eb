// Which classes are taken for which, as a picture.
#pragma once
#include "data/coco/confusion.h"

// An SVG: a square a pair of classes, the darker the larger its share of the truth's images; a count in each where
// there are few classes, the commonest mistakes below where there are many. It is readable on light and dark grounds.
bool confusion_svg(const char *path, const Confusion *c, Err *err);
bool confusion_draw(const char *folder, const Confusion *c, Err *err); // as FOLDER/confusion.svg
