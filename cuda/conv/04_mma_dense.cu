// Rung 04, mma.sync: wgrad of dense layers of few images, dw = dyᵀ · x, whose K is the images. Writing dw is what takes
// time: a block loads all it needs at once, two of them share a multiprocessor (SM), and a lane writes sixteen bytes.
#include <float.h>
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/mma.cuh"

// TILE_M, TILE_N, warps along M and N, threadblocks for which an SM has registers
using DenseShape = MmaShape<128, 128, 2, 4, 2>;
enum {
  DENSE_TILES = 2, // of a block, along N
  DENSE_KEPT_BYTES = 256 << 20,
  DENSE_IMAGES_BYTES = 256 // of a channel of all images, so that an SM has shared memory for as many blocks
};

struct DenseWgrad {
  const void *dy, *x;      // [rows, m], [rows, n]
  int rows, m, n, k_tiles; // m, n: with the padding
  int blocks_n;
  bool streams; // dw is more than the L2 cache keeps for who reads it next
  FilterGrad out;
};

// One K tile of an operand: images from `row` on, channels from `first` on.
template <class Operand>
__device__ __forceinline__ void load_images(uint32_t tile, const void *from, int rows, int pitch, int row, int first) {
  const uint32_t to = Operand::thread_base(tile);
#pragma unroll
  for (int i = 0; i < Operand::PASSES; i++)
#pragma unroll
    for (int j = 0; j < Operand::CHUNKS_PER_LANE; j++) {
      const int image = row + Operand::row(i), c = first + Operand::contiguous() + j * 8 * Operand::VECTOR;
      const bool inside = (image < rows) & (c < pitch);
      const size_t chunk = inside ? ((size_t)image * pitch + c) / Operand::VECTOR : 0;
      cp_async16(Operand::pass_address(to, i, j), (const uint4 *)from + chunk, inside);
    }
}

// The sum over all images of channel c of a tile of dy in shared memory, in order.
template <class T, class Operand>
__device__ __forceinline__ float image_sum(const unsigned char *tile, int k_tiles, int c) {
  float sum = 0;
  for (int k = 0; k < k_tiles; k++, tile += Operand::BYTES)
    for (int row = 0; row < Operand::TILE_K; row++)
      sum += to_float(((const T *)(tile + Operand::at(row, c / Operand::VECTOR)))[c % Operand::VECTOR]);
  return sum;
}

// Adds the squares of a few values, in float where these are far from its ends.
template <int N> __device__ __forceinline__ void add_squares(GradSum &sum, const float4 (&v)[N]) {
  float s = 0;
#pragma unroll
  for (int i = 0; i < N; i++) s += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
  if (s > 0x1p-80f && s <= FLT_MAX) {
    sum.squares += s;
    return;
  }
#pragma unroll
  for (int i = 0; i < N; i++)
    for (float f : {v[i].x, v[i].y, v[i].z, v[i].w}) {
      sum.squares += (double)f * f;
      sum.finite &= fabsf(f) <= FLT_MAX;
    }
}

// The accumulators of a tile to dw, scaled and accumulated, padding as zeros. Lanes of a pair exchange half of what
// they have, so that each stores four neighbouring columns.
template <class Tile>
__device__ __forceinline__ void store_tile(const DenseWgrad &p, MmaAccumulator<Tile> &acc, int row, int column,
                                           GradSum &sum) {
  constexpr int PAIRS = 2 * Tile::FRAGMENTS_N; // of columns, of a lane in a row
  const Tensor &dw = p.out.dw;
  const int lane = threadIdx.x % 32;
  const bool odd = lane % 2;
  const GradSquares &squares = p.out.squares;
  row += Tile::warp_m();
  column += Tile::warp_n();
#pragma unroll
  for (int i = 0; i < Tile::FRAGMENTS_M; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int m = row + Tile::A::fragment_mn(i, half * 8 + lane / 4);
      const float factor = p.out.scale && m < dw.n ? ((const float *)p.out.scale)[m] : 1.f;
      float4 counted[PAIRS / 2] = {};
#pragma unroll
      for (int j = 0; j < PAIRS; j += 2) {
        const float *v = &acc.fragment[i][j][2 * half], *w = &acc.fragment[i][j + 1][2 * half];
        const float a = __shfl_xor_sync(~0u, odd ? v[0] : w[0], 1), b = __shfl_xor_sync(~0u, odd ? v[1] : w[1], 1);
        float4 four = odd ? make_float4(a, b, w[0], w[1]) : make_float4(v[0], v[1], a, b);
        const int n = column + (j + odd) * 8 + lane % 4 / 2 * 4;
        if (m >= dw.n || n >= p.n) continue;
        const int element = m * p.n + n;
        float4 *to = (float4 *)((float *)dw.data + element);
        const float4 before = p.out.accumulate ? *to : make_float4(0, 0, 0, 0);
        four = make_float4(before.x + factor * four.x, before.y + factor * four.y, before.z + factor * four.z,
                           before.w + factor * four.w);
        if (dw.c < dw.ldc) { // a vector is under one tap
          const int left = dw.c - n % dw.ldc;
          if (left < 1) four.x = 0;
          if (left < 2) four.y = 0;
          if (left < 3) four.z = 0;
          if (left < 4) four.w = 0;
        }
        if (p.streams)
          __stcs(to, four);
        else
          *to = four;
        if (element >= squares.first && element < squares.end) counted[j / 2] = four;
      }
      if (squares.sums) add_squares(sum, counted);
    }
}

// Grid (threadblocks of DENSE_TILES tiles, N fastest): what runs at a time writes one piece of memory, which is faster
// than as many pieces as there are blocks. All loads of a block are under way at once; the SM's other block writes
// meanwhile.
template <class T>
__global__ __launch_bounds__(DenseShape::THREADS,
                             DenseShape::BLOCKS) void dense_wgrad_kernel(const __grid_constant__ DenseWgrad p) {
  using Tile = MmaTile<T, DenseShape, true, true>;
  using A = typename Tile::A;
  using B = typename Tile::B;
  const int k_tiles = p.k_tiles, block_m = blockIdx.x / p.blocks_n, block_n = blockIdx.x - block_m * p.blocks_n;
  const int m = block_m * Tile::TILE_M, first_n = block_n * DENSE_TILES * Tile::TILE_N;
  const uint32_t dy = shared_address(dynamic_shared()), x = dy + k_tiles * A::BYTES;
  for (int k = 0; k < k_tiles; k++) load_images<A>(dy + k * A::BYTES, p.dy, p.rows, p.m, k * Tile::TILE_K, m);
#pragma unroll 1
  for (int i = 0; i < DENSE_TILES; i++) {
    for (int k = 0; k < k_tiles; k++)
      load_images<B>(x + (i * k_tiles + k) * B::BYTES, p.x, p.rows, p.n, k * Tile::TILE_K, first_n + i * Tile::TILE_N);
    cp_async_commit();
  }
  GradSum sum = {0, true};
#pragma unroll 1
  for (int i = 0; i < DENSE_TILES; i++) {
    if (i == 0)
      cp_async_wait<DENSE_TILES - 1>();
    else
      cp_async_wait<0>();
    __syncthreads();
    MmaAccumulator<Tile> acc = {};
    for (int k = 0; k < k_tiles; k++)
#pragma unroll
      for (int j = 0; j < Tile::K_BLOCKS; j++) {
        MmaFragments<Tile> f;
        A::load_fragments(f.a, dy + k * A::BYTES, Tile::warp_m(), j);
        B::load_fragments(f.b, x + (i * k_tiles + k) * B::BYTES, Tile::warp_n(), j);
        mma_warp_tile(acc, f);
      }
    store_tile<Tile>(p, acc, m, first_n + i * Tile::TILE_N, sum);
  }
  const int channel = m + threadIdx.x;
  if (p.out.db && block_n == 0 && threadIdx.x < Tile::TILE_M && channel < p.out.dw.n) {
    float *db = (float *)p.out.db + channel;
    *db = (p.out.accumulate ? *db : 0.f) + image_sum<T, A>(dynamic_shared(), k_tiles, threadIdx.x);
  }
  if (!p.out.squares.sums) return;
  sum = {block_sum(sum.squares), __syncthreads_and((int)sum.finite) != 0};
  if (threadIdx.x == 0) p.out.squares.sums[blockIdx.x] = sum;
}

bool mma_dense_fits(const Conv *conv, const Tensor *x, const Tensor *dw) {
  const bool covers = x->h == dw->h && x->w == dw->w && conv->stride == 1 && !conv->pad;
  return covers && x->n * dtype_size(x->dtype) <= DENSE_IMAGES_BYTES && !x->count;
}

static int blocks_n_of(int n) { return blocks_for(n, DENSE_TILES * DenseShape::TILE_N); }

// A sum for each block.
int mma_dense_squares(Device *, const Conv *conv, const Tensor *x, const Tensor *dw) {
  if (!mma_dense_fits(conv, x, dw)) return 0;
  return blocks_for(dw->n, DenseShape::TILE_M) * blocks_n_of(dw->h * dw->w * dw->ldc);
}

void mma_dense_wgrad(Device *dev, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  if (dev->measuring) return;
  DenseWgrad p = {dy->data, x->data, x->n, dy->ldc, x->h * x->w * x->ldc};
  p.blocks_n = blocks_n_of(p.n);
  p.streams = tensor_bytes(&out->dw) > DENSE_KEPT_BYTES;
  p.out = *out;
  const int blocks = blocks_for(out->dw.n, DenseShape::TILE_M) * p.blocks_n;
  WITH_TYPE(x->dtype, T, {
    using Tile = MmaTile<T, DenseShape, true, true>;
    p.k_tiles = MAX(blocks_for(x->n, Tile::TILE_K), 1);
    const int bytes = p.k_tiles * (Tile::A::BYTES + DENSE_TILES * Tile::B::BYTES);
    allow_shared(dense_wgrad_kernel<T>, bytes);
    dense_wgrad_kernel<T><<<blocks, DenseShape::THREADS, bytes, stream_of(dev)>>>(p);
    LAUNCH_CHECK();
  });
}
