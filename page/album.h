// An album: one HTML page of a data set's images with their masks, to be leafed through in a browser. The page holds
// everything itself and asks for nothing from elsewhere.
#pragma once
#include "data/survey/advice.h"

// Writes at most `max` images of the open ones among n splits, replacing the file: half with a defect where there are
// so many, the others spread over the categories. `title` is the data set's name.
bool album_write(const char *path, const char *title, const Split *const *splits, int n, int max, Err *err);
