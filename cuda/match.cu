// Matching anchors and RoIs with the ground truth by IoU, and sampling positives and negatives to train on. Ren et al.,
// "Faster R-CNN", 2015, section 3.1.2; torchvision's Matcher and BalancedPositiveNegativeSampler. No matrix of
// candidates × objects is stored: each candidate's best match is found in registers, each object's best IoU by integer
// atomic maxima, which no order of threads changes. A random sample is the top-k by random number. In the code a
// positive is an `object`, a negative `background`.
#include "cuda/box.cuh"
#include "cuda/topk.cuh"
#include "exact/matching.h"

enum { MATCH_THREADS = 256, SAMPLE_THREADS = 1024, PER_THREAD = 8, CHUNK = SAMPLE_THREADS * PER_THREAD };
enum { BACKGROUND = -1, IGNORED = -2 }; // a candidate's match, or else the ground truth's number in its image
enum { OBJECTS, OTHERS, LISTS };        // candidates to sample from: positives and negatives

// Object g of an image.
static __device__ __forceinline__ Box truth_box(const Truth &t, int image, int g) {
  return load_box(t.box, (size_t)image * t.capacity + g);
}
// The same, half-open.
static __device__ __forceinline__ Box truth_span(const Truth &t, int image, int g, float extra) {
  return box_span(truth_box(t, image, g), extra);
}

// A random sample without replacement: the k candidates with the smallest random numbers of a list of n, as their own
// numbers, ascending, in shared memory. Every thread of the threadblock calls it; returns how many there are. No thread
// writes to `best` before all have arrived, so that it may hold the sample before.
static __device__ int list_sample(const Key *list, int n, int k, Key *best) {
  int taken = block_topk(list, NULL, n, k, best, NULL);
  for (int i = threadIdx.x; i < taken; i += blockDim.x) best[i] = key_index(best[i]);
  block_sort(best, NULL, taken);
  return taken;
}

// ---- anchors --------------------------------------------------------------------------------------------------------

struct RpnWork { // the workspace
  Key *key;      // [images, LISTS, anchors]
  float *iou;    // [images, anchors] the best
  int *match;    // [images, anchors] its object; then what the anchor is
  int *bins;     // [images, LISTS, BINS]
  int *count;    // [images, LISTS]
  int *reached;  // [images, truth.capacity] the best IoU that any anchor has with the object, as bits: they order alike
};

// Each anchor's best match, work.iou and work.match [images, anchors], and each object's best IoU over all anchors,
// work.reached [images, objects]. Grid (anchors, images), a thread per anchor; the objects pass through shared memory,
// a tile of 256 at a time, so that each is loaded once per threadblock. Anchors × objects IoUs, bound by arithmetic;
// atomics go to shared memory first, one per object and threadblock goes to global memory.
__global__ void __launch_bounds__(MATCH_THREADS) rpn_match_kernel(float extra, const __grid_constant__ Anchors anchors,
                                                                  const ImageInfo *images, Truth truth, RpnWork work) {
  __shared__ Box object[MATCH_THREADS]; // spans
  __shared__ int reached[MATCH_THREADS];
  int image = blockIdx.y, anchor = blockIdx.x * MATCH_THREADS + threadIdx.x, objects = truth.count[image];
  if (images[image].h == 0) return;
  // Past the last anchor: the last once more, not written, so that every thread meets the barriers.
  Box box = box_span(anchor_box(&anchors, min(anchor, anchors.total - 1)), extra);
  Match best = {-1, 0};
  for (int first = 0; first < objects; first += MATCH_THREADS) {
    int tile = min(MATCH_THREADS, objects - first);
    __syncthreads();
    if (threadIdx.x < tile) object[threadIdx.x] = truth_span(truth, image, first + threadIdx.x, extra);
    reached[threadIdx.x] = 0;
    __syncthreads();
    for (int g = 0; g < tile; g++) {
      float iou = box_iou(box, object[g]);
      if (iou > best.iou) best = {iou, first + g};
      // Mostly there is no overlap. A value read too early costs an atomic, nothing else.
      if (iou > __int_as_float(reached[g])) atomicMax(&reached[g], __float_as_int(iou));
    }
    __syncthreads();
    if (threadIdx.x < tile && reached[threadIdx.x] > 0)
      atomicMax(&work.reached[(size_t)image * truth.capacity + first + threadIdx.x], reached[threadIdx.x]);
  }
  if (anchor >= anchors.total) return;
  work.iou[(size_t)image * anchors.total + anchor] = best.iou;
  work.match[(size_t)image * anchors.total + anchor] = best.truth;
}

// The lowest of the objects' best IoUs, over the threadblock: below it no anchor can reach any.
static __device__ float least_reached(const int *reached, int objects) {
  __shared__ int least;
  if (threadIdx.x == 0) least = __float_as_int(INFINITY);
  __syncthreads();
  for (int g = threadIdx.x; g < objects; g += blockDim.x) atomicMin(&least, reached[g]);
  __syncthreads();
  return __int_as_float(least);
}

// Low-quality matches (allow_low_quality_matches): whether the anchor has the best IoU that any anchor has with some
// object. An object that no anchor overlaps is reached by none.
static __device__ bool reaches_best(Box anchor, float extra, const Truth &truth, int image, const int *reached) {
  Box span = box_span(anchor, extra);
  for (int g = 0; g < truth.count[image]; g++) {
    float iou = box_iou(span, truth_span(truth, image, g, extra));
    if (iou > 0 && iou == __int_as_float(reached[g])) return true;
  }
  return false;
}

// A candidate's random number, a pure function of the image's key and its own number, as a key to select by.
static __device__ __forceinline__ Key sample_key(uint64_t key, int candidate) {
  return key_make(rng_u32(key, candidate), candidate);
}

// Labels each anchor positive, negative or ignored, given the best IoU of every object, and builds the histograms of
// the positives' and the negatives' random numbers. Grid (chunks of CHUNK anchors, images); reads two words per anchor
// and computes IoUs only for those that could be low-quality matches, so that the random numbers' integer arithmetic is
// most of the work.
__global__ void __launch_bounds__(SAMPLE_THREADS, 1)
    rpn_classify_kernel(RpnMatch p, const __grid_constant__ Anchors anchors, const ImageInfo *images, Truth truth,
                        RpnWork work) {
  __shared__ int bins[LISTS][BINS];
  int image = blockIdx.y, first = blockIdx.x * CHUNK;
  ImageInfo info = images[image];
  if (info.h == 0) return;
  for (int list = 0; list < LISTS; list++) bins_clear(bins[list]);
  const int *reached = work.reached + (size_t)image * truth.capacity;
  float least = least_reached(reached, truth.count[image]);
  uint64_t key = rng_key(info.key, RNG_RPN);
  for (int i = first + threadIdx.x; i < min(first + CHUNK, anchors.total); i += SAMPLE_THREADS) {
    size_t at = (size_t)image * anchors.total + i;
    float iou = work.iou[at];
    bool object = iou >= p.high, ignored = p.inside && !box_inside(anchor_box(&anchors, i), info.rh, info.rw);
    if (!object && p.low_quality && iou > 0 && iou >= least)
      object = reaches_best(anchor_box(&anchors, i), p.coder.extra, truth, image, reached);
    ignored |= !object && !(iou < p.low);
    if (ignored || !object) work.match[at] = ignored ? IGNORED : BACKGROUND;
    if (!ignored) atomicAdd(&bins[object ? OBJECTS : OTHERS][key_bin(sample_key(key, i))], 1);
  }
  for (int list = 0; list < LISTS; list++) bins_add(bins[list], work.bins + ((size_t)image * LISTS + list) * BINS);
}

// Compaction: positives and negatives whose random numbers are small enough by the histogram, as keys into work.key
// [images, LISTS, anchors], in no order. The grid of the classification; one global atomic per warp that keeps any. How
// many negatives are wanted depends on the positives sampled; never more than the batch.
__global__ void __launch_bounds__(SAMPLE_THREADS)
    rpn_thin_kernel(int most_objects, int batch, int total, const ImageInfo *images, RpnWork work) {
  int image = blockIdx.y, first = blockIdx.x * CHUNK, last[LISTS];
  if (images[image].h == 0) return;
  for (int list = 0; list < LISTS; list++)
    last[list] = bins_last(work.bins + ((size_t)image * LISTS + list) * BINS, list == OBJECTS ? most_objects : batch);
  uint64_t key = rng_key(images[image].key, RNG_RPN);
  for (int k = 0; k < PER_THREAD; k++) { // whole warps at a time
    int i = first + k * SAMPLE_THREADS + threadIdx.x;
    int match = i < total ? work.match[(size_t)image * total + i] : IGNORED;
    Key mine = sample_key(key, i);
    for (int list = 0; list < LISTS; list++) {
      bool keep = (list == OBJECTS ? match >= 0 : match == BACKGROUND) && key_bin(mine) <= last[list];
      int slot = warp_append(keep, &work.count[image * LISTS + list]);
      if (keep) work.key[((size_t)image * LISTS + list) * total + slot] = mine;
    }
  }
}

// The sample of each image: radix select and sort of the positives, then of as many negatives as they leave room for,
// and the regression targets of the positives. One threadblock per image: a few hundred keys, so that the barriers of
// select and sort bound it.
__global__ void __launch_bounds__(SAMPLE_THREADS)
    rpn_sample_kernel(int most_objects, BoxCoder coder, const __grid_constant__ Anchors anchors, Truth truth,
                      RpnWork work, RpnTargets out) {
  extern __shared__ Key best[];
  int image = blockIdx.x, total = anchors.total;
  size_t first = (size_t)image * out.batch;
  const Key *list = work.key + (size_t)image * LISTS * total;
  const int *count = work.count + image * LISTS; // none of an empty slot of the batch
  int objects = list_sample(list, count[OBJECTS], most_objects, best);
  for (int i = threadIdx.x; i < objects; i += SAMPLE_THREADS) {
    int anchor = key_index(best[i]), g = work.match[(size_t)image * total + anchor];
    out.index[first + i] = anchor;
    box_encode(&coder, anchor_box(&anchors, anchor), truth_box(truth, image, g),
               (float *)out.delta.data + 4 * (first + i));
  }
  int others = list_sample(list + total, count[OTHERS], out.batch - objects, best);
  for (int i = threadIdx.x; i < others; i += SAMPLE_THREADS) out.index[first + objects + i] = key_index(best[i]);
  if (threadIdx.x > 0) return;
  out.positives[image] = objects;
  out.count[image] = objects + others;
}

extern "C" void cuda_rpn_match(Device *dev, const RpnMatch *p, const Anchors *anchors, const ImageInfo *images,
                               const Truth *truth, const RpnTargets *out) {
  size_t n = out->images, all = n * anchors->total;
  size_t zeroed = n * (LISTS * BINS + LISTS + truth->capacity) * sizeof(int);
  RpnWork work;
  work.key = (Key *)device_workspace(dev, all * (LISTS * sizeof(Key) + sizeof(float) + sizeof(int)) + zeroed);
  if (!work.key) return;
  CHECK(p->batch == out->batch && p->positive <= 1);
  work.iou = (float *)(work.key + LISTS * all);
  work.match = (int *)(work.iou + all);
  work.bins = work.match + all;
  work.count = work.bins + n * LISTS * BINS;
  work.reached = work.count + n * LISTS;
  int most_objects = most_positives(p->batch, p->positive);
  size_t shared = sort_slots(p->batch) * sizeof(Key);
  dim3 by_anchor(blocks_for(anchors->total, MATCH_THREADS), out->images);
  dim3 by_chunk(blocks_for(anchors->total, CHUNK), out->images);
  cudaStream_t stream = stream_of(dev);
  CUDA_CHECK(cudaMemsetAsync(work.bins, 0, zeroed, stream));
  rpn_match_kernel<<<by_anchor, MATCH_THREADS, 0, stream>>>(p->coder.extra, *anchors, images, *truth, work);
  LAUNCH_CHECK();
  rpn_classify_kernel<<<by_chunk, SAMPLE_THREADS, 0, stream>>>(*p, *anchors, images, *truth, work);
  LAUNCH_CHECK();
  rpn_thin_kernel<<<by_chunk, SAMPLE_THREADS, 0, stream>>>(most_objects, p->batch, anchors->total, images, work);
  LAUNCH_CHECK();
  allow_shared(rpn_sample_kernel, shared);
  rpn_sample_kernel<<<out->images, SAMPLE_THREADS, shared, stream>>>(most_objects, p->coder, *anchors, *truth, work,
                                                                     *out);
  LAUNCH_CHECK();
}

// ---- RoIs -----------------------------------------------------------------------------------------------------------

struct RoiWork {  // the workspace
  int candidates; // per image at most: proposals, then ground truth
  Key *key;       // [images, LISTS, candidates]
  int *match;     // [images, candidates]
  int *sampled;   // [images, batch] candidates: objects, then background
  int2 *count;    // [images] objects and all of them
};

// Candidate i of an image: its proposals, then its ground truth, as torchvision's add_gt_proposals appends it.
static __device__ __forceinline__ Box candidate_box(const Boxes &proposals, const Truth &truth, int image, int i) {
  int count = proposals.count[image];
  return i < count ? load_box(proposals.box, (size_t)image * proposals.capacity + i)
                   : truth_box(truth, image, i - count);
}

// The object that overlaps the box most.
static __device__ Match best_match(Box box, float extra, const Truth &truth, int image) {
  Match best = {-1, 0};
  Box span = box_span(box, extra);
  for (int g = 0; g < truth.count[image]; g++) {
    float iou = box_iou(span, truth_span(truth, image, g, extra));
    if (iou > best.iou) best = {iou, g};
  }
  return best;
}

// Matches the candidates of each image and samples its RoIs, positives first, into work.sampled [images, batch]. One
// threadblock per image, a thread per candidate: some two thousand candidates need no histogram. Only as many SMs work
// as there are images; with the gather it takes 0.03 ms for four (results/profile-b4-h200.txt).
__global__ void __launch_bounds__(SAMPLE_THREADS)
    roi_sample_kernel(RoiSample p, int most_objects, const ImageInfo *images, Boxes proposals, Truth truth,
                      RoiWork work) {
  extern __shared__ Key best[];
  __shared__ int listed[LISTS];
  int image = blockIdx.x, *match = work.match + (size_t)image * work.candidates;
  int candidates = images[image].h > 0 ? proposals.count[image] + truth.count[image] : 0;
  Key *list = work.key + (size_t)image * LISTS * work.candidates;
  uint64_t key = rng_key(images[image].key, RNG_ROI);
  if (threadIdx.x < LISTS) listed[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < candidates; i += SAMPLE_THREADS) {
    Match m = best_match(candidate_box(proposals, truth, image, i), p.coder.extra, truth, image);
    bool object = m.iou >= p.high;
    match[i] = m.truth;
    if (!object && !(m.iou < p.low)) continue;
    int group = object ? OBJECTS : OTHERS;
    list[(size_t)group * work.candidates + atomicAdd(&listed[group], 1)] = key_make(rng_u32(key, i), i);
  }
  __syncthreads();
  int *sampled = work.sampled + (size_t)image * p.batch;
  int objects = list_sample(list, listed[OBJECTS], most_objects, best);
  for (int i = threadIdx.x; i < objects; i += SAMPLE_THREADS) sampled[i] = key_index(best[i]);
  int others = list_sample(list + work.candidates, listed[OTHERS], p.batch - objects, best);
  for (int i = threadIdx.x; i < others; i += SAMPLE_THREADS) sampled[objects + i] = key_index(best[i]);
  if (threadIdx.x == 0) work.count[image] = make_int2(objects, objects + others);
}

// Gathers the images' samples into the lists of the whole batch, with labels and regression targets. One threadblock
// per image; it adds up the counts of the images before it, which is a prefix sum over a handful of numbers.
__global__ void roi_append_kernel(RoiSample p, Boxes proposals, Truth truth, RoiWork work, RoiTargets out) {
  int image = blockIdx.x, first = 0, first_object = 0;
  for (int n = 0; n < image; n++) {
    first_object += work.count[n].x;
    first += work.count[n].y;
  }
  int2 mine = work.count[image];
  for (int i = threadIdx.x; i < mine.y; i += blockDim.x) {
    int candidate = work.sampled[(size_t)image * p.batch + i], row = first + i;
    Box box = candidate_box(proposals, truth, image, candidate);
    store_box(out.rois.box, row, box);
    out.rois.image[row] = image;
    out.label[row] = 0;
    if (i >= mine.x) continue;
    int g = work.match[(size_t)image * work.candidates + candidate], truth_row = image * truth.capacity + g;
    int object = first_object + i;
    store_box(out.objects.box, object, box);
    out.objects.image[object] = image;
    out.object_truth[object] = truth_row;
    int label = truth.label[truth_row];
    out.object_label[object] = label;
    out.label[row] = label;
    box_encode(&p.coder, box, truth_box(truth, image, g), (float *)out.delta.data + 4 * (size_t)row);
  }
  if (threadIdx.x > 0 || image < truth.images - 1) return;
  *out.objects.count = first_object + mine.x;
  *out.rois.count = first + mine.y;
}

extern "C" void cuda_roi_sample(Device *dev, const RoiSample *p, const ImageInfo *images, const Boxes *proposals,
                                const Truth *truth, const RoiTargets *out) {
  RoiWork work = {proposals->capacity + truth->capacity};
  size_t n = truth->images, all = n * work.candidates;
  size_t bytes = all * (LISTS * sizeof(Key) + sizeof(int)) + n * (sizeof(int2) + p->batch * sizeof(int));
  work.key = (Key *)device_workspace(dev, bytes);
  if (!work.key) return;
  int most_objects = most_positives(p->batch, p->positive);
  CHECK(proposals->groups == truth->images && p->positive <= 1);
  CHECK(out->rois.capacity >= truth->images * p->batch && out->objects.capacity >= truth->images * most_objects);
  work.count = (int2 *)(work.key + LISTS * all);
  work.match = (int *)(work.count + n);
  work.sampled = work.match + all;
  size_t shared = sort_slots(p->batch) * sizeof(Key);
  allow_shared(roi_sample_kernel, shared);
  roi_sample_kernel<<<truth->images, SAMPLE_THREADS, shared, stream_of(dev)>>>(*p, most_objects, images, *proposals,
                                                                               *truth, work);
  LAUNCH_CHECK();
  roi_append_kernel<<<truth->images, 256, 0, stream_of(dev)>>>(*p, *proposals, *truth, work, *out);
  LAUNCH_CHECK();
}
