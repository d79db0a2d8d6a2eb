// Run-length masks as COCO defines them: column-major runs, background first.
// Method: cocoapi's maskApi (Lin, Dollár), whose results these functions equal to the last bit.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"

typedef struct Rle {
  int h, w;
  int n;          // runs
  uint32_t *runs; // alternately background and foreground, summing to h·w; owned
} Rle;

void rle_free(Rle *r);
Rle rle_copy(const Rle *r);
// Row-major bytes [h, w], non-zero = foreground.
Rle rle_from_bytes(const uint8_t *mask, int h, int w);
// Bits column-major: pixel (y, x) is bit (x·h + y) % 32 of word (x·h + y) / 32.
Rle rle_from_bits(const uint32_t *bits, int h, int w);
void rle_add_to_bits(const Rle *r, uint32_t *bits); // sets those of the foreground
void rle_to_bytes(const Rle *r, uint8_t *mask);     // row-major [h, w], 0 or 1
// Polygons: xy pairs in image pixels, `points` of them; union of several parts by rle_merge.
Rle rle_from_polygon(const double *xy, int points, int h, int w);
Rle rle_from_bbox(const double bbox[4], int h, int w); // x y w h
Rle rle_merge(const Rle *parts, int count, bool intersect);
// The same with all memory taken from `scratch`; the result must not be freed. Merging a single mask returns that mask.
Rle rle_from_polygon_in(Scratch *scratch, const double *xy, int points, int h, int w);
Rle rle_from_bbox_in(Scratch *scratch, const double bbox[4], int h, int w);
Rle rle_merge_in(Scratch *scratch, const Rle *parts, int count, bool intersect);
// COCO's compressed string. rle_from_string fails if the text is malformed or does not add up to h·w.
char *rle_to_string(const Rle *r); // caller frees
// The same into the caller's memory of rle_string_room bytes; returns the string's length.
size_t rle_write_string(const Rle *r, char *s);
size_t rle_string_room(const Rle *r);
bool rle_from_string(Rle *r, const char *s, size_t len, int h, int w, Err *err);
// The same into the caller's memory, with room for as many runs as the string has characters.
bool rle_decode(uint32_t *runs, int *n, const char *s, size_t len, int h, int w, Err *err);
// Whether the runs sum to h·w pixels, as a mask's must.
bool rle_adds_up(const uint32_t *counts, int n, int h, int w, Err *err);
bool rle_from_counts(Rle *r, const uint32_t *counts, int n, int h, int w, Err *err);

uint64_t rle_area(const Rle *r);
void rle_bbox(const Rle *r, double bbox[4]); // x y w h, as in maskApi's rleToBbox
// IoU of every detection with every ground truth, iou[d * gts + g]; with crowd[g] the union is the detection's area.
void rle_iou(const Rle *dt, int dts, const Rle *gt, int gts, const uint8_t *crowd, double *iou);
void bbox_iou(const double *dt, int dts, const double *gt, int gts, const uint8_t *crowd, double *iou); // x y w h
