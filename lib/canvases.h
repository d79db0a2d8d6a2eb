// The canvases that a handle builds graphs for, and the one that an image goes to: the library's and ./infer's.
#pragma once
#include "data/batches/canvas.h"

// A set that holds every image which the rule leads to: for landscapes of 1 : 1, 4 : 3 and 3 : 2, the commonest, and
// for all others, and the same upright. Returns how many.
int canvases_of(const Resize *r, Canvas canvas[MAX_CANVASES]);

// The same without canvases whose longer side is more than `longest`, r->size at least: images that would need one have
// no place.
int canvases_up_to(const Resize *r, int longest, Canvas canvas[MAX_CANVASES]);

int canvases_side(int side); // the least of a canvas that holds it

// The image's size on its canvas, and the place of that, the smallest which holds it; -1: none does. An image so thin
// that maskrcnn-benchmark's rounding takes it past max_size ends there, unless a canvas is as large.
int canvases_place(const Resize *r, const Canvas *canvas, int n, int h, int w, int *rh, int *rw);
