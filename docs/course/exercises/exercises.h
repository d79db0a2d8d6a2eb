// The functions that exercises 15 to 20 ask for; conv.h has those of 1 to 14, on convolutions. `make exercise N` builds
// N_*.c with its check, N_*_check.c, which prints "solved" or the first difference. Each file has one gap, between the
// lines "your code" and "end of your code".
#pragma once
#include <stdbool.h>
#include <stdint.h>

// ---- 15: moments ----------------------------------------------------------------------------------------------------

typedef struct PartMoments { // the number of values, their mean, and m2 = Σ (x - mean)²; without values, all are 0
  double n, mean, m2;
} PartMoments;

// The moments of the values of both parts together, without cancellation (Chan, Golub, LeVeque, 1979).
PartMoments moments_merge(PartMoments a, PartMoments b);

// ---- 16: suppression ------------------------------------------------------------------------------------------------

// Greedy non-maximum suppression of n boxes, best first: a box survives if no survivor before it overlaps it.
// overlaps [n, words], words = ⌈n / 64⌉: bit j of word [i, w] is set if box 64·w + j overlaps box i. Words before a
// row's own, w < i / 64, are undefined. survivors [words] gets a bit for each box that survives, and no bits past n.
void suppress_by_bits(int n, const uint64_t *overlaps, uint64_t *survivors);

// ---- 17: bilinear samples -------------------------------------------------------------------------------------------

// The sample of RoIAlign at (y, x) of map [h, w], with pixel centres at integers. Up to one pixel outside, including -1
// and h, the edge is repeated; farther out, and for NaN, the sample is 0.
float bilinear_sample(const float *map, int h, int w, float y, float x);

// ---- 18: runs -------------------------------------------------------------------------------------------------------

// Encodes bits [h, w], a byte per pixel, as COCO's runs: column by column from top to bottom, the lengths of
// alternating runs of zeros and ones, zeros first: a mask whose first pixel is set begins with a run of 0. No other run
// is 0. Returns the number of runs, at most h·w + 1.
int runs_of_bits(int h, int w, const uint8_t *bits, uint32_t *runs);

// ---- 19: who writes, who adds ---------------------------------------------------------------------------------------

enum { MOST_INS = 3 };

// A node reads the values `in` and makes value `out`. The backward walk takes nodes from the last to the first, and a
// node's inputs in order; each input is a contribution to the gradient of the value that is read.
typedef struct WalkNode {
  int ins, in[MOST_INS], out;
} WalkNode;

typedef struct Contribution {
  bool accumulate; // += instead of =
  bool mask;       // afterwards, the gradient is multiplied by the ReLU's mask: set for the value's last contribution
} Contribution;

// write [nodes, MOST_INS]: for each node and input. Gradients are NaN before the walk.
void plan_contributions(int nodes, int values, const WalkNode *node, Contribution (*write)[MOST_INS]);

// ---- 20: buckets ----------------------------------------------------------------------------------------------------

// Gradients are completed piece by piece: piece i, of bytes[i], at ready[i] seconds, ascending. A bucket ends with the
// piece that brings it to bucket_bytes or more; the remaining pieces at the end form a bucket too. A bucket's reduction
// starts when the bucket is complete and the previous reduction has ended, and takes latency + bytes / rate seconds.
// Returns when the last reduction ends; 0 without pieces.
double last_reduction_ends(int pieces, const double *ready, const double *bytes, double bucket_bytes, double latency,
                           double rate);
