// The file in which ./infer lists its data set's defects: OUT/defects.tsv.
#pragma once
#include "base/file_set.h"
#include "data/survey/examination.h"
#include "inference/options.h"

// False with a message if it is one of the input files.
bool defect_list_spares(const InferOptions *o, FileSet *inputs, Err *err);
// Writes the data set's defects, if any; images that turn out bad later are added. Prints a message if it cannot be
// written.
void defect_list_open(const InferOptions *o, const Dataset *d, const Examination *e);
