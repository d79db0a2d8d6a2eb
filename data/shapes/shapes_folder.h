// Creates the folder of a synthetic data set, and protects other folders.
#pragma once
#include "data/shapes/shapes.h"

// Makes the folder and its subfolders `parts`, and writes the file `marker` there, which marks it as ours and records
// how its contents were generated. False for a folder that holds anything but no marker that this program wrote.
bool shapes_folder_take(const ShapesConfig *c, const char *marker, const char *const *parts, int n, Err *err);
