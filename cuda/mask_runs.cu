// Pasted masks as runs, from probabilities to memory of the host, without a bitmap in between. What colour a pixel has
// is exact/mask_bins.h's to say, compiled without contraction: runs equal the CPU's.
//
// A mask's columns are cut into slices. A warp takes a slice, 32 columns at a time, a lane a column, whose changes of
// colour, its toggles, come from top to bottom; a run is what lies between two of them. The mask is walked twice, once
// to count and once to write, so that nothing is kept whose size nobody knows.
#include "cuda/mask_columns.cuh"

enum {
  WARPS = 4,
  BLOCK = 32 * WARPS,
  CACHED = 32, // toggles of a column that are kept until the runs are written: more than 30 rows of a mask make
  OFFSET_BLOCK = 1024
};

// Columns of a slice: whole warps of them.
static __device__ void slice_range(const PastedMask &m, int slice, int *from, int *to) {
  const int warp_columns = 32 * RUN_SLICES, columns = (m.right - m.left + warp_columns - 1) / warp_columns * 32;
  *from = m.left + slice * columns;
  *to = min(*from + columns, m.right);
}

// ---- scans over a warp ----------------------------------------------------------------------------------------------

// Of the lanes up to this one.
template <class T> static __device__ T warp_sum_up(T v) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    T other = __shfl_up_sync(~0u, v, offset);
    if (threadIdx.x % 32 >= offset) v += other;
  }
  return v;
}
static __device__ uint32_t warp_max_up(uint32_t v) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) v = max(v, __shfl_up_sync(~0u, v, offset));
  return v;
}
// Of the lanes before this one, `first` in the first.
template <class T> static __device__ T lane_before(T v, T first) {
  T before = __shfl_up_sync(~0u, v, 1);
  return threadIdx.x % 32 ? before : first;
}

// ---- counting -------------------------------------------------------------------------------------------------------

// runs.toggles and runs.last [rows, RUN_SLICES]. Grid (detections, RUN_SLICES / WARPS).
static __global__ void __launch_bounds__(BLOCK)
    mask_toggles_kernel(MaskPaste p, const ImageInfo *images, const __grid_constant__ Boxes detections,
                        const __grid_constant__ Tensor probs, MaskRuns runs) {
  extern __shared__ float shared[];
  int slot = blockIdx.x, group = slot / detections.capacity, i = slot % detections.capacity;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slice = blockIdx.y * WARPS + warp;
  if (i >= detections.count[group]) return;
  int row = compacted_row(&detections, group) + i, from, to;
  PastedMask m = pasted_mask(p, images[group], box_rows(&detections.box)[slot], probs);
  slice_range(m, slice - warp, &from, &to);
  if (from < to) mask_lay_out(m, probs, row, shared); // for all warps, of which the last may have no columns
  slice_range(m, slice, &from, &to);
  int toggles = 0;
  uint32_t last = 0;
  for (int x = from + lane; x < to; x += 32)
    walk_column(m, x, [&](uint32_t at) {
      toggles++;
      last = at;
    });
  toggles = warp_sum(toggles);
  last = warp_max_up(last);
  if (lane < 31) return;
  runs.toggles[row * RUN_SLICES + slice] = toggles;
  runs.last[row * RUN_SLICES + slice] = last;
}

// Sum of the threads up to this one, and of all of them.
static __device__ int64_t block_sum_up(int64_t v, int64_t *all) {
  __shared__ int64_t part[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  v = warp_sum_up(v);
  __syncthreads(); // part may still be read by the call before
  if (lane == 31) part[warp] = v;
  __syncthreads();
  int64_t sums = warp_sum_up(part[lane]);
  *all = __shfl_sync(~0u, sums, 31);
  int64_t before = __shfl_sync(~0u, sums, (warp + 31) % 32);
  return warp ? v + before : v;
}

// runs.count and runs.first [rows]. One threadblock, a thread a mask.
static __global__ void __launch_bounds__(OFFSET_BLOCK)
    mask_offsets_kernel(const __grid_constant__ Boxes detections, int64_t least, int64_t spare, MaskRuns runs) {
  int rows = compacted_row(&detections, detections.groups);
  int64_t before = 0; // what masks up to here want beyond the least
  for (int first = 0; first < rows; first += OFFSET_BLOCK) {
    int row = first + threadIdx.x, count = 0;
    if (row < rows) {
      const int4 *toggles = (const int4 *)(runs.toggles + row * RUN_SLICES);
      count = 1;
#pragma unroll
      for (int k = 0; k < RUN_SLICES / 4; k++) {
        int4 four = toggles[k];
        count += four.x + four.y + four.z + four.w;
      }
    }
    int64_t all, own = max(count - least, (int64_t)0), more = before + block_sum_up(own, &all);
    if (row < rows) {
      runs.count[row] = count > least && more > spare ? 0 : count;
      runs.first[row] = row * least + min(more - own, spare);
    }
    before += all;
  }
}

// Words of a mask's probabilities: one channel of floats without padding.
static int64_t map_words(const Tensor *probs) {
  CHECK(probs->dtype == F32 && probs->ldc == 1);
  return (int64_t)probs->h * probs->w;
}

extern "C" void cuda_mask_runs(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                               const Tensor *probs, const MaskRuns *runs) {
  if (dev->measuring) return;
  const int rows = detections->groups * detections->capacity;
  const int64_t least = map_words(probs);
  CHECK(runs->room >= rows * least);
  const size_t shared = mask_shared_bytes(probs);
  allow_shared(mask_toggles_kernel, shared);
  mask_toggles_kernel<<<dim3(rows, RUN_SLICES / WARPS), BLOCK, shared, stream_of(dev)>>>(*p, images, *detections,
                                                                                         *probs, *runs);
  LAUNCH_CHECK();
  mask_offsets_kernel<<<1, OFFSET_BLOCK, 0, stream_of(dev)>>>(*detections, least, runs->room - rows * least, *runs);
  LAUNCH_CHECK();
}

// ---- writing --------------------------------------------------------------------------------------------------------

// Writes the runs that end with the toggles of 32 columns. `kept`: toggle k of the lane's column at k · 32 + lane,
// `ends`: how many up to the lane's there are; `last`: the toggle before. Neighbouring lanes write neighbouring words:
// they go to the host one by one otherwise.
static __device__ void write_kept(const uint32_t *kept, int ends, uint32_t last, uint32_t *to) {
  const int lane = threadIdx.x % 32, all = __shfl_sync(~0u, ends, 31);
  for (int first = 0; first < all; first += 32) {
    int i = min(first + lane, all - 1), column = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) // the first column that ends behind i
      if (__shfl_sync(~0u, ends, column + step - 1) <= i) column += step;
    int begin = __shfl_sync(~0u, ends, max(column - 1, 0));
    uint32_t at = kept[(column ? i - begin : i) * 32 + column], before = lane_before(at, last);
    if (first + lane < all) to[i] = at - before;
    last = __shfl_sync(~0u, at, 31);
  }
}

// The runs of a slice, whose first is to[0] and begins at `last`.
static __device__ void write_slice(const PastedMask &m, int from, int to, uint32_t last, uint32_t *kept,
                                   uint32_t *words) {
  const int lane = threadIdx.x % 32;
  for (int first = from; first < to; first += 32) {
    int x = first + lane, toggles = 0;
    uint32_t own = 0; // the column's last
    if (x < to)
      walk_column(m, x, [&](uint32_t at) {
        if (toggles < CACHED) kept[toggles * 32 + lane] = at;
        toggles++;
        own = at;
      });
    int ends = warp_sum_up(toggles);
    uint32_t reached = max(warp_max_up(own), last), before = lane_before(reached, last);
    __syncwarp();
    if (__all_sync(~0u, toggles <= CACHED)) {
      write_kept(kept, ends, last, words);
    } else if (x < to) { // an unlikely mask
      uint32_t *run = words + ends - toggles;
      walk_column(m, x, [&](uint32_t at) {
        *run++ = at - before;
        before = at;
      });
    }
    words += __shfl_sync(~0u, ends, 31);
    last = __shfl_sync(~0u, reached, 31);
    __syncwarp(); // `kept` is free again
  }
}

// What is not a mask: of the groups by the first threadblock, of a detection by its first. A mask without room for its
// runs gives its probabilities.
static __device__ void write_counts(const Boxes &detections, const DetectionRows &to) {
  for (int g = threadIdx.x; g < detections.groups; g += BLOCK) to.count[g] = detections.count[g];
}
static __device__ void write_box(const Boxes &detections, int slot, int row, const DetectionRows &to) {
  to.index[row] = detections.index[slot];
  ((Box *)to.box)[row] = box_rows(&detections.box)[slot];
  ((float *)to.score)[row] = ((const float *)detections.score.data)[slot];
}
static __device__ void write_row(const Boxes &detections, const Tensor &probs, const MaskRuns &runs, int slot, int row,
                                 const DetectionRows &to) {
  if (threadIdx.x == 0) {
    write_box(detections, slot, row, to);
    to.runs[row] = runs.count[row];
    to.first[row] = runs.first[row];
  }
  if (runs.count[row]) return;
  const float *map = pixel<float>(probs, row, 0, 0);
  for (int i = threadIdx.x; i < probs.h * probs.w; i += BLOCK) to.words[runs.first[row] + i] = __float_as_uint(map[i]);
}

// Everything the host reads of a batch. Grid as mask_toggles_kernel's.
static __global__ void __launch_bounds__(BLOCK)
    detections_write_kernel(MaskPaste p, const ImageInfo *images, const __grid_constant__ Boxes detections,
                            const __grid_constant__ Tensor probs, MaskRuns runs, DetectionRows to) {
  extern __shared__ float shared[];
  __shared__ uint32_t kept[WARPS][CACHED * 32];
  int slot = blockIdx.x, group = slot / detections.capacity, i = slot % detections.capacity;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slice = blockIdx.y * WARPS + warp;
  if (blockIdx.x == 0 && blockIdx.y == 0) write_counts(detections, to);
  if (i >= detections.count[group]) return;
  int row = compacted_row(&detections, group) + i, from, end;
  if (blockIdx.y == 0) write_row(detections, probs, runs, slot, row, to);
  if (!runs.count[row]) return;
  int toggles = runs.toggles[row * RUN_SLICES + lane], ends = warp_sum_up(toggles); // of slice `lane`
  uint32_t last = warp_max_up(runs.last[row * RUN_SLICES + lane]), *words = to.words + runs.first[row];
  PastedMask m = pasted_mask(p, images[group], box_rows(&detections.box)[slot], probs);
  if (slice == 0 && lane == 31) words[ends] = m.pixels - last; // the last run
  const unsigned slices = __ballot_sync(~0u, toggles > 0);     // that have runs
  if (!(slices >> (slice - warp) & ((1u << WARPS) - 1))) return;
  mask_lay_out(m, probs, row, shared);
  if (!(slices >> slice & 1)) return;
  int begin = __shfl_sync(~0u, ends - toggles, slice);
  uint32_t before = __shfl_sync(~0u, lane_before(last, 0u), slice);
  slice_range(m, slice, &from, &end);
  write_slice(m, from, end, before, kept[warp], words + begin);
}

// The same of a model without masks, a thread a detection.
static __global__ void boxes_write_kernel(const __grid_constant__ Boxes detections, DetectionRows to) {
  int slot = blockIdx.x * BLOCK + threadIdx.x, group = slot / detections.capacity, i = slot % detections.capacity;
  if (blockIdx.x == 0) write_counts(detections, to);
  if (group >= detections.groups || i >= detections.count[group]) return;
  int row = compacted_row(&detections, group) + i;
  write_box(detections, slot, row, to);
  to.runs[row] = 0;
  to.first[row] = 0;
}

extern "C" void cuda_detections_write(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                                      const Tensor *probs, const MaskRuns *runs, const DetectionRows *to) {
  if (dev->measuring) return;
  const int rows = detections->groups * detections->capacity;
  if (!probs) {
    boxes_write_kernel<<<(rows + BLOCK - 1) / BLOCK, BLOCK, 0, stream_of(dev)>>>(*detections, *to);
    LAUNCH_CHECK();
    return;
  }
  map_words(probs);
  const size_t shared = mask_shared_bytes(probs);
  allow_shared(detections_write_kernel, shared);
  detections_write_kernel<<<dim3(rows, RUN_SLICES / WARPS), BLOCK, shared, stream_of(dev)>>>(*p, images, *detections,
                                                                                             *probs, *runs, *to);
  LAUNCH_CHECK();
}
