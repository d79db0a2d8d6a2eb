// Caches a parsed annotation file as an index: one file of flat arrays, which all processes map and share.
#pragma once
#include "data/coco/coco.h"

// Like coco_load, but cached in FOLDER/index-<hash of the path>.coco; folder NULL: same as coco_load. An index is used
// if this user alone can have written it, it is intact (every byte is in a digest, and every place in it leads into
// it) and belongs to this very file; otherwise one process parses the file and rewrites the index while others wait for
// it. If no index can be kept the data set is equally usable; c->origin says why, for the report.
//
// "This very file" is identified by inode, size, and the times of the last write and the last change. Programs cannot
// set the latter, so that neither a write of equally many bytes nor a restored time goes unnoticed. A change within the
// clock's resolution would, so a file changed less than a tenth of a second ago gets no index yet.
bool coco_open(Coco *c, const char *path, const char *folder, Err *err);
