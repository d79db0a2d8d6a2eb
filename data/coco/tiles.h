// Splits large images into overlapping tiles, each a network input, and merges the tiles' detections.
//
// Tiles: as few per axis as the requested overlap allows, spread evenly. So anything no longer or wider than the
// overlap lies whole in one of them.
//
// Merging: greedy by score, like SAHI's non-maximum merging (Akyon, Altinuc, Temizel, "Slicing Aided Hyper Inference
// and Fine-tuning for Small Object Detection", ICIP 2022): detections of one class are one object if their masks share
// at least half of the smaller one. Tile borders cut objects, though, so that each of two tiles may hold most of an
// object. Therefore a detection that is cut where the other tile continues is compared only by the part that both tiles
// see. Two detections that one tile sees whole stay two objects.
//
// The largest detection of an object is the result if its tile sees the object whole; otherwise the union of its
// detections is. With a perfect detector the result is the truth: an object whole in some tile is returned unchanged,
// and any other as the union of its pieces, if these meet in what two tiles see.
#pragma once
#include "data/coco/coco.h"
#include "data/coco/spans.h"
#include "data/images/image.h"

typedef struct TilePlan {
  int h, w;           // of the image, pixels
  int tile_h, tile_w; // of every tile; the image's own if that is smaller
  int rows, columns;
} TilePlan;
// tile: side in pixels, ≥ 1; overlap: minimum fraction of a tile's side, 0 … 1, that neighbours share.
TilePlan tiles_plan(int h, int w, int tile, double overlap);
int tiles_count(const TilePlan *p);
PixelRect tiles_at(const TilePlan *p, int i); // row by row

// The detections of a tile, by descending score: boxes in pixels of the tile, masks of its size. A detection whose mask
// is empty or missing is compared by its box.
typedef struct TileDetections {
  PixelRect tile;
  const CocoResult *items;
  int n;
} TileDetections;
// The objects of an image of h × w pixels, by descending score, in its pixels, with masks of its size; an object's
// score is the best of its detections'. Free with coco_results_free.
CocoResults tiles_merge(const TileDetections *found, int tiles, int h, int w);
