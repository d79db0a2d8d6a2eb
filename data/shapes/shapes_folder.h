// The folder that a set of shapes is written into: nobody else's.
#pragma once
#include "data/shapes/shapes.h"

// Makes the folder and those in it that `parts` names, and writes the file `marker` there, which marks it as ours and
// records how its contents came about. False for a folder that holds anything without that marker.
bool shapes_folder_take(const ShapesConfig *c, const char *marker, const char *const *parts, int n, Err *err);
