// The part of opening a data set that holds images out.
#pragma once
#include "data/batches/dataset.h"

// Marks the images to open, keep[l->n]; d->holdout becomes what is drawn. False with a message as in holdout_draw and
// holdout_select. Not called unless `use` says something.
bool dataset_choose_side(Dataset *d, ImageList *l, const ImageCategories *c, const HoldoutUse *use, const char *split,
                         bool *keep, Err *err);
// Whether something is to be held out, or was.
bool holdout_used(const HoldoutUse *use);
// Of a detection data set: leaves out the images of the other side, with their annotations. Called once files were
// found, and decisions about the whole annotation file were made.
bool dataset_hold_out(Dataset *d, const DatasetOptions *options, const char *split, Err *err);
