// Converts masks to COCO polygons that rasterise to exactly the same mask: its IoU with the union of its polygons is 1.
//
// Every piece connected by pixel sides becomes a polygon along the sides of its pixels. COCO polygons have no holes; a
// hole is joined to the outline around it, or to another hole, by a slit of zero width: there and back along a line
// between two rows of pixels. The two directions cancel out in COCO's rasteriser (exact/polygon.h), which toggles the
// fill at edges, the same for both directions of an edge; the shoelace formula gives the area without the hole.
#pragma once
#include "data/coco/contour.h"
#include "data/coco/rle.h"

// A mask without pixels has no parts. Free with contours_free.
Contours polygons_of(const Rle *mask);
