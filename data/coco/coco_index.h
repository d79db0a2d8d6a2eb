// A parsed annotation file kept as an index: one file of flat arrays, which every process maps and all share.
#pragma once
#include "data/coco/coco.h"

// As coco_load, through FOLDER/index-<hash of the path>.coco; folder NULL: coco_load itself. An index is taken when it
// is whole (every byte is summed) and of this very file; otherwise the file is parsed and the index written anew, by
// one process while others that come meanwhile wait for it. Where no index can be kept the data set is as good; why
// is in c->origin, a phrase for the report.
//
// "This very file" is inode, size, and the times of the last write and the last change. The last cannot be set by
// programs, so that neither a write of as many bytes nor a restored time goes unnoticed; what comes within its
// resolution does, so a file changed less than a tenth of a second ago gets no index yet.
bool coco_open(Coco *c, const char *path, const char *folder, Err *err);
