// The doctor's pairs of pictures: training images as they are, and as augmentation shows them.
#pragma once
#include "data/batches/augment.h"
#include "data/survey/diagnosis.h"
#include "page/document.h"
#include "page/picture_folder.h"

// Writes a JSON array [{file, before, after}] of the first `max` images of a run with one image in a step, as its
// decoder threads make them. Pictures go to the folder or, if that is NULL, into the page. False if there is no memory
// for a batch or a picture cannot be written.
bool augmentation_write(Document *to, const Diagnosis *f, const Augment *a, int max, PictureFolder *folder, Err *err);
