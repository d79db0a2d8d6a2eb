// Finds image files that two splits of a data set share, under whatever names.
#pragma once
#include "data/batches/dataset.h"

// Which usable images of `a` have the same file as one of `b`: shared[a->num_images]. Reads only files that have
// another's length and image size. The result does not depend on the number of cores.
void shared_files_find(const Dataset *a, const Dataset *b, bool *shared);
// False with a message if images of `a` were found only by the last part of their names, not in a folder that was
// given, and are files of `b`: their annotations are most likely those of other images.
bool shared_files_are_named(const Dataset *a, const Dataset *b, Err *err);
