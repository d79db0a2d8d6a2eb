// Merging few groups of boxes (boxes_merge), by counting.
#pragma once
#include "cuda/box.cuh"
#include "cuda/topk.cuh"

// A box's row is the number of keys below its own, which eight neighbouring lanes count. Grid (boxes, groups of `out`),
// each threadblock with all keys of its group in shared memory. n² comparisons, but by all SMs and without a barrier
// between them.
enum { RANK_THREADS = 512, RANK_LANES = 8, RANK_BOXES = RANK_THREADS / RANK_LANES, RANK_PER = 8, RANK_SLOTS = 16384 };

__global__ void __launch_bounds__(RANK_THREADS) boxes_rank_kernel(int per, Boxes in, Boxes out) {
  extern __shared__ ulonglong2 pairs[]; // of keys [per · in.capacity], and one more for a pair
  __shared__ int count[RANK_PER];
  Key *keys = (Key *)pairs;
  const float *score = (const float *)in.score.data;
  const int group = blockIdx.y, first = blockIdx.x * RANK_BOXES;
  if (threadIdx.x < per) count[threadIdx.x] = in.count[group * per + threadIdx.x];
  __syncthreads();
  int all = 0;
  for (int g = 0; g < per; g++) all += count[g];
  if (threadIdx.x == 0 && blockIdx.x == 0) out.count[group] = min(all, out.capacity);
  if (first >= all) return;
  auto row_of = [&](int i) { // of the i-th box in `in`
    int g = 0;
    while (i >= count[g]) i -= count[g++];
    return (size_t)(group * per + g) * in.capacity + i;
  };
#pragma unroll 8
  for (int i = threadIdx.x; i < all; i += RANK_THREADS) {
    const size_t row = row_of(i);
    keys[i] = key_make(rank_descending(score[row]), in.index[row]);
  }
  if (threadIdx.x == 0) keys[all] = NO_KEY;
  __syncthreads();
  const int box = first + threadIdx.x / RANK_LANES, lane = threadIdx.x % RANK_LANES;
  const Key mine = keys[min(box, all)];
  int rank = 0;
#pragma unroll 4
  for (int i = lane; i < (all + 1) / 2; i += RANK_LANES) rank += (pairs[i].x < mine) + (pairs[i].y < mine);
#pragma unroll
  for (int offset = RANK_LANES / 2; offset > 0; offset /= 2) rank += __shfl_xor_sync(~0u, rank, offset);
  if (lane || box >= all || rank >= out.capacity) return;
  const size_t row = row_of(box);
  put_box(out, group, rank, load_box(in.box, row), score[row], in.index[row]);
}
