// Instance masks: from ground-truth bitmaps and polygons to training targets, and from predictions back into images:
// torchvision's project_masks_on_boxes and paste_masks_in_image. Sampling positions come from exact/mask_bins.h,
// compiled without contraction: a target or pasted bit equals the CPU's.
#include "cuda/common.cuh"
extern "C" {
#include "exact/mask_bins.h"
}

enum {
  BLOCK = 256,
  BIN_LANES = 8, // lanes that share a bin: a large box has up to a thousand sampling points in each
  POLYGON_THREADS = 128
};

// Targets and probabilities: float, one channel, no padding.
static void check_single(const Tensor *t) { CHECK(t->dtype == F32 && t->ldc == 1); }

// ---- targets --------------------------------------------------------------------------------------------------------

// target [objects, size, size] of instances that have a bitmap: RoIAlign of the resized mask with adaptive sampling.
// Eight neighbouring lanes share a bin, a row of sampling points each; shuffles add their sums up in order, so that the
// total has the reference's bits. Bound by the scattered loads of words for single bits.
__global__ void mask_target_kernel(MaskTarget p, const ImageInfo *images, const __grid_constant__ Truth truth,
                                   const __grid_constant__ RoiTargets targets, Tensor target) {
  int item = (blockIdx.x * BLOCK + threadIdx.x) / BIN_LANES, lane = threadIdx.x % BIN_LANES;
  int x = item % p.size, y = item / p.size % p.size, r = item / p.size / p.size;
  const Rois &objects = targets.objects;
  if (r >= min(*objects.count, target.n)) return;
  Mask mask = instance_mask(&p, &truth, targets.object_truth[r], &images[objects.image[r]]);
  if (mask.bitmap->parts > 0) return; // polygon_target_kernel's
  Box box = box_rows(&objects.box)[r];
  RoiAxis ys = target_axis(&p, box.y1, box.y2), xs = target_axis(&p, box.x1, box.x2);
  uint32_t sharers = ((1u << BIN_LANES) - 1) << (threadIdx.x % 32 - lane);
  float sum = 0;
  for (int first = 0; first < ys.samples; first += BIN_LANES) {
    float row = first + lane < ys.samples ? mask_bin_row(&mask, ys, xs, y, x, first + lane) : 0;
    for (int i = 0; i < BIN_LANES; i++) sum += __shfl_sync(sharers, row, i, BIN_LANES);
  }
  if (lane == 0) *pixel<float>(target, r, y, x) = target_value(&p, ys, xs, sum);
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
  if (bitmap.parts == 0) return;
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
  int blocks = blocks_for(tensor_pixels(target) * BIN_LANES, BLOCK);
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
