// Decides whether annotations are for images as stored or rotated by their EXIF orientation, and notices images that
// were resized after they had been annotated.
#pragma once
#include "data/batches/dataset.h"

extern const char *const exif_choices[]; // "auto", "yes", "no": ExifChoice

// Sets d->upright. With EXIF_AUTO the annotated sizes and, where these are the stored ones, boxes and polygons decide,
// of up to 1,000 images; without evidence `otherwise` holds. Where images are rotated but an annotated size is the
// stored one, as Label Studio writes it, its sides are exchanged. Adds a note. False, with both sizes of the first, if
// most images were resized after annotation.
bool upright_settle(Dataset *d, ExifChoice choice, bool otherwise, Err *err);
