// The shapes of data/shapes/shapes.h as classification data sets.
#pragma once
#include "data/shapes/shapes.h"

// Images hold one shape each; classes have equally many.
typedef enum ShapesLayout {
  SHAPES_IDX,    // DIR/{train,t10k}-images-idx3-ubyte.gz and -labels-idx1-ubyte.gz, gray; DIR/classes.txt
  SHAPES_FOLDERS // DIR/{train,val}/CLASS/NNNNNN.png
} ShapesLayout;
// As shapes_write.
bool shapes_write_classes(const ShapesConfig *config, ShapesLayout layout, Err *err);
