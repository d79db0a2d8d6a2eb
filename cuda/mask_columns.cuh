// The columns of a pasted mask, and where their colour changes. What colour a pixel has is exact/mask_bins.h's to say,
// compiled without contraction.
//
// A threadblock has one mask, with its border of zeros, in shared memory. Pixels between the same two rows of the mask
// are a band; the same bands cross every column. Along a column a band's pixels are means of the same two values, by
// weights that go one way, so that the two values or two neighbouring pixels decide about all of them, by a margin
// above what rounding can do. Only where that leaves a doubt is every pixel evaluated.
#pragma once
#include "cuda/common.cuh"
extern "C" {
#include "exact/mask_bins.h"
}

// Where a mean's weights and values are in [0, 1], its four roundings are off by less than 2^-22 together. A pixel
// beyond the margin, which is more than twice that, shows on which side of the threshold those are whose exact means
// lie farther out.
#define MASK_MARGIN 0x1p-20f

// One detection's mask over its image.
struct PastedMask {
  Paste ys, xs;
  int left, right, top, bottom; // what it covers
  int h;
  uint32_t pixels;
  float threshold, low, high; // a margin below and above
  float band_height;
  bool joins;           // columns are whole: what is above one's first pixel is the last pixel of the one before
  bool plain;           // its rows' weights are in [0, 1]
  const float *map;     // shared, [ys.size, xs.size]: the mask and its border
  const int *first;     // shared, [ys.size + 1]: a band's first pixel; band i lies between rows i and i + 1
  const uint32_t *some; // shared, a bit for each band: it has pixels
};

static __device__ PastedMask pasted_mask(const MaskPaste &p, const ImageInfo &info, Box box, const Tensor &probs) {
  PastedMask m = {};
  m.ys = paste_axis(p.exact, box.y1, box.y2, info.rh, info.h, probs.h);
  m.xs = paste_axis(p.exact, box.x1, box.x2, info.rw, info.w, probs.w);
  paste_range(&m.ys, info.h, &m.top, &m.bottom);
  paste_range(&m.xs, info.w, &m.left, &m.right);
  if (m.top >= m.bottom) m.right = m.left;
  m.h = info.h;
  m.pixels = (uint32_t)info.h * (uint32_t)info.w;
  m.threshold = p.threshold;
  m.low = p.threshold - MASK_MARGIN;
  m.high = p.threshold + MASK_MARGIN;
  m.band_height = 1 / m.ys.scale;
  m.joins = m.top == 0 && m.bottom == info.h;
  m.plain = paste_tap(&m.ys, m.bottom - 1).fraction <= 1; // the largest: only past the last row is there more than 1
  return m;
}

// ---- shared memory --------------------------------------------------------------------------------------------------

static size_t mask_shared_bytes(const Tensor *probs) {
  const size_t rows = (size_t)probs->h + 2, columns = (size_t)probs->w + 2;
  return (rows * columns + rows + 1 + (rows + 31) / 32) * sizeof(float);
}

// Where pixel coordinate `at` of the mask is in the image.
static __device__ float paste_inverse(const PastedMask &m, float at) {
  return (at + 0.5f) * m.band_height + m.ys.start - 0.5f;
}

// The first pixel of bands from this one on: estimated, then settled by what the pixels say.
static __device__ int band_first(const PastedMask &m, int band) {
  if (band == 0) return m.top;
  if (band >= m.ys.size) return m.bottom;
  int y = (int)fminf(fmaxf(ceilf(paste_inverse(m, (float)band)), (float)m.top), (float)m.bottom);
  while (y > m.top && paste_tap(&m.ys, y - 1).low >= band) y--;
  while (y < m.bottom && paste_tap(&m.ys, y).low < band) y++;
  return y;
}

// Lays out the mask of row `row`, for all threads of a threadblock together. Covers some pixels.
static __device__ void mask_lay_out(PastedMask &m, const Tensor &probs, int row, float *shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, rows = m.ys.size;
  const MaskMap from = {pixel<float>(probs, row, 0, 0), probs.h, probs.w, probs.ldc};
  int *first = (int *)(shared + rows * m.xs.size);
  uint32_t *some = (uint32_t *)(first + rows + 1);
  for (int y = warp; y < rows; y += warps)
    for (int x = lane; x < m.xs.size; x += 32) shared[y * m.xs.size + x] = mask_bordered(&from, y, x);
  for (int word = warps - 1 - warp; word * 32 < rows; word += warps) {
    const int band = word * 32 + lane, begin = band_first(m, band), end = band_first(m, band + 1);
    const uint32_t bits = __ballot_sync(~0u, begin < end);
    if (band < rows) first[band] = begin;
    if (lane == 0) some[word] = bits;
  }
  if (threadIdx.x == 0) first[rows] = m.bottom;
  m.map = shared;
  m.first = first;
  m.some = some;
  __syncthreads();
}

// ---- values ---------------------------------------------------------------------------------------------------------

// Row `row` of the mask where this column is.
static __device__ float row_value(const PastedMask &m, int row, Tap column) {
  const float *at = m.map + row * m.xs.size;
  return tap_between(column, at[column.low], at[column.high]);
}

static __device__ bool is_set(const PastedMask &m, int y, Tap column) {
  Tap row = paste_tap(&m.ys, y);
  return tap_between(row, row_value(m, row.low, column), row_value(m, row.high, column)) >= m.threshold;
}

static __device__ bool sound(float value) { return value >= 0 && value <= 1; } // not so for NaN

// Of up to 32 bands.
struct BandColours {
  uint32_t set;   // all pixels are, for certain
  uint32_t mixed; // nothing is certain
};

static __device__ BandColours band_colours(const PastedMask &m, Tap column, int first) {
  const int bands = min(32, m.ys.size - first);
  uint32_t set = 0, unset = 0;
  float value = row_value(m, first, column);
  bool above_set = sound(value) && value >= m.high, above_unset = sound(value) && value <= m.low;
#pragma unroll 4
  for (int i = 0; i < bands; i++) {
    value = row_value(m, min(first + i + 1, m.ys.size - 1), column);
    bool below_set = sound(value) && value >= m.high, below_unset = sound(value) && value <= m.low;
    set |= (uint32_t)(above_set && below_set) << i;
    unset |= (uint32_t)(above_unset && below_unset) << i;
    above_set = below_set;
    above_unset = below_unset;
  }
  if (m.plain) return {set, ~(set | unset)};
  return {0, ~0u};
}

// Where pixels [y, end) of a band change from one colour to the other, end where they do not; -1: that is not certain.
// The pixel before the change and the one behind it show that all of them do as the mean does, which goes one way.
static __device__ int band_change(const PastedMask &m, int band, float upper, float lower, int y, int end) {
  const bool rising = lower > upper;
  const float at = (float)band + __fdividef(m.threshold - upper, lower - upper);
  const int change = (int)fminf(fmaxf(ceilf(paste_inverse(m, at)), (float)y), (float)end);
  const float before = tap_between(paste_tap(&m.ys, change - 1), upper, lower);
  const float behind = tap_between(paste_tap(&m.ys, change), upper, lower);
  const bool sure = (change == y || (rising ? before <= m.low : before >= m.high)) &&
                    (change == end || (rising ? behind >= m.high : behind <= m.low));
  return m.plain && sound(upper) && sound(lower) && sure ? change : -1;
}

// ---- columns --------------------------------------------------------------------------------------------------------

// Calls toggle(position) for every change of colour of column x, in order; the first may be from the column before's,
// the last is that to what lies behind the column.
template <class Toggle> static __device__ void walk_column(const PastedMask &m, int x, Toggle toggle) {
  const Tap column = paste_tap(&m.xs, x);
  const uint32_t base = (uint32_t)x * (uint32_t)m.h;
  bool set = m.joins && x > m.left && is_set(m, m.h - 1, paste_tap(&m.xs, x - 1));
  auto colour = [&](int y, bool wanted) { // pixels from y on
    if (wanted == set) return;
    toggle(base + y);
    set = wanted;
  };
  for (int first = 0; first < m.ys.size; first += 32) {
    const BandColours is = band_colours(m, column, first);
    const uint32_t some = m.some[first / 32];
    // Bands that may change the colour; a band behind one without pixels is not compared with that.
    uint32_t left = some & (is.mixed | is.mixed << 1 | (is.set ^ is.set << 1) | ~(some << 1));
    for (; left; left &= left - 1) {
      const int i = __ffs(left) - 1, band = first + i, y = m.first[band], end = m.first[band + 1];
      if (!(is.mixed >> i & 1)) {
        colour(y, is.set >> i & 1);
        continue;
      }
      const float upper = row_value(m, band, column), lower = row_value(m, min(band + 1, m.ys.size - 1), column);
      const int change = band_change(m, band, upper, lower, y, end);
      if (change > y) colour(y, lower <= upper);
      if (change >= 0 && change < end) colour(change, lower > upper);
      for (int at = change < 0 ? y : end; at < end; at++)
        colour(at, tap_between(paste_tap(&m.ys, at), upper, lower) >= m.threshold);
    }
  }
  if (set && (!m.joins || x + 1 == m.right) && base + m.bottom < m.pixels) toggle(base + m.bottom);
}
