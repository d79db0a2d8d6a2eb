// The file in which ./infer lists the defects of its data set: OUT/defects.tsv.
#pragma once
#include "base/file_set.h"
#include "data/survey/examination.h"
#include "inference/options.h"

// False with a message where it is one of the files that are read.
bool defect_list_spares(const InferOptions *o, FileSet *inputs, Err *err);
// Writes what was found, which may be nothing, and has images added that turn out bad. Says if it cannot be written.
void defect_list_open(const InferOptions *o, const Dataset *d, const Examination *e);
