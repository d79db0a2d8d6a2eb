// Masks as polygons of COCO, which rasterise back to the very mask: its IoU with the union of its polygons is 1.
//
// Every piece connected by pixel sides is a polygon along the sides of its pixels. A polygon of COCO has no holes; a
// hole is joined to the outline around it, or to another hole, by a slit of no width: there and back along a line
// between two rows of pixels. The two ways cancel in COCO's rasteriser (exact/polygon.h), which toggles the fill where
// an edge passes, the same for both directions of an edge; the shoelace formula gives the area without the hole.
#pragma once
#include "data/coco/contour.h"
#include "data/coco/rle.h"

// No parts for a mask without pixels. Free with contours_free.
Contours polygons_of(const Rle *mask);
