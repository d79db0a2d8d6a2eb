// What exercises 15 to 20 ask for; conv.h has 1 to 14, those of the convolutions. `make exercise N` builds N_*.c with
// the check beside it, which says "solved" or the first difference. Each file has one gap, between the lines "your
// code" and "end of your code".
#pragma once
#include <stdbool.h>
#include <stdint.h>

// ---- 15: moments ----------------------------------------------------------------------------------------------------

typedef struct PartMoments { // of n values: their mean, and m2 = Σ (x - mean)²; all three are 0 where n is
  double n, mean, m2;
} PartMoments;

// The moments of the values of both parts together, without cancellation (Chan, Golub, LeVeque, 1979).
PartMoments moments_merge(PartMoments a, PartMoments b);

// ---- 16: suppression ------------------------------------------------------------------------------------------------

// Greedy non-maximum suppression of n boxes, best first: a box survives if no survivor before it overlaps it.
// overlaps [n, words], words = ⌈n / 64⌉: bit j of word [i, w] is set if box 64·w + j overlaps box i. Words before a
// row's own, w < i / 64, hold anything. survivors [words] gets a bit for each box that survives, none past n.
void suppress_by_bits(int n, const uint64_t *overlaps, uint64_t *survivors);

// ---- 17: bilinear samples -------------------------------------------------------------------------------------------

// What RoIAlign reads at (y, x) of map [h, w], pixel centres being at whole numbers. Up to one pixel outside, -1 and h
// included, the edge is repeated; farther out, and for NaN, the sample is 0.
float bilinear_sample(const float *map, int h, int w, float y, float x);

// ---- 18: runs -------------------------------------------------------------------------------------------------------

// bits [h, w], a byte a pixel, as COCO's runs: column by column from top to bottom, the numbers of equal pixels in turn
// of zeros and of ones, zeros first: a mask whose first pixel is set begins with a run of 0. No other run is 0. Returns
// how many there are, at most h·w + 1.
int runs_of_bits(int h, int w, const uint8_t *bits, uint32_t *runs);

// ---- 19: who writes, who adds ---------------------------------------------------------------------------------------

enum { MOST_INS = 3 };

// Reads the values `in` and makes value `out`. The backward walk takes nodes from the last to the first, and a node's
// inputs in order; each is a contribution to the gradient of the value that is read.
typedef struct WalkNode {
  int ins, in[MOST_INS], out;
} WalkNode;

typedef struct Contribution {
  bool accumulate; // += instead of =
  bool mask;       // behind it, the gradient is multiplied by the ReLU's mask: the value's last contribution
} Contribution;

// write [nodes, MOST_INS]: of each node and input. Gradients hold NaN before the walk.
void plan_contributions(int nodes, int values, const WalkNode *node, Contribution (*write)[MOST_INS]);

// ---- 20: buckets ----------------------------------------------------------------------------------------------------

// Gradients are complete piece by piece: piece i, of bytes[i], at ready[i] seconds, ascending. A bucket ends with the
// piece that brings it to bucket_bytes or more; what is left when the last piece is complete is a bucket, too. A
// bucket's reduction starts when all of it is complete and the one before has ended, and takes
// latency + bytes / rate seconds. Returns when the last reduction ends; 0 where there are no pieces.
double last_reduction_ends(int pieces, const double *ready, const double *bytes, double bucket_bytes, double latency,
                           double rate);
