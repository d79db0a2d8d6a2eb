// Finds image files that two splits of a data set share, under whatever names.
#pragma once
#include "data/batches/dataset.h"

// Which usable images of `a` have the same file as one of `b`: shared[a->num_images]. Reads only files that have
// another's length and image size. The result does not depend on the number of cores.
void shared_files_find(const Dataset *a, const Dataset *b, bool *shared);
