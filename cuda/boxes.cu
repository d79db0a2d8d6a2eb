// From network outputs to scored boxes: the RPN's proposals, the box head's detections, and the merging of their groups
// after NMS. Everything is a top-k: keys are made from scores, thinned out, selected and sorted, and only what is left
// is decoded. Ren et al., "Faster R-CNN", 2015; torchvision's filter_proposals and postprocess_detections.
#include "cuda/boxes_rank.cuh"
#include "cuda/softmax.cuh"
#include "cuda/topk.cuh"

enum { SELECT_THREADS = 1024, CLASS_THREADS = 256 };

// ---- proposals ------------------------------------------------------------------------------------------------------

// A group is a level of an image and may have 200,000 logits, too many for the passes of one threadblock: many
// threadblocks build a histogram and compact the logits that can be among the k best, some thousands; then one
// threadblock per group selects, sorts and decodes.
enum { PER_THREAD = 8, CHUNK = SELECT_THREADS * PER_THREAD };

struct RpnMaps { // the RPN's outputs
  Anchors anchors;
  const ImageInfo *images;
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS];
};
struct RpnLists { // the workspace
  Key *key;       // [images, anchors.total]: a group's list begins at its first anchor
  int *bins;      // [groups, BINS]
  int *count;     // [groups]
};

// Anchors of a group; an empty slot of the batch has none.
static __device__ __forceinline__ int group_cells(const RpnMaps &m, int group) {
  const AnchorLevel &level = m.anchors.level[group % m.anchors.levels];
  return m.images[group / m.anchors.levels].h > 0 ? level.h * level.w * m.anchors.per_cell : 0;
}
// Where the group's list of keys begins.
static __device__ __forceinline__ size_t group_list(const RpnMaps &m, int group) {
  int n = group / m.anchors.levels, l = group % m.anchors.levels;
  return (size_t)n * m.anchors.total + m.anchors.level[l].first;
}
// The key of anchor `cell` of the group: anchors of a grid cell are channels of one pixel, cells follow one another.
template <class T> static __device__ __forceinline__ Key cell_key(const RpnMaps &m, int group, int cell) {
  const Tensor &logits = m.logits[group % m.anchors.levels];
  int per_cell = m.anchors.per_cell;
  const T *map = pixel<T>(logits, group / m.anchors.levels, 0, 0);
  float logit = to_float(map[(size_t)(cell / per_cell) * logits.ldc + cell % per_cell]);
  return key_make(rank_descending(isnan(logit) ? -INFINITY : logit), cell);
}

// The keys of a thread: of every 1024th anchor from first + threadIdx.x on, NO_KEY past the group's. All are loaded
// before the first is looked at.
template <class T>
static __device__ __forceinline__ void load_keys(const RpnMaps &m, int group, int first, int cells,
                                                 Key (&keys)[PER_THREAD]) {
#pragma unroll
  for (int k = 0; k < PER_THREAD; k++) {
    int i = first + k * SELECT_THREADS + threadIdx.x;
    keys[k] = i < cells ? cell_key<T>(m, group, i) : NO_KEY;
  }
}

// The histogram of each group's keys: bins [groups, BINS] += …. Grid (chunks of CHUNK anchors, groups). The floor is a
// read of the logits; the atomics stay in shared memory, where bins of neighbouring logits may collide.
template <class T>
__global__ void __launch_bounds__(SELECT_THREADS)
    rpn_histogram_kernel(const __grid_constant__ RpnMaps m, RpnLists lists) {
  __shared__ int bins[BINS];
  int group = blockIdx.y, cells = group_cells(m, group), first = blockIdx.x * CHUNK;
  if (first >= cells) return;
  Key keys[PER_THREAD];
  load_keys<T>(m, group, first, cells, keys);
  bins_clear(bins);
#pragma unroll
  for (int k = 0; k < PER_THREAD; k++)
    if (keys[k] != NO_KEY) atomicAdd(&bins[key_bin(keys[k])], 1);
  bins_add(bins, lists.bins + (size_t)group * BINS);
}

// Compaction: each group's keys up to the bin that holds the capacity-th, into its list in lists.key, in no order, and
// their number into lists.count [groups]. The grid and the reads of the histogram kernel; one global atomic per warp
// that keeps any.
template <class T>
__global__ void __launch_bounds__(SELECT_THREADS)
    rpn_compact_kernel(const __grid_constant__ RpnMaps m, RpnLists lists, int capacity) {
  int group = blockIdx.y, cells = group_cells(m, group), first = blockIdx.x * CHUNK;
  if (first >= cells) return;
  Key keys[PER_THREAD];
  load_keys<T>(m, group, first, cells, keys);
  int last = bins_last(lists.bins + (size_t)group * BINS, capacity);
  Key *list = lists.key + group_list(m, group);
#pragma unroll
  for (int k = 0; k < PER_THREAD; k++) { // whole warps at a time
    bool keep = keys[k] != NO_KEY && key_bin(keys[k]) <= last;
    int slot = warp_append(keep, &lists.count[group]);
    if (keep) list[slot] = keys[k];
  }
}

// The proposal of anchor `cell` of the group, decoded and clipped.
template <class T>
static __device__ __forceinline__ Box cell_box(const RpnMaps &m, const BoxCoder &coder, int group, int cell) {
  int n = group / m.anchors.levels, l = group % m.anchors.levels, per_cell = m.anchors.per_cell;
  const Tensor &deltas = m.deltas[l];
  const T *delta = pixel<T>(deltas, n, 0, 0) + (size_t)(cell / per_cell) * deltas.ldc + 4 * (cell % per_cell);
  return decode_inside(coder, level_anchor(&m.anchors.level[l], per_cell, cell), delta, m.images[n]);
}

// The proposals of each group, out [groups, capacity], best first: bitonic sort of its list, after a radix select where
// the list is much longer than what is selected; then a thread decodes one proposal, and a prefix sum closes the gaps
// that the size and score filters leave, order kept. One threadblock per group: a few thousand keys at most, so that
// the barriers of select and sort bound it, not the work.
template <class T>
__global__ void __launch_bounds__(SELECT_THREADS)
    rpn_select_kernel(RpnSelect p, const __grid_constant__ RpnMaps m, RpnLists lists, Boxes out, int best_slots) {
  extern __shared__ Key best[];
  int group = blockIdx.x, kept = 0, listed = lists.count[group];
  const Key *list = lists.key + group_list(m, group);
  int n = min(listed, out.capacity);
  if (listed <= best_slots) {
    for (int i = threadIdx.x; i < listed; i += SELECT_THREADS) best[i] = list[i];
    block_sort(best, NULL, listed);
  } else {
    block_topk(list, NULL, listed, out.capacity, best, NULL);
    block_sort(best, NULL, n);
  }
  for (int first = 0; first < n; first += SELECT_THREADS) {
    int i = first + threadIdx.x, cell = 0, all;
    float score = 0;
    Box box;
    bool keep = i < n;
    if (keep) {
      cell = key_index(best[i]);
      score = sigmoid(rank_value(key_rank(best[i])));
      box = cell_box<T>(m, p.coder, group, cell);
      keep = box_reaches(box, p.min_size, p.coder.extra) && score >= p.min_score;
    }
    int slot = kept + block_exclusive_sum(keep, &all);
    if (keep) put_box(out, group, slot, box, score, m.anchors.level[group % m.anchors.levels].first + cell);
    kept += all;
  }
  if (threadIdx.x == 0) out.count[group] = kept;
}

extern "C" void cuda_rpn_select(Device *dev, const RpnSelect *p, const Anchors *anchors, const ImageInfo *images,
                                const Tensor *logits, const Tensor *deltas, const Boxes *out) {
  size_t groups = out->groups, keys = (size_t)logits[0].n * anchors->total;
  size_t counters = (groups * BINS + groups) * sizeof(int);
  Key *workspace = (Key *)device_workspace(dev, keys * sizeof(Key) + counters);
  if (!workspace) return;
  CHECK(out->groups == logits[0].n * anchors->levels && deltas[0].dtype == logits[0].dtype);
  int *bins = (int *)(workspace + keys);
  RpnLists lists = {workspace, bins, bins + groups * BINS};
  RpnMaps m = {*anchors, images, {}, {}};
  int chunks = 1;
  for (int l = 0; l < anchors->levels; l++) {
    const AnchorLevel *level = &anchors->level[l];
    m.logits[l] = logits[l];
    m.deltas[l] = deltas[l];
    chunks = MAX(chunks, blocks_for((size_t)level->h * level->w * anchors->per_cell, CHUNK));
  }
  int best_slots = MIN(2 * sort_slots(out->capacity), MAX(sort_slots(out->capacity), 4096));
  size_t shared = best_slots * sizeof(Key);
  cudaStream_t stream = stream_of(dev);
  CUDA_CHECK(cudaMemsetAsync(bins, 0, counters, stream));
  dim3 grid(chunks, out->groups);
  WITH_TYPE(logits[0].dtype, T, {
    rpn_histogram_kernel<T><<<grid, SELECT_THREADS, 0, stream>>>(m, lists);
    LAUNCH_CHECK();
    rpn_compact_kernel<T><<<grid, SELECT_THREADS, 0, stream>>>(m, lists, out->capacity);
    LAUNCH_CHECK();
    allow_shared(rpn_select_kernel<T>, shared);
    rpn_select_kernel<T><<<out->groups, SELECT_THREADS, shared, stream>>>(*p, m, lists, *out, best_slots);
    LAUNCH_CHECK();
  })
}

// ---- merging --------------------------------------------------------------------------------------------------------

enum { MERGE_AT_ONCE = 4 }; // slots of a thread whose loads are under way together

// out [groups / per, capacity] = the best boxes of `per` groups each, where these are many (few: boxes_rank.cuh):
// compaction of the valid rows, radix select, bitonic sort, gather. One threadblock per group of `out`. The inputs are
// sorted already, but by logits: neither equal scores nor, strictly, different ones have to be in order. So everything
// is selected and sorted anew instead of merged. Dynamic shared memory: keys and rows of the best; then of all, unless
// lists, list_rows are where there is room for them. Bound by latency: of a dozen barriers for each of four passes, and
// of those of the sort.
__global__ void __launch_bounds__(SELECT_THREADS)
    boxes_merge_kernel(int per, Boxes in, Boxes out, Key *lists, int *list_rows, int best_slots) {
  extern __shared__ Key best[];
  __shared__ int listed;
  int group = blockIdx.x, slots = per * in.capacity;
  size_t first_slot = (size_t)group * slots;
  Key *list = lists ? lists + first_slot : best + best_slots;
  int *best_row = (int *)(best + best_slots + (lists ? 0 : slots));
  int *rows = lists ? list_rows + first_slot : best_row + best_slots;
  const float *score = (const float *)in.score.data;
  if (threadIdx.x == 0) listed = 0;
  __syncthreads();
  for (int first = 0; first < slots; first += MERGE_AT_ONCE * SELECT_THREADS) { // whole warps at a time
    Key keys[MERGE_AT_ONCE];
    bool valid[MERGE_AT_ONCE];
#pragma unroll
    for (int k = 0; k < MERGE_AT_ONCE; k++) {
      int slot = first + k * SELECT_THREADS + threadIdx.x;
      valid[k] = slot < slots && slot % in.capacity < in.count[group * per + slot / in.capacity];
      if (valid[k]) keys[k] = key_make(rank_descending(score[first_slot + slot]), in.index[first_slot + slot]);
    }
#pragma unroll
    for (int k = 0; k < MERGE_AT_ONCE; k++) {
      int at = warp_append(valid[k], &listed);
      if (!valid[k]) continue;
      list[at] = keys[k];
      rows[at] = first + k * SELECT_THREADS + threadIdx.x;
    }
  }
  __syncthreads();
  int n = block_topk(list, rows, listed, out.capacity, best, best_row);
  block_sort(best, best_row, n);
  for (int i = threadIdx.x; i < n; i += SELECT_THREADS) {
    size_t row = first_slot + best_row[i];
    put_box(out, group, i, load_box(in.box, row), score[row], in.index[row]);
  }
  if (threadIdx.x == 0) out.count[group] = n;
}

extern "C" void cuda_boxes_merge(Device *dev, int per, const Boxes *in, const Boxes *out) {
  size_t item = sizeof(Key) + sizeof(int), slots = (size_t)per * in->capacity, all = slots * out->groups;
  if (per <= RANK_PER && slots <= RANK_SLOTS) {
    if (dev->measuring) return;
    CHECK(in->groups == out->groups * per);
    allow_shared(boxes_rank_kernel, (slots + 2) * sizeof(Key));
    boxes_rank_kernel<<<dim3(MAX(blocks_for(slots, RANK_BOXES), 1), out->groups), RANK_THREADS,
                        (slots + 2) * sizeof(Key), stream_of(dev)>>>(per, *in, *out);
    LAUNCH_CHECK();
    return;
  }
  int best_slots = sort_slots(out->capacity), most;
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev->index));
  size_t shared = best_slots * item;
  Key *list = NULL;
  if (shared + slots * item + 4096 <= (size_t)most) // 4 KB: the kernel's own
    shared += slots * item;
  else
    list = (Key *)device_workspace(dev, all * item);
  if (dev->measuring) return;
  CHECK(in->groups == out->groups * per);
  allow_shared(boxes_merge_kernel, shared);
  boxes_merge_kernel<<<out->groups, SELECT_THREADS, shared, stream_of(dev)>>>(
      per, *in, *out, list, list ? (int *)(list + all) : NULL, best_slots);
  LAUNCH_CHECK();
}

// How many boxes of a sorted group rank before one of this score, by binary search.
static __device__ int boxes_before(const float *score, int count, float than, bool first_of_equals) {
  int low = 0, high = count;
  while (low < high) {
    int i = (low + high) / 2;
    if (score[i] > than || (score[i] == than && first_of_equals))
      low = i + 1;
    else
      high = i;
  }
  return low;
}

// Shortens sorted groups so that the `limit` best boxes of all of them remain. A warp takes a group and searches it for
// the first box that ranks too low; for the rank of a box each lane searches every 32nd of the other groups, and the
// warp reduces. One threadblock, which holds the new counts in shared memory until none of the old ones is read any
// more.
__global__ void __launch_bounds__(SELECT_THREADS) boxes_cut_kernel(int limit, Boxes boxes) {
  extern __shared__ int cut[]; // [groups]
  const float *score = (const float *)boxes.score.data;
  int lane = threadIdx.x % 32;
  for (int group = threadIdx.x / 32; group < boxes.groups; group += SELECT_THREADS / 32) {
    int low = 0, high = boxes.count[group];
    while (low < high) {
      int i = (low + high) / 2, rank = 0;
      float mine = score[(size_t)group * boxes.capacity + i];
      for (int g = lane; g < boxes.groups; g += 32)
        if (g != group) rank += boxes_before(score + (size_t)g * boxes.capacity, boxes.count[g], mine, g < group);
      if (i + (int)__reduce_add_sync(~0u, (unsigned)rank) < limit)
        low = i + 1;
      else
        high = i;
    }
    if (lane == 0) cut[group] = low;
  }
  __syncthreads();
  for (int g = threadIdx.x; g < boxes.groups; g += SELECT_THREADS) boxes.count[g] = cut[g];
}

extern "C" void cuda_boxes_cut(Device *dev, int limit, const Boxes *boxes) {
  if (dev->measuring) return;
  boxes_cut_kernel<<<1, SELECT_THREADS, boxes->groups * sizeof(int), stream_of(dev)>>>(limit, *boxes);
  LAUNCH_CHECK();
}

// Copies the valid rows of all groups, in [groups, capacity], to the front of one list, out [rois], order kept. One
// threadblock per group, which finds its first row by reducing the counts before it: an exclusive prefix sum without a
// kernel of its own.
__global__ void rois_compact_kernel(Boxes in, Rois out) {
  int group = blockIdx.x, mine = in.count[group], before = 0;
  for (int g = threadIdx.x; g < group; g += blockDim.x) before += in.count[g];
  before = block_sum(before);
  for (int i = threadIdx.x; i < mine; i += blockDim.x) {
    store_box(out.box, before + i, load_box(in.box, (size_t)group * in.capacity + i));
    out.image[before + i] = group;
  }
  if (threadIdx.x == 0 && group == in.groups - 1) *out.count = before + mine;
}

extern "C" void cuda_rois_compact(Device *dev, const Boxes *in, const Rois *out) {
  if (dev->measuring) return;
  CHECK(out->capacity >= in->groups * in->capacity);
  rois_compact_kernel<<<in->groups, 256, 0, stream_of(dev)>>>(*in, *out);
  LAUNCH_CHECK();
}

// ---- detections -----------------------------------------------------------------------------------------------------

// softmax [rois] = the maximum and sum of each RoI's softmax, from which the class kernel makes any probability, and
// first [images + 1] = where each image's RoIs begin. A warp per RoI, eight RoIs per threadblock; one coalesced read of
// the logits, of which the second loop's come from the cache.
template <class T>
__global__ void detect_softmax_kernel(Rois rois, int images, Tensor logits, Softmax *softmax, int *first) {
  int roi = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, count = *rois.count;
  if (roi > count) return;
  int before = roi ? rois.image[roi - 1] : -1, image = roi < count ? rois.image[roi] : images;
  for (int i = before + 1 + lane; i <= image; i += 32) first[i] = roi;
  if (roi == count) return;
  Softmax s = warp_softmax(pixel<T>(logits, roi, 0, 0), logits.c, [](float x) { return geometry_exp(x); });
  if (lane == 0) softmax[roi] = s;
}

struct DetectArgs { // the box head's outputs
  Rois rois;
  const ImageInfo *images;
  Tensor logits, deltas;
  const Softmax *softmax;
  const int *first; // [images + 1] RoI
};

// The RoI, regressed by the deltas of its class and clipped to the image.
template <class T>
static __device__ __forceinline__ Box detection_box(const Detect &p, const DetectArgs &h, int roi, int image,
                                                    int label) {
  return decode_inside(p.coder, load_box(h.rois.box, roi), pixel<T>(h.deltas, roi, 0, 0) + 4 * label, h.images[image]);
}

// The detections of each image and class, best first: score threshold and size filter, compaction, radix select,
// bitonic sort, decoding. One threadblock per (image, class), a thread per RoI. Where all RoIs of the image might be
// among the best, which is what networks have room for, their keys are listed where they are sorted; else in a row of
// `lists` [classes - 1, rois], which the images of a class share: a RoI is of one image. The score threshold comes
// before decoding: of a hundred classes hardly any passes, so hardly any box is decoded.
template <class T>
__global__ void __launch_bounds__(CLASS_THREADS)
    detect_class_kernel(Detect p, const __grid_constant__ DetectArgs h, Boxes out, Key *lists) {
  extern __shared__ Key best[];
  __shared__ int listed;
  int classes = h.logits.c, group = blockIdx.x, image = group / (classes - 1), label = group % (classes - 1) + 1;
  int begin = h.first[image], end = h.first[image + 1];
  bool all = end - begin <= out.capacity;
  Key *list = all ? best : lists + (size_t)(label - 1) * h.rois.capacity + begin;
  if (threadIdx.x == 0) listed = 0;
  __syncthreads();
  for (int first = begin; first < end; first += CLASS_THREADS) { // whole warps at a time
    int roi = first + threadIdx.x;
    bool keep = roi < end;
    float score = 0;
    if (keep) {
      score = softmax_prob(h.softmax[roi], to_float(pixel<T>(h.logits, roi, 0, 0)[label]));
      keep = score > p.min_score && box_reaches(detection_box<T>(p, h, roi, image, label), p.min_size, p.coder.extra);
    }
    int slot = warp_append(keep, &listed);
    if (keep) list[slot] = key_make(rank_descending(score), roi);
  }
  __syncthreads();
  int n = all ? listed : block_topk(list, NULL, listed, out.capacity, best, NULL);
  block_sort(best, NULL, n);
  for (int i = threadIdx.x; i < n; i += CLASS_THREADS) {
    int roi = key_index(best[i]);
    put_box(out, group, i, detection_box<T>(p, h, roi, image, label), rank_value(key_rank(best[i])),
            roi * classes + label);
  }
  if (threadIdx.x == 0) out.count[group] = n;
}

extern "C" void cuda_detect_select(Device *dev, const Detect *p, const ImageInfo *images, int num_images,
                                   const Rois *rois, const Tensor *logits, const Tensor *deltas, const Boxes *out) {
  size_t keys = (size_t)(logits->c - 1) * rois->capacity;
  size_t bytes = keys * sizeof(Key) + rois->capacity * sizeof(Softmax) + (num_images + 1) * sizeof(int);
  Key *lists = (Key *)device_workspace(dev, bytes);
  if (!lists) return;
  CHECK(out->groups == num_images * (logits->c - 1) && deltas->c == 4 * logits->c && deltas->dtype == logits->dtype);
  Softmax *softmax = (Softmax *)(lists + keys);
  int *first = (int *)(softmax + rois->capacity);
  DetectArgs h = {*rois, images, *logits, *deltas, softmax, first};
  size_t shared = sort_slots(out->capacity) * sizeof(Key);
  WITH_TYPE(logits->dtype, T, {
    detect_softmax_kernel<T>
        <<<blocks_for(rois->capacity + 1, 8), 256, 0, stream_of(dev)>>>(*rois, num_images, *logits, softmax, first);
    LAUNCH_CHECK();
    allow_shared(detect_class_kernel<T>, shared);
    detect_class_kernel<T><<<out->groups, CLASS_THREADS, shared, stream_of(dev)>>>(*p, h, *out, lists);
    LAUNCH_CHECK();
  })
}
