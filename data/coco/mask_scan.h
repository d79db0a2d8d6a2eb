// Whether annotations have masks, before they are parsed.
#pragma once
#include <stdbool.h>

// Whether an annotation file has a segmentation that is not null and no empty list, usable or not. Reads up to the
// first. True, too, for what is not a regular file or cannot be read: parsing it says more.
bool mask_scan_finds(const char *path);
