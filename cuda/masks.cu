// Instance masks: from ground-truth bitmaps and polygons to training targets, and from predictions back into images:
// torchvision's project_masks_on_boxes and paste_masks_in_image. Sampling positions come from exact/mask_bins.h,
// compiled without contraction: a target or pasted bit equals the CPU's.
#include "cuda/common.cuh"
extern "C" {
#include "exact/mask_bins.h"
}

enum {
  BLOCK = 256,
  BIN_LANES = 8,       // lanes that share a bin: a large box has up to a thousand sampling points in each
  TARGET_ROWS = 2,     // rows of bins of a target that a threadblock makes
  MOST_COLUMNS = 1536, // of sampling points in shared memory, and …
  MOST_ROWS = 256,     // … rows; more are made where they are needed
  POLYGON_THREADS = 128
};

// Targets and probabilities: float, one channel, no padding.
static void check_single(const Tensor *t) { CHECK(t->dtype == F32 && t->ldc == 1); }

// ---- targets --------------------------------------------------------------------------------------------------------

// A sampling point of the target's grid along the rows or the columns, as the sums read it.
struct MaskTap {
  alignas(16) int low; // in the bitmap, or outside, where there is nothing
  int high;
  float fraction;
};
static constexpr int NO_TAP = INT_MIN; // a sample that counts as zero

static __device__ __forceinline__ MaskTap row_tap(const Mask &m, RoiAxis axis, int bin, int s) {
  Tap tap = roi_tap(axis, bin, s, m.info->rh);
  if (tap.low < 0) return {NO_TAP, NO_TAP, 0};
  return {mask_row(&m, tap.low), mask_row(&m, tap.high), tap.fraction};
}
static __device__ __forceinline__ MaskTap column_tap(const Mask &m, RoiAxis axis, int bin, int s) {
  Tap tap = roi_tap(axis, bin, s, m.info->rw);
  if (tap.low < 0) return {NO_TAP, NO_TAP, 0};
  return {mask_column(&m, tap.low), mask_column(&m, tap.high), tap.fraction};
}

// Columns first … first + 31 of a row of the bitmap, as bits; there is nothing outside.
static __device__ __forceinline__ uint32_t mask_window(const Mask &m, int row, int first) {
  if (row < 0 || row >= m.bitmap->h) return 0;
  const int words = (m.bitmap->w + 31) / 32, k = first >> 5, left = m.bitmap->w - first;
  const uint32_t *at = mask_words(&m, row);
  const uint32_t low = k >= 0 && k < words ? at[k] : 0, high = k + 1 >= 0 && k + 1 < words ? at[k + 1] : 0;
  const uint32_t bits = __funnelshift_r(low, high, first);
  return left >= 32 ? bits : left > 0 ? bits & ((1u << left) - 1) : 0;
}

// The sum over one row of a bin's sampling points, the bits of mask_bin_row. column(i): the MaskTap of the bin's
// sampling point i. Where the columns read lie within 32 of one another, as those of all but the largest boxes do, the
// bits of both rows are two words, which mostly are all of one colour.
template <class Column>
static __device__ __forceinline__ float bin_row(const Mask &m, const MaskTap &row, int samples, Column column) {
  const MaskTap begin = column(0), end = column(samples - 1);
  const int first = min(begin.low, end.high), last = max(begin.low, end.high);
  float sum = 0;
  if (begin.low == NO_TAP || end.low == NO_TAP || last - first >= 32) {
    for (int i = 0; i < samples; i++) {
      const MaskTap at = column(i);
      auto bit = [&](int y, int x) { return x != NO_TAP && (mask_window(m, y, x) & 1); };
      sum += mask_blend(row.fraction, at.fraction, bit(row.low, at.low), bit(row.low, at.high), bit(row.high, at.low),
                        bit(row.high, at.high));
    }
    return sum;
  }
  const uint32_t all = ~0u >> (31 - (last - first));
  const uint32_t above = mask_window(m, row.low, first) & all, below = mask_window(m, row.high, first) & all;
  if (!(above | below)) return 0;
  if ((above & below) == all) {
    for (int i = 0; i < samples; i++) sum += mask_blend(row.fraction, column(i).fraction, true, true, true, true);
    return sum;
  }
  for (int i = 0; i < samples; i++) {
    const MaskTap at = column(i);
    const uint32_t low = 1u << (at.low - first), high = 1u << (at.high - first);
    sum += mask_blend(row.fraction, at.fraction, above & low, above & high, below & low, below & high);
  }
  return sum;
}

// target [objects, size, size] of instances that have a bitmap: RoIAlign of the resized mask with adaptive sampling. A
// threadblock per object and TARGET_ROWS rows of bins, for which it finds out once where the rows and columns of
// sampling points are. Eight neighbouring lanes share a bin, a row of sampling points each; shuffles add their sums up
// in order, so that the total has the reference's bits. Bound by instructions.
__global__ void __launch_bounds__(BLOCK)
    mask_target_kernel(MaskTarget p, const ImageInfo *images, const __grid_constant__ Truth truth,
                       const __grid_constant__ RoiTargets targets, Tensor target) {
  __shared__ MaskTap columns[MOST_COLUMNS], rows[MOST_ROWS];
  const Rois &objects = targets.objects;
  const int parts = (p.size + TARGET_ROWS - 1) / TARGET_ROWS, r = blockIdx.x / parts;
  if (r >= min(*objects.count, target.n)) return;
  Mask mask = instance_mask(&p, &truth, targets.object_truth[r], &images[objects.image[r]]);
  if (mask.bitmap->parts > 0) return; // polygon_target_kernel's
  const int first = blockIdx.x % parts * TARGET_ROWS, last = min(first + TARGET_ROWS, p.size);
  if (mask.bitmap->parts == NO_MASK) {
    for (int i = first * p.size + threadIdx.x; i < last * p.size; i += BLOCK)
      *pixel<float>(target, r, i / p.size, i % p.size) = -1;
    return;
  }
  Box box = box_rows(&objects.box)[r];
  const RoiAxis ys = target_axis(&p, box.y1, box.y2), xs = target_axis(&p, box.x1, box.x2);
  const bool apart = mask_axes_apart(&mask);
  const bool in_shared = apart && xs.samples <= MOST_COLUMNS / p.size && ys.samples <= MOST_ROWS / TARGET_ROWS;
  for (int i = threadIdx.x; in_shared && i < p.size * xs.samples; i += BLOCK)
    columns[i] = column_tap(mask, xs, i / xs.samples, i % xs.samples);
  for (int i = threadIdx.x; in_shared && i < (last - first) * ys.samples; i += BLOCK)
    rows[i] = row_tap(mask, ys, first + i / ys.samples, i % ys.samples);
  __syncthreads();
  const int lane = threadIdx.x % BIN_LANES;
  const uint32_t sharers = ((1u << BIN_LANES) - 1) << (threadIdx.x % 32 - lane);
  for (int bin = first * p.size + threadIdx.x / BIN_LANES; bin < last * p.size; bin += BLOCK / BIN_LANES) {
    const int y = bin / p.size, x = bin % p.size;
    float sum = 0;
    for (int s = lane; s - lane < ys.samples; s += BIN_LANES) {
      float row = 0;
      if (s < ys.samples && xs.samples > 0) {
        if (!apart)
          row = mask_bin_row(&mask, ys, xs, y, x, s);
        else if (in_shared)
          row = bin_row(mask, rows[(y - first) * ys.samples + s], xs.samples,
                        [&](int i) { return columns[x * xs.samples + i]; });
        else
          row = bin_row(mask, row_tap(mask, ys, y, s), xs.samples, [&](int i) { return column_tap(mask, xs, x, i); });
      }
      for (int i = 0; i < BIN_LANES; i++) sum += __shfl_sync(sharers, row, i, BIN_LANES);
    }
    if (lane == 0) *pixel<float>(target, r, y, x) = target_value(&p, ys, xs, sum);
  }
}

// The same of instances that have polygons: even-odd rasterisation in the box, a polygon at a time, then their union.
// One threadblock per object, a thread per edge; a bitmask per column in shared memory takes the toggles by atomicXor,
// which commutes, so that no order of threads shows. Bound by latency: an instance has up to a few hundred edges.
__global__ void __launch_bounds__(POLYGON_THREADS)
    polygon_target_kernel(MaskTarget p, const __grid_constant__ Truth truth, const __grid_constant__ RoiTargets targets,
                          Tensor target) {
  typedef unsigned long long RowBits;  // as the atomics take it: bit y for row y
  __shared__ RowBits one[64], all[64]; // of each column: one polygon's, the union's
  const Rois &objects = targets.objects;
  int r = blockIdx.x;
  if (r >= min(*objects.count, target.n)) return;
  const Bitmap &bitmap = truth.bitmap[targets.object_truth[r]];
  if (bitmap.parts <= 0) return;
  PolygonGrid grid = polygon_grid(&p, box_rows(&objects.box)[r]);
  if (threadIdx.x < 64) {
    all[threadIdx.x] = 0;
    one[threadIdx.x] = 0;
  }
  const uint32_t *part = truth.bits + bitmap.offset;
  for (int k = 0; k < bitmap.parts; k++, part = part_next(part)) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < part[0]; i += POLYGON_THREADS) {
      PolygonEdge e = part_edge(&grid, part, i);
      for (int x = e.first; x < e.end; x++) atomicXor(&one[x], toggled_rows(&e, x, p.size));
    }
    __syncthreads();
    if (threadIdx.x < 64) {
      all[threadIdx.x] |= one[threadIdx.x];
      one[threadIdx.x] = 0;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < p.size * p.size; i += POLYGON_THREADS)
    *pixel<float>(target, r, i / p.size, i % p.size) = all[i % p.size] >> (i / p.size) & 1;
}

extern "C" void cuda_mask_target(Device *dev, const MaskTarget *p, const ImageInfo *images, const Truth *truth,
                                 const RoiTargets *targets, const Tensor *target) {
  if (dev->measuring) return;
  CHECK(target->h == p->size && target->w == p->size);
  check_single(target);
  int blocks = target->n * blocks_for((size_t)p->size, TARGET_ROWS);
  mask_target_kernel<<<blocks, BLOCK, 0, stream_of(dev)>>>(*p, images, *truth, *targets, *target);
  LAUNCH_CHECK();
  if (p->source != MASK_POLYGON) return;
  CHECK(p->size <= 64);
  polygon_target_kernel<<<target->n, POLYGON_THREADS, 0, stream_of(dev)>>>(*p, *truth, *targets, *target);
  LAUNCH_CHECK();
}

// ---- predictions ----------------------------------------------------------------------------------------------------

// probs [detections, m, m] = sigmoid of the logits' channel of the detection's class, for valid detections, compacted.
// A thread per pixel; of each pixel's classes one is read, so that loads are strided by the pitch.
template <class T>
__global__ void mask_select_kernel(const __grid_constant__ Boxes detections, Tensor logits, Tensor probs) {
  int pixels = probs.h * probs.w, item = blockIdx.x * BLOCK + threadIdx.x, slot = item / pixels;
  int group = slot / detections.capacity, i = slot % detections.capacity;
  if (group >= detections.groups || i >= detections.count[group]) return;
  int row = compacted_row(&detections, group) + i, y = item % pixels / probs.w, x = item % probs.w;
  int label = detections.index[slot] % logits.c;
  *pixel<float>(probs, row, y, x) = sigmoid(to_float(pixel<T>(logits, row, y, x)[label]));
}

extern "C" void cuda_mask_select(Device *dev, const Boxes *detections, const Tensor *logits, const Tensor *probs) {
  if (dev->measuring) return;
  size_t slots = (size_t)detections->groups * detections->capacity;
  CHECK(slots <= (size_t)probs->n && probs->h == logits->h && probs->w == logits->w);
  check_single(probs);
  int blocks = blocks_for(slots * probs->h * probs->w, BLOCK);
  WITH_TYPE(logits->dtype, T,
            mask_select_kernel<T><<<blocks, BLOCK, 0, stream_of(dev)>>>(*detections, *logits, *probs));
  LAUNCH_CHECK();
}

// Whether the stretched mask covers image pixel i of an axis.
static __device__ bool paste_covers(const Paste &axis, int i) {
  return i >= axis.first && i - axis.first < axis.length;
}

// bits [detections, words]: each valid detection's mask, stretched over its box bilinearly, thresholded and packed into
// bits, column-major. Grid (detections, up to MOST_BLOCKS), a grid-stride loop over the words of one detection; a
// thread makes whole words, so that no two write the same one and none needs an atomic. Away from the box a word costs
// its store, within it 32 bilinear samples.
__global__ void mask_paste_kernel(MaskPaste p, const ImageInfo *images, const __grid_constant__ Boxes detections,
                                  const __grid_constant__ Tensor probs, uint32_t *bits, int64_t words) {
  int slot = blockIdx.x, group = slot / detections.capacity, i = slot % detections.capacity;
  if (i >= detections.count[group]) return;
  int row = compacted_row(&detections, group) + i, h = images[group].h, w = images[group].w;
  if (p.rows && (row < p.first || row >= p.first + p.rows)) return;
  Box box = box_rows(&detections.box)[slot];
  Paste ys = paste_axis(p.exact, box.y1, box.y2, images[group].rh, h, probs.h);
  Paste xs = paste_axis(p.exact, box.x1, box.x2, images[group].rw, w, probs.w);
  MaskMap map = {pixel<float>(probs, row, 0, 0), probs.h, probs.w, probs.ldc};
  for (int64_t word = blockIdx.y * BLOCK + threadIdx.x; word < words; word += gridDim.y * BLOCK) {
    int x = (int)(32 * word / h), y = (int)(32 * word % h), last = (int)((32 * word + 31) / h);
    uint32_t set = 0;
    bool touched = last >= xs.first && x - xs.first < xs.length; // most words are far from the box
    for (int bit = 0; touched && bit < 32 && x < w; bit++) {
      if (paste_covers(xs, x) && paste_covers(ys, y)) {
        float value = pasted_value(&map, paste_tap(&ys, y), paste_tap(&xs, x));
        if (value >= p.threshold) set |= 1u << bit;
      }
      if (++y == h) {
        y = 0;
        x++;
      }
    }
    bits[(row - p.first) * words + word] = set;
  }
}

extern "C" void cuda_mask_paste(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                                const Tensor *probs, uint32_t *bits, int64_t words) {
  if (dev->measuring) return;
  check_single(probs);
  enum { MOST_BLOCKS = 1024 }; // per detection; past them threads take a second word
  int64_t blocks = MIN((words + BLOCK - 1) / BLOCK, MOST_BLOCKS);
  dim3 grid((unsigned)(detections->groups * detections->capacity), (unsigned)blocks);
  mask_paste_kernel<<<grid, BLOCK, 0, stream_of(dev)>>>(*p, images, *detections, *probs, bits, words);
  LAUNCH_CHECK();
}
