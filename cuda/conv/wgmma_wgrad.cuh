// What the wgrad kernels of rung 05 share before their epilogues: the walk over a slice's pixels, and a pair's tensor
// maps.
#pragma once
#include "cuda/conv/wgmma_wgrad_epilogue.cuh"

// Walks over the k tiles (pipeline stages) of a slice. Those of all pairs stand in a row, which the slices cut into
// equal shares. TILE_K: pixels of a k tile.
template <int TILE_K> struct KTileCursor {
  int pair, first; // output pixel of the pair
  int positions;   // of the pair that hold data
  int remaining;   // k tiles of the slice, from this one on

  __device__ static int positions_of(const WgradPairMaps &pair) { return rows_of(pair.rows) * pair.area; }
  __device__ static int k_tiles_of(uint32_t positions) { return (positions + TILE_K - 1) / TILE_K; }
  __device__ __forceinline__ KTileCursor(const WgradParams &p, int slice) {
    int all = 0;
#pragma unroll 1
    for (int i = 0; i < p.pairs; i++) all += k_tiles_of(positions_of(p.pair[i]));
    int share = divide(all, p.slices), more = all - share * p.slices.by; // slices that have a k tile more
    int begin = share * slice + min(slice, more);
    remaining = share + (slice < more);
    pair = -1;
    first = 0;
    positions = 0;
#pragma unroll 1
    for (int skipped = 0; skipped <= begin && remaining; skipped += k_tiles_of(positions)) {
      first = (begin - skipped) * TILE_K;
      positions = positions_of(p.pair[++pair]);
    }
  }
  __device__ __forceinline__ void advance(const WgradParams &p) {
    remaining--;
    first += TILE_K;
    while (first >= positions && remaining) {
      first = 0;
      positions = positions_of(p.pair[++pair]);
    }
  }
};

// ---- on the host ----------------------------------------------------------------------------------------------------

// Zeros that the view needs between two rows, so that a tap that leaves a row on the right meets zeros.
static inline int row_padding(const Conv *conv, const Tensor *dw) { return MAX(dw->w - 1 - conv->pad, 0); }

// The im2col view of a pair. Where all pixels are read in order, they are one row.
static inline Im2col pair_im2col(const Conv *conv, Tensor *x, Tensor *dy, const Tensor *dw, bool shared_patch) {
  Im2col im2col = im2col_forward(conv, dw, dy);
  if (shared_patch) im2col.x.size += row_padding(conv, dw);
  if (!im2col_is_identity(&im2col, x) || tensor_elements(x) >> 31 || tensor_elements(dy) >> 31)
    return im2col; // TMA counts pixels in int
  for (Tensor *t : {x, dy}) {
    t->w *= t->n * t->h;
    t->n = t->h = 1;
  }
  im2col.y.size = 1;
  im2col.x.size = x->w;
  return im2col;
}

// Maps of a pair, whose copies are `tile_k` pixels of dy, in rows of so many bytes, and with so many more of x.
static inline WgradPairMaps pair_maps(const Conv *conv, Tensor x, Tensor dy, const WgradParams &p, int tile_k, int more,
                                      int dy_row) {
  WgradPairMaps pair = {};
  pair.rows = dy;
  Im2col im2col = pair_im2col(conv, &x, &dy, &p.dw, p.shared_patch), steps = im2col;
  pair.at = im2col_view(&x, &im2col);
  pair.area = view_capacity(pair.at) / pair.rows.n;
  pair.x = map_im2col(&x, &im2col, tile_k + more);
  steps.y.in = steps.x.in = 0;
  steps.y.in_stride = steps.x.in_stride = 1;
  pair.dy = map_im2col(&dy, &steps, tile_k, MAP_OPERAND, dy_row);
  return pair;
}

// wgrad in TF32, where tf32_wgrad_fits.
void tf32_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
