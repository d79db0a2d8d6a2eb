// How often an epoch of training has each image, so that rare categories are seen more often.
#pragma once
#include "data/batches/dataset.h"

// Sets d->repeat: of a category that is in a fraction f of the images, max(1, sqrt(threshold / f)); of an image, the
// maximum over its categories, 1 without any (Gupta, Dollár and Girshick, "LVIS", 2019, appendix; detectron2's
// RepeatFactorTrainingSampler), and adds a note on it. Nothing if no image would be repeated.
void repeat_images(Dataset *d, double threshold);
