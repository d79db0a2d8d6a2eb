// Image files that two splits of a data set have in common, under whatever names.
#pragma once
#include "data/batches/dataset.h"

// Which usable images of `a` are the very file of one of `b`: shared[a->num_images]. Only files of one length and size
// are read. The result does not depend on the number of cores.
void shared_files_find(const Dataset *a, const Dataset *b, bool *shared);
// Equal for equal files: their length and the CRC of their bytes.
uint64_t file_key(const char *bytes, size_t size);
