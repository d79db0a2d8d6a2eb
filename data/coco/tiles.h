// Large images as overlapping tiles, each of which is an image to the network, and what was found in them put together.
//
// Tiles: along each side as few as overlap by what is asked for at least, spread evenly. So whatever is no longer or
// wider than the overlap is whole in one of them.
//
// Merging: greedily by score, as the non-maximum merging of SAHI does (Akyon, Altinuc, Temizel, "Slicing Aided Hyper
// Inference and Fine-tuning for Small Object Detection", ICIP 2022): detections of one class are one object when their
// masks have at least half of the smaller one in common. A side of a tile cuts objects, though, so that two tiles may
// have most of an object each to themselves. Therefore a detection that is cut where the other tile goes on counts by
// the part of it alone that both tiles see. Two that one tile has seen whole are two objects and stay so.
//
// The largest detection of an object is the object where its tile has seen it whole; otherwise all of them together
// are. Of a finder that makes no mistakes the result is the truth: what no tile misses a piece of comes back as it is
// in one of them, and the rest as the union of its pieces, as far as these meet in what two tiles see.
#pragma once
#include "data/coco/coco.h"
#include "data/coco/spans.h"
#include "data/images/image.h"

typedef struct TilePlan {
  int h, w;           // of the image, pixels
  int tile_h, tile_w; // of every tile; the image's own where that is smaller
  int rows, columns;
} TilePlan;
// tile: side in pixels, ≥ 1; overlap: of a tile's side, 0 … 1, that neighbours share at least.
TilePlan tiles_plan(int h, int w, int tile, double overlap);
int tiles_count(const TilePlan *p);
PixelRect tiles_at(const TilePlan *p, int i); // row by row

// What was found in a tile, by descending score: boxes in pixels of the tile, masks of its size. A detection whose mask
// is empty or missing is compared by its box.
typedef struct TileFound {
  PixelRect tile;
  const CocoResult *items;
  int n;
} TileFound;
// The objects of an image of h × w pixels, by descending score, in its pixels, with masks of its size; an object's
// score is the best of its detections'. Free with coco_results_free.
CocoResults tiles_merge(const TileFound *found, int tiles, int h, int w);
