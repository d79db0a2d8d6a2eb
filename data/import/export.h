// Detections as annotations of a tool, so that a person can correct them.
#pragma once
#include "data/import/import.h"

// Adds the detections of a result file (data/coco/coco.h) with a score of at least `least`; their pictures are the
// files of these names, or, where the tree has files, the pictures of the tree, of which all are added.
void export_read(ImportSet *s, const char *path, double least);

// Writes a set into a folder, which must not exist or be empty. *lost: pixels that differ, in COCO's rasteriser, from
// those of the masks.
typedef bool ExportWrite(ImportSet *s, const char *dir, uint64_t *lost, Err *err);
// NAME.json beside each picture; the parts of an object are a group.
bool export_labelme(ImportSet *s, const char *dir, uint64_t *lost, Err *err);
// data.yaml, images/train/, labels/train/; parts and holes of an object are joined by lines there and back.
bool export_yolo(ImportSet *s, const char *dir, uint64_t *lost, Err *err);
