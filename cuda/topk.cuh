// Top-k, in order: radix select, then a bitonic sort, by one threadblock; for long lists a histogram over many
// threadblocks thins the list out first.
//
// An item is one 64-bit key: its rank above, its index below, the smallest key is the best. So the keys of a list all
// differ, ties fall to the lowest index, and neither the result nor its order depends on the order in which threads
// append to a list: atomics may hand out slots, the output is deterministic.
#pragma once
#include "cuda/common.cuh"

typedef unsigned long long Key; // as the atomics take it
static constexpr Key NO_KEY = ~(Key)0;

__device__ __forceinline__ Key key_make(uint32_t rank, int index) { return (Key)rank << 32 | (uint32_t)index; }
__device__ __forceinline__ uint32_t key_rank(Key key) { return (uint32_t)(key >> 32); }
__device__ __forceinline__ int key_index(Key key) { return (int)(uint32_t)key; }

// The usual order-preserving map from float bits to unsigned integers, descending: the highest number (no NaN) has the
// lowest rank; -0 counts as 0.
__device__ __forceinline__ uint32_t rank_descending(float v) {
  uint32_t bits = __float_as_uint(v == 0.f ? 0.f : v);
  return bits >> 31 ? bits : bits ^ 0x7fffffffu; // the bits of negative numbers already grow as they fall
}
// Its inverse.
__device__ __forceinline__ float rank_value(uint32_t rank) {
  return __uint_as_float(rank >> 31 ? rank : rank ^ 0x7fffffffu);
}

// ---- scan and compaction: every thread of the threadblock (warp) calls these ----------------------------------------

// Exclusive prefix sum over the threadblock: v summed over the threads before this one; *total: over all. A
// warp-shuffle scan (Hillis and Steele) in each warp, then over the warps' totals.
__device__ inline int block_exclusive_sum(int v, int *total) {
  __shared__ int part[32];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, sum = v;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    int below = __shfl_up_sync(~0u, sum, offset);
    if (lane >= offset) sum += below;
  }
  __syncthreads(); // part may still be read by the call before
  if (lane == 31) part[warp] = sum;
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < warps; w++) {
    if (w == warp) before = all;
    all += part[w];
  }
  *total = all;
  return before + sum - v;
}

// Stream compaction with warp-aggregated atomics: a slot in a list of *n items for each lane that wants one, by one
// atomic per warp. Which slots a warp gets is left to chance; what is in the list is not.
__device__ inline int warp_append(bool wanted, int *n) {
  unsigned lanes = __ballot_sync(~0u, wanted);
  if (!lanes) return 0;
  int lane = threadIdx.x % 32, first = __ffs(lanes) - 1, offset = 0;
  if (lane == first) offset = atomicAdd(n, __popc(lanes));
  return __shfl_sync(~0u, offset, first) + __popc(lanes & ((1u << lane) - 1));
}

// ---- selection and sorting: threadblocks of at least 256 threads ----------------------------------------------------

// Radix select: a bound that exactly k of n different keys do not exceed, 0 < k < n. Byte by byte from the highest
// down, a histogram of the keys that share the prefix found so far tells the next byte of the k-th, until all keys that
// share the prefix are wanted. A pass reads every key once; the four of the rank decide unless ranks are equal, the
// other four break ties by index.
__device__ inline Key block_radix_select(const Key *key, int n, int k) {
  __shared__ int count[256], byte, left;
  __shared__ bool all;
  Key prefix = 0, mask = 0;
  for (int shift = 56; shift >= 0; shift -= 8) {
    for (int b = threadIdx.x; b < 256; b += blockDim.x) count[b] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      if ((key[i] & mask) == prefix) atomicAdd(&count[key[i] >> shift & 255], 1);
    __syncthreads();
    int total, here = threadIdx.x < 256 ? count[threadIdx.x] : 0, before = block_exclusive_sum(here, &total);
    if (before < k && k <= before + here) {
      byte = threadIdx.x;
      left = k - before;
      all = left == here;
    }
    __syncthreads();
    prefix |= (Key)byte << shift;
    mask |= (Key)255 << shift;
    k = left;
    if (all) break;
  }
  return prefix | ~mask;
}

// Top-k: compacts the k smallest of n different keys (all, if there are fewer) into shared memory, in no order; returns
// how many. Rows, where given, are the keys' payload.
__device__ inline int block_topk(const Key *key, const int *row, int n, int k, Key *best, int *best_row) {
  __shared__ int taken;
  int slots = min(n, k);
  Key bound = 0 < k && k < n ? block_radix_select(key, n, k) : ~(Key)0;
  if (threadIdx.x == 0) taken = 0;
  __syncthreads();                                      // `best`, too, may be in use until here
  for (int first = 0; first < n; first += blockDim.x) { // whole warps at a time
    int i = first + threadIdx.x;
    bool take = i < n && key[i] <= bound;
    int slot = warp_append(take, &taken);
    if (!take || slot >= slots) continue; // only keys that are alike could ask for more slots
    best[slot] = key[i];
    if (row) best_row[slot] = row[i];
  }
  __syncthreads();
  return slots;
}

// Slots that block_sort needs for n keys: it pads to a power of two.
static inline int sort_slots(int n) {
  int slots = 1;
  while (slots < n) slots *= 2;
  return slots;
}

// Bitonic sort (Batcher, "Sorting networks and their applications", 1968) of keys in shared memory, ascending, and of
// rows with them unless NULL. n/4 · log² n compare-exchanges, pair by pair over the threads, in a pattern that no value
// changes: right for the few thousand keys that a selection leaves. A warp's 32 pairs lie in 64 keys of its own where
// the step is 32 or less; only before and after longer ones does the threadblock wait.
__device__ inline void block_sort(Key *key, int *row, int n) {
  constexpr int OWN = 32; // the longest step within a warp's keys
  int slots = n > 1 ? 1 << (32 - __clz(n - 1)) : 1;
  for (int i = n + threadIdx.x; i < slots; i += blockDim.x) key[i] = ~(Key)0;
  __syncthreads();
  for (int run = 2; run <= slots; run *= 2)
    for (int step = run / 2; step > 0; step /= 2) {
      for (int pair = threadIdx.x; pair < slots / 2; pair += blockDim.x) {
        int i = 2 * pair - (pair & (step - 1)), k = i + step;
        Key a = key[i], b = key[k];
        bool rising = (i & run) == 0;
        if ((a > b) != rising) continue;
        key[i] = b;
        key[k] = a;
        if (!row) continue;
        int r = row[i];
        row[i] = row[k];
        row[k] = r;
      }
      int next = step > 1 ? step / 2 : run;
      if (step > OWN || next > OWN || (run == slots && step == 1))
        __syncthreads();
      else
        __syncwarp();
    }
}

// ---- long lists -----------------------------------------------------------------------------------------------------

// Two kernels thin a long list out before one threadblock selects from it: many threadblocks build a histogram of the
// keys' highest 12 bits, then compact the keys up to the bin that holds the k-th. 256, 512 or 1024 threads.
enum { BINS = 4096 };

__device__ __forceinline__ int key_bin(Key key) { return (int)(key >> 52); }

// A threadblock's own histogram, in shared memory, so that global atomics are at most one per bin and threadblock.
__device__ inline void bins_clear(int *shared) {
  for (int b = threadIdx.x; b < BINS; b += blockDim.x) shared[b] = 0;
  __syncthreads();
}
// Adds it to the group's, in global memory.
__device__ inline void bins_add(const int *shared, int *bins) {
  __syncthreads();
  for (int b = threadIdx.x; b < BINS; b += blockDim.x)
    if (shared[b]) atomicAdd(&bins[b], shared[b]);
}

// The last bin to keep: the one that holds the k-th key, found by a scan over the bins; or the very last.
__device__ inline int bins_last(const int *bins, int k) {
  __shared__ int last;
  int per = BINS / blockDim.x, bin = threadIdx.x * per, here = 0, total;
  for (int i = 0; i < per; i++) here += bins[bin + i];
  int before = block_exclusive_sum(here, &total);
  if (threadIdx.x == 0) last = k > 0 ? BINS - 1 : -1;
  __syncthreads();
  if (before < k && k <= before + here) {
    while ((before += bins[bin]) < k) bin++;
    last = bin;
  }
  __syncthreads();
  return last;
}
