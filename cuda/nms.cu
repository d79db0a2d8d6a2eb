// NMS (greedy non-maximum suppression) within groups: image and level or class, so that boxes need no coordinate
// offsets. Two ways to the same survivors. Where most boxes may survive: bitmask NMS (torchvision's nms_kernel_impl,
// Girshick's before it), the overlaps of all pairs as bits by many threadblocks, then the greedy scan over those bits
// by one threadblock per group. Where the capacity is small: one threadblock per group, which compares each box with
// the survivors before it, and stops with the last that finds room. Either goes tile by tile, 64 boxes at a time.
#include <cuda_pipeline.h>
#include "cuda/box.cuh"

typedef unsigned long long Word; // one bit a box of a tile
enum {
  TILE = 64,
  OVERLAP_THREADS = 256,
  RESOLVE_THREADS = 512,
  STAGES = 3, // tiles of the bitmask in shared memory
  FEW_THREADS = 256,
  PARTS = FEW_THREADS / TILE, // threads that share the comparisons of a box
};

// Row of the i-th best box of a group.
static __device__ __forceinline__ size_t group_row(const Boxes &b, int group, int i) {
  return (size_t)group * b.capacity + i;
}

// ---- a tile ---------------------------------------------------------------------------------------------------------

static __device__ __forceinline__ Word first_bits(int n) { return n < TILE ? ((Word)1 << n) - 1 : ~(Word)0; }

// A vote with one bit per row of a tile: lane i answers for rows i and i + 32. Every lane of the warp calls it.
static __device__ __forceinline__ Word tile_ballot(bool low, bool high) {
  return __ballot_sync(~0u, low) | (Word)__ballot_sync(~0u, high) << 32;
}

// Greedy suppression within a tile by one warp: of the boxes `open` those that survive, a box doing so if no survivor
// before it overlaps it. overlaps[0], [1]: bits of this lane's two rows. Instead of box after box, every round keeps
// all boxes that no undecided or kept box before them overlaps, then drops what those overlap; it decides at least the
// first open box, mostly all of them. Every lane of the warp calls it.
static __device__ Word resolve_tile(Word open, const Word overlaps[2]) {
  int lane = threadIdx.x % 32;
  Word low = overlaps[0] & first_bits(lane), high = overlaps[1] & first_bits(lane + 32), kept = 0;
  while (open) {
    bool low_open = open >> lane & 1, high_open = open >> (lane + 32) & 1;
    Word safe = tile_ballot(low_open && !(low & (open | kept)), high_open && !(high & (open | kept)));
    kept |= safe;
    open &= ~safe & ~tile_ballot(low_open && (low & kept), high_open && (high & kept));
  }
  return kept;
}

// A box as overlaps are found from it.
struct BoxSpan {
  alignas(16) Box box;
  float area;
};
static __device__ __forceinline__ BoxSpan span_of(const Nms &p, const Box &b) {
  Box span = box_span(b, p.extra);
  return {span, box_area(span)};
}

// Whether box_iou(a, b) may be above the threshold, by box_iou's own sums and without its quotient: what is above the
// threshold when rounded is above it by more than the product's rounding, unless that underflows. A negative
// threshold, which no overlap at all exceeds, is left to box_iou.
static __device__ __forceinline__ bool may_overlap(const Nms &p, const BoxSpan &a, const BoxSpan &b) {
  float w = (b.box.x2 < a.box.x2 ? b.box.x2 : a.box.x2) - (b.box.x1 > a.box.x1 ? b.box.x1 : a.box.x1);
  float h = (b.box.y2 < a.box.y2 ? b.box.y2 : a.box.y2) - (b.box.y1 > a.box.y1 ? b.box.y1 : a.box.y1);
  float both = w * h, either = a.area + b.area - both;
  return (w > 0 & h > 0 & (both > either * (p.threshold * (1 - 0x1p-20f)) | either < 1e-30f)) | p.threshold < 0;
}
static __device__ __forceinline__ bool overlaps(const Nms &p, const BoxSpan &a, const BoxSpan &b) {
  return may_overlap(p, a, b) && box_iou(a.box, b.box) > p.threshold;
}

// Bit j: whether box j of a tile overlaps this one. First the many that do not are told from the few that may, without
// a branch.
static __device__ __forceinline__ Word overlaps_of(const Nms &p, const BoxSpan &mine, const BoxSpan *tile) {
  Word may = 0, overlapping = 0;
#pragma unroll 1
  for (int first = 0; first < TILE; first += 16) {
    unsigned some = 0;
#pragma unroll
    for (int j = 0; j < 16; j++) some |= may_overlap(p, mine, tile[first + j]) ? 1u << j : 0;
    may |= (Word)some << first;
  }
  for (Word left = may; left; left &= left - 1) {
    int j = __ffsll(left) - 1;
    if (box_iou(mine.box, tile[j].box) > p.threshold) overlapping |= (Word)1 << j;
  }
  return overlapping;
}

static __device__ __forceinline__ Word keep_first(Word set, int n) {
  for (int extra = __popcll(set) - n; extra > 0; extra--) set &= first_bits(63 - __clzll(set));
  return set;
}

// What a thread copies of its row if the row survives; loaded a tile ahead, so that no tile waits for it.
struct NmsRow {
  Box box;
  float score;
  int index;
};
static __device__ __forceinline__ NmsRow load_row(const Boxes &in, int group, int i, int n) {
  size_t row = group_row(in, group, max(min(i, n - 1), 0));
  return {load_box(in.box, row), ((const float *)in.score.data)[row], in.index[row]};
}
static __device__ __forceinline__ void store_row(const Boxes &out, int group, int i, const NmsRow &r) {
  size_t row = group_row(out, group, i);
  store_box(out.box, row, r.box);
  ((float *)out.score.data)[row] = r.score;
  out.index[row] = r.index;
}

// ---- many survivors -------------------------------------------------------------------------------------------------

// The overlap bitmask, bits [groups, capacity, words]: bit j of word [row i, w] is set if box w·64 + j overlaps box i.
// Only the words from i's own tile on are written: the upper triangle, since box_iou is the same either way round. Grid
// (tiles of 64 rows, four words each, groups); a thread holds one row's box in registers and makes one word, all lanes
// from the same other boxes, a broadcast from shared memory. n² / 2 overlaps, bound by arithmetic; where there are few
// groups, by the latency of 64 of them.
__global__ void __launch_bounds__(OVERLAP_THREADS) nms_overlap_kernel(Nms p, Boxes in, Word *bits, int words) {
  __shared__ BoxSpan others[OVERLAP_THREADS];
  int tile = blockIdx.x, group = blockIdx.z, n = in.count[group], first = blockIdx.y * OVERLAP_THREADS;
  if (tile * TILE >= n || first >= n || first + OVERLAP_THREADS <= tile * TILE) return;
  int i = tile * TILE + threadIdx.x % TILE, other = first + threadIdx.x, w = other / TILE;
  others[threadIdx.x] = span_of(p, load_box(in.box, group_row(in, group, min(other, n - 1))));
  BoxSpan mine = span_of(p, load_box(in.box, group_row(in, group, min(i, n - 1))));
  __syncthreads();
  if (w < tile || w * TILE >= n || i >= n) return;
  bits[group_row(in, group, i) * words + w] =
      overlaps_of(p, mine, others + threadIdx.x / TILE * TILE) & first_bits(n - w * TILE);
}

// Pitch of a row of bits in shared memory: odd, so that a column of 32 rows lies in as many banks.
static __host__ __device__ __forceinline__ int stage_pitch(int words) { return words | 1; }

// Starts the copy of a tile's words, from its own on, to its stage.
static __device__ __forceinline__ void stage_tile(const Word *bits, int words, int n, int tile, Word *stage) {
  int pitch = stage_pitch(words), tiles = (n + TILE - 1) / TILE;
  int rows = min(TILE, n - tile * TILE), lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < rows; i += RESOLVE_THREADS / 32)
    for (int w = tile + lane; w < tiles; w += 32)
      __pipeline_memcpy_async(&stage[i * pitch + w], &bits[(size_t)(tile * TILE + i) * words + w], sizeof(Word));
}

// The greedy scan: survivors of each group, in order, at most out.capacity. One threadblock per group walks the tiles
// in order: a warp resolves the tile, two copy its survivors, then each warp ORs a column of the survivors' rows of the
// bitmask into what is suppressed behind the tile. Dynamic shared memory: that, a word per tile, then the bitmask's
// rows of STAGES tiles, so that they are there when they are needed (STAGED; where they do not fit, they are read where
// they lie). Sequential over tiles, and so bound by the latency of two barriers and a resolution per tile.
template <bool STAGED>
__global__ void __launch_bounds__(RESOLVE_THREADS)
    nms_resolve_kernel(Boxes in, Boxes out, const Word *all_bits, int words) {
  extern __shared__ Word gone[]; // [words] suppressed: overlapped by a survivor; [STAGES, TILE, pitch]
  __shared__ Word survivors;
  int group = blockIdx.x, n = in.count[group], tiles = (n + TILE - 1) / TILE, found = 0;
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pitch = STAGED ? stage_pitch(words) : words;
  const Word *bits = all_bits + group_row(in, group, 0) * words;
  Word *stages = gone + words;
  auto start = [&](int tile) {
    if (STAGED && tile < tiles) stage_tile(bits, words, n, tile, stages + tile % STAGES * TILE * pitch);
    __pipeline_commit();
  };
  for (int w = threadIdx.x; w < tiles; w += RESOLVE_THREADS) gone[w] = 0;
  for (int tile = 0; tile < STAGES - 1; tile++) start(tile);
  NmsRow next = {};
  if (threadIdx.x < TILE && n) next = load_row(in, group, threadIdx.x, n);
  for (int tile = 0; tile < tiles && found < out.capacity; tile++) {
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads(); // the tile's bits are there, the stage of the one before is free
    start(tile + STAGES - 1);
    const Word *row = STAGED ? stages + tile % STAGES * TILE * pitch : bits + (size_t)tile * TILE * words;
    int rows = min(TILE, n - tile * TILE);
    NmsRow mine = next;
    if (threadIdx.x < TILE) next = load_row(in, group, (tile + 1) * TILE + threadIdx.x, n);
    if (warp == 0) {
      Word overlaps[2];
      for (int k = 0; k < 2; k++) overlaps[k] = lane + 32 * k < rows ? row[(size_t)(lane + 32 * k) * pitch + tile] : 0;
      Word kept = resolve_tile(first_bits(rows) & ~gone[tile], overlaps);
      if (lane == 0) survivors = keep_first(kept, out.capacity - found);
    }
    __syncthreads();
    Word kept = survivors;
    for (int w = tile + 1 + warp; w < tiles; w += RESOLVE_THREADS / 32) {
      Word column = kept >> lane & 1 ? row[(size_t)lane * pitch + w] : 0;
      if (kept >> (lane + 32) & 1) column |= row[(size_t)(lane + 32) * pitch + w];
      unsigned low = __reduce_or_sync(~0u, (unsigned)column), high = __reduce_or_sync(~0u, (unsigned)(column >> 32));
      if (lane == 0) gone[w] |= (Word)high << 32 | low;
    }
    if (threadIdx.x < TILE && kept >> threadIdx.x & 1)
      store_row(out, group, found + __popcll(kept & first_bits(threadIdx.x)), mine);
    found += __popcll(kept);
  }
  __pipeline_wait_prior(0);
  if (threadIdx.x == 0) out.count[group] = found;
}

static void nms_many(Device *dev, const Nms *p, const Boxes *in, const Boxes *out) {
  int words = blocks_for(in->capacity, TILE);
  Word *bits = (Word *)device_workspace(dev, (size_t)in->groups * in->capacity * words * sizeof(Word));
  if (!bits) return;
  dim3 tiles(words, blocks_for(in->capacity, OVERLAP_THREADS), in->groups);
  CHECK(in->groups <= 65535); // of a grid
  nms_overlap_kernel<<<tiles, OVERLAP_THREADS, 0, stream_of(dev)>>>(*p, *in, bits, words);
  LAUNCH_CHECK();
  size_t least = words * sizeof(Word), staged = least + STAGES * TILE * stage_pitch(words) * sizeof(Word);
  int most;
  CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, dev->index));
  bool fits = staged + 1024 <= (size_t)most; // 1 KB: of the kernel's own
  auto kernel = fits ? nms_resolve_kernel<true> : nms_resolve_kernel<false>;
  size_t shared = fits ? staged : least;
  allow_shared(kernel, shared);
  kernel<<<in->groups, RESOLVE_THREADS, shared, stream_of(dev)>>>(*in, *out, bits, words);
  LAUNCH_CHECK();
}

// ---- few survivors --------------------------------------------------------------------------------------------------

// Survivors of each group, in order, at most out.capacity. One threadblock per group walks the tiles in order: four
// threads share a box, compare it with every survivor so far and with the boxes before it in the tile, every fourth
// one each, all lanes with the same one, a broadcast from shared memory; then a warp resolves the tile. Dynamic shared
// memory: the survivors' spans. Bound by arithmetic, n · survivors IoUs; where there are few groups, by the latency of
// a tile.
__global__ void __launch_bounds__(FEW_THREADS) nms_few_kernel(Nms p, Boxes in, Boxes out) {
  extern __shared__ BoxSpan kept_span[]; // [out.capacity]
  __shared__ BoxSpan span[TILE];
  __shared__ Word overlaps_of[PARTS][TILE], survivors; // a box's own bit: a survivor of earlier tiles overlaps it
  int group = blockIdx.x, n = in.count[group], found = 0;
  int i = threadIdx.x % TILE, part = threadIdx.x / TILE, lane = threadIdx.x % 32;
  NmsRow next = {};
  if (n) next = load_row(in, group, i, n);
  for (int first = 0; first < n && found < out.capacity; first += TILE) {
    NmsRow row = next;
    BoxSpan mine = span_of(p, row.box);
    if (part == 0) span[i] = mine;
    next = load_row(in, group, first + TILE + i, n);
    __syncthreads();
    Word word = 0;
#pragma unroll 4
    for (int k = part; k < found; k += PARTS)
      if (overlaps(p, mine, kept_span[k])) word = (Word)1 << i;
#pragma unroll 4
    for (int j = part; j < TILE; j += PARTS)
      if (j < i && overlaps(p, mine, span[j])) word |= (Word)1 << j;
    overlaps_of[part][i] = word;
    __syncthreads();
    if (threadIdx.x < 32) {
      Word of[2] = {};
      for (int k = 0; k < PARTS; k++) {
        of[0] |= overlaps_of[k][lane];
        of[1] |= overlaps_of[k][lane + 32];
      }
      Word dropped = tile_ballot(of[0] >> lane & 1, of[1] >> (lane + 32) & 1);
      Word kept = resolve_tile(first_bits(min(TILE, n - first)) & ~dropped, of);
      if (lane == 0) survivors = keep_first(kept, out.capacity - found);
    }
    __syncthreads();
    Word kept = survivors;
    if (part == 0 && kept >> i & 1) {
      int to = found + __popcll(kept & first_bits(i));
      kept_span[to] = span[i];
      store_row(out, group, to, row);
    }
    found += __popcll(kept);
  }
  if (threadIdx.x == 0) out.count[group] = found;
}

static void nms_few(Device *dev, const Nms *p, const Boxes *in, const Boxes *out) {
  if (dev->measuring) return;
  size_t shared = out->capacity * sizeof(BoxSpan);
  allow_shared(nms_few_kernel, shared);
  nms_few_kernel<<<in->groups, FEW_THREADS, shared, stream_of(dev)>>>(*p, *in, *out);
  LAUNCH_CHECK();
}

// Comparing with survivors costs at most n · capacity IoUs by one threadblock, the bitmask n² / 2 by many.
extern "C" void cuda_nms(Device *dev, const Nms *p, const Boxes *in, const Boxes *out) {
  CHECK(in->groups == out->groups);
  if (out->capacity <= MIN(in->capacity / 4, 1024))
    nms_few(dev, p, in, out);
  else
    nms_many(dev, p, in, out);
}
