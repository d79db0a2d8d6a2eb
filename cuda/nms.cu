// Bitmask NMS (greedy non-maximum suppression; torchvision's nms_kernel_impl and Girshick's before it) in two kernels:
// the overlaps of all pairs as bits, by many threadblocks; then the greedy scan over those bits, by one threadblock per
// group, 64 boxes at a time. Groups (image and level or class) are independent, so boxes need no coordinate offsets.
#include "cuda/box.cuh"

typedef unsigned long long Word; // one bit a box of a tile, as the atomics take it
enum { TILE = 64, OVERLAP_THREADS = 256, RESOLVE_THREADS = 1024 };

// Row of the i-th best box of a group.
static __device__ __forceinline__ size_t group_row(const Boxes &b, int group, int i) {
  return (size_t)group * b.capacity + i;
}

// The overlap bitmask, bits [groups, capacity, words]: bit j of word [row i, w] is set if box w·64 + j overlaps box i.
// Only the words from i's own tile on are written: the upper triangle, since box_iou is the same either way round. Grid
// (tiles of 64 rows, groups); a thread holds one row's box in registers and makes whole words, the four pairs of warps
// take every fourth one. All lanes load the same other box, a broadcast. n² / 2 IoUs, bound by arithmetic.
__global__ void __launch_bounds__(OVERLAP_THREADS) nms_overlap_kernel(Nms p, Boxes in, Word *bits, int words) {
  int tile = blockIdx.x, group = blockIdx.y, n = in.count[group], i = tile * TILE + threadIdx.x % TILE;
  if (tile * TILE >= n) return;
  Box mine = box_span(load_box(in.box, group_row(in, group, min(i, n - 1))), p.extra);
  for (int w = tile + threadIdx.x / TILE; w * TILE < n; w += OVERLAP_THREADS / TILE) {
    Word word = 0;
    for (int j = 0; j < min(TILE, n - w * TILE); j++) {
      Box other = box_span(load_box(in.box, group_row(in, group, w * TILE + j)), p.extra);
      if (box_iou(mine, other) > p.threshold) word |= (Word)1 << j;
    }
    if (i < n) bits[group_row(in, group, i) * words + w] = word;
  }
}

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

static __device__ __forceinline__ Word keep_first(Word set, int n) {
  for (int extra = __popcll(set) - n; extra > 0; extra--) set &= first_bits(63 - __clzll(set));
  return set;
}

// The greedy scan: survivors of each group, in order, at most out.capacity. One threadblock per group walks the tiles
// in order: a warp resolves the tile, the threads copy its survivors, then all of them OR the survivors' rows of the
// bitmask into what is suppressed behind it (dynamic shared memory, a word per tile). Sequential over tiles, and so
// bound by the latency of two barriers and one pass over the survivors' bits per tile.
__global__ void __launch_bounds__(RESOLVE_THREADS)
    nms_resolve_kernel(Boxes in, Boxes out, const Word *bits, int words) {
  extern __shared__ Word gone[]; // suppressed: overlapped by a survivor
  __shared__ Word survivors;
  int group = blockIdx.x, n = in.count[group], tiles = (n + TILE - 1) / TILE, found = 0;
  for (int w = threadIdx.x; w < tiles; w += RESOLVE_THREADS) gone[w] = 0;
  __syncthreads();
  for (int tile = 0; tile < tiles && found < out.capacity; tile++) {
    const Word *row = bits + group_row(in, group, tile * TILE) * words;
    int rows = min(TILE, n - tile * TILE);
    if (threadIdx.x < 32) {
      Word overlaps[2];
      for (int k = 0; k < 2; k++) {
        int i = threadIdx.x + 32 * k;
        overlaps[k] = i < rows ? row[(size_t)i * words + tile] : 0;
      }
      Word kept = resolve_tile(first_bits(rows) & ~gone[tile], overlaps);
      if (threadIdx.x == 0) survivors = keep_first(kept, out.capacity - found);
    }
    __syncthreads();
    Word kept = survivors;
    if (threadIdx.x < TILE && kept >> threadIdx.x & 1) {
      size_t from = group_row(in, group, tile * TILE + threadIdx.x);
      size_t to = group_row(out, group, found + __popcll(kept & first_bits(threadIdx.x)));
      store_box(out.box, to, load_box(in.box, from));
      ((float *)out.score.data)[to] = ((const float *)in.score.data)[from];
      out.index[to] = in.index[from];
    }
    int behind = tiles - tile - 1;
    for (int e = threadIdx.x; e < TILE * behind; e += RESOLVE_THREADS) {
      int i = e / behind, w = tile + 1 + e % behind;
      if (kept >> i & 1) atomicOr(&gone[w], row[(size_t)i * words + w]);
    }
    found += __popcll(kept);
    __syncthreads();
  }
  if (threadIdx.x == 0) out.count[group] = found;
}

extern "C" void cuda_nms(Device *dev, const Nms *p, const Boxes *in, const Boxes *out) {
  int words = blocks_for(in->capacity, TILE);
  Word *bits = (Word *)device_workspace(dev, (size_t)in->groups * in->capacity * words * sizeof(Word));
  if (!bits) return;
  CHECK(in->groups == out->groups);
  dim3 tiles(words, in->groups);
  nms_overlap_kernel<<<tiles, OVERLAP_THREADS, 0, stream_of(dev)>>>(*p, *in, bits, words);
  LAUNCH_CHECK();
  nms_resolve_kernel<<<in->groups, RESOLVE_THREADS, words * sizeof(Word), stream_of(dev)>>>(*in, *out, bits, words);
  LAUNCH_CHECK();
}
