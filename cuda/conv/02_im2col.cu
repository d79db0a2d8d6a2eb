// Rung 02, im2col. Idea: unroll the pixels into a matrix in memory, a chunk at a time, and multiply matrices in fp32.
// Removes: the fetching of every operand for every few results. A block's tiles in shared memory feed 128 × 128 of them,
// a thread's registers 8 × 8.
// Changed since the rung before: the convolution is one dense product; tiles, register blocking, double buffering.
// Limit: the fp32 units, and the unrolled matrix, taps times as large as the tensor, that goes to memory and back.
#include "cuda/conv/filter_grad.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/walk.cuh"

enum {
  TILE = 128,                         // rows and columns of the result that a block computes
  DEPTH = 16,                         // of the operands in shared memory at a time
  PITCH = TILE + 4,                   // keeps rows aligned to vectors and off each other's banks
  THREADS = 256,                      // 16 × 16, of 8 × 8 results each
  LOADS = TILE * DEPTH / 4 / THREADS, // vectors of four that a thread fetches of each operand
  CHUNK_FLOATS = 1 << 25,             // of the unrolled matrix
  FILL_BLOCKS = 528,                  // two waves of two blocks on each of 132 multiprocessors
  MIN_PIECE = 128,
  MAX_PIECE = 1024 // terms
};

static bool im2col_supports(const Device *, ConvOp, const Conv *, const Tensor *, const Tensor *) { return true; }

// ---- the product of two matrices ------------------------------------------------------------------------------------

// An operand's tile: `outer` rows or columns of the result by `depth` terms. Both limits are what is left of the matrix
// from `data` on; beyond, tiles are zero. The limit along the contiguous side is a multiple of four.
struct Operand {
  const float *data;
  int pitch, outer, depth;
};

// BY_TERM: rows of memory are terms, [depth, outer]; otherwise [outer, depth].
template <bool BY_TERM> __device__ __forceinline__ void fetch(const Operand &o, int first, float4 (&v)[LOADS]) {
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    int index = threadIdx.x + i * THREADS;
    int outer = BY_TERM ? index % (TILE / 4) * 4 : index / (DEPTH / 4);
    int term = first + (BY_TERM ? index / (TILE / 4) : index % (DEPTH / 4) * 4);
    bool inside = outer < o.outer && term < o.depth;
    size_t at = BY_TERM ? (size_t)term * o.pitch + outer : (size_t)outer * o.pitch + term;
    v[i] = inside ? *(const float4 *)(o.data + at) : float4{};
  }
}
template <bool BY_TERM> __device__ __forceinline__ void stage(float (*tile)[PITCH], const float4 (&v)[LOADS]) {
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    int index = threadIdx.x + i * THREADS;
    if constexpr (BY_TERM) {
      *(float4 *)&tile[index / (TILE / 4)][index % (TILE / 4) * 4] = v[i];
    } else {
      int outer = index / (DEPTH / 4), term = index % (DEPTH / 4) * 4;
      tile[term][outer] = v[i].x, tile[term + 1][outer] = v[i].y;
      tile[term + 2][outer] = v[i].z, tile[term + 3][outer] = v[i].w;
    }
  }
}

// sum[i] = row 8·(thread / 16) + i of a · b, columns 8·(thread % 16) …
template <bool A_BY_TERM>
__device__ __forceinline__ void multiply_tile(const Operand &a, const Operand &b, Eight (&sum)[8]) {
  __shared__ float tile_a[2][DEPTH][PITCH], tile_b[2][DEPTH][PITCH];
  int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 8;
  float4 next_a[LOADS], next_b[LOADS];
  fetch<A_BY_TERM>(a, 0, next_a);
  fetch<true>(b, 0, next_b);
  for (int first = 0, now = 0; first < a.depth; first += DEPTH, now ^= 1) {
    stage<A_BY_TERM>(tile_a[now], next_a);
    stage<true>(tile_b[now], next_b);
    __syncthreads(); // one is enough: this buffer is written again only after the next
    fetch<A_BY_TERM>(a, first + DEPTH, next_a);
    fetch<true>(b, first + DEPTH, next_b);
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      Eight x = load8(&tile_a[now][k][row]), y = load8(&tile_b[now][k][column]);
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) sum[i].v[j] += x.v[i] * y.v[j];
    }
  }
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// Rows first … first + rows - 1 of the unrolled tensor as floats; those without data are left alone.
template <class T>
__global__ void unroll_kernel(const __grid_constant__ Gather g, int first, int rows, int columns, float *to) {
  size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  int row = (int)(thread / (columns / 8)), column = (int)(thread % (columns / 8)) * 8;
  if (row >= rows || first + row >= gather_rows(g)) return;
  Position at = position_of(g, first + row);
  int tap = column / g.in.ldc, taps = g.walk.x.taps;
  int y = g.walk.y.in + g.walk.y.in_step * at.i + tap / taps, x = g.walk.x.in + g.walk.x.in_step * at.j + tap % taps;
  bool inside = y >= 0 && y < g.in.h && x >= 0 && x < g.in.w;
  store8(to + (size_t)row * columns + column, inside ? load8(pixel<T>(g.in, at.n, y, x) + column % g.in.ldc) : Eight{});
}

// The filter as a matrix of floats [taps · channels of the operand, n], with n the pitch of the result.
template <class T, bool BACKWARD>
__global__ void filter_matrix_kernel(const __grid_constant__ Gather g, const Tensor w, int columns, int n, float *to) {
  unsigned i = thread_index();
  int k = i / (n / 8), first = i % (n / 8) * 8;
  if (k >= columns) return;
  int c = k % g.in.ldc, tap = k / g.in.ldc;
  tap = filter_tap({c, tap / g.walk.x.taps, tap % g.walk.x.taps}, g, w.w);
  Eight e = {};
#pragma unroll
  for (int j = 0; j < 8; j++) {
    int rank = BACKWARD ? c : first + j, lane = BACKWARD ? first + j : c;
    if (rank < w.n) e.v[j] = to_float(((const T *)w.data)[((size_t)rank * w.h * w.w + tap) * w.ldc + lane]);
  }
  store8(to + (size_t)k * n + first, e);
}

// Rows first … first + rows - 1 of one part, which `a` holds from 0 on. PIECES: the sum over the terms of piece blockIdx.y
// goes to that slot [rows, n] instead.
template <class T, bool PIECES>
__global__ __launch_bounds__(THREADS, 2) void gemm_kernel(const __grid_constant__ Part p, int first, int rows,
                                                          const float *a, const float *b, int terms, int piece,
                                                          float *slots) {
  int n = p.out.t.ldc, across = (n + TILE - 1) / TILE;
  int m0 = blockIdx.x / across * TILE, n0 = blockIdx.x % across * TILE;
  int from = PIECES ? blockIdx.y * piece : 0, depth = PIECES ? min(terms - from, piece) : terms,
      valid = min(rows, gather_rows(p.gather) - first);
  if (m0 >= valid) return;
  Eight sum[8] = {};
  multiply_tile<false>({a + (size_t)m0 * terms + from, terms, valid - m0, depth},
                       {b + (size_t)from * n + n0, n, n - n0, depth}, sum);
  int row = m0 + threadIdx.x / 16 * 8, column = n0 + threadIdx.x % 16 * 8;
  if (column >= n) return;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (row + i >= valid) continue;
    if constexpr (PIECES)
      store8(slots + ((size_t)blockIdx.y * rows + row + i) * n + column, sum[i]);
    else
      part_store8<T>(p, first + row + i, column, sum[i]);
  }
}

// The pieces of a result, added in order.
template <class T>
__global__ void sum_pieces_kernel(const __grid_constant__ Part p, int first, int rows, int pieces, const float *slots) {
  int n = p.out.t.ldc;
  unsigned i = thread_index();
  int row = i / (n / 8), column = i % (n / 8) * 8;
  if (row >= min(rows, gather_rows(p.gather) - first)) return;
  Eight sum = load8(slots + (size_t)row * n + column);
  for (int k = 1; k < pieces; k++) {
    Eight next = load8(slots + ((size_t)k * rows + row) * n + column);
#pragma unroll
    for (int j = 0; j < 8; j++) sum.v[j] += next.v[j];
  }
  part_store8<T>(p, first + row, column, sum);
}

// Slot blockIdx.y (+)= dyᵀ · unrolled x over its share of `pixels` pixels from `first` on.
__global__ __launch_bounds__(THREADS, 2) void gemm_wgrad_kernel(const __grid_constant__ Gather g, int first, int pixels,
                                                                int share, const float *dy, int m, const float *x,
                                                                int n, Slots slots, bool add) {
  int across = (n + TILE - 1) / TILE, m0 = blockIdx.x / across * TILE, n0 = blockIdx.x % across * TILE;
  int from = blockIdx.y * share, depth = min(min(pixels, gather_rows(g) - first) - from, share);
  Eight sum[8] = {};
  if (depth > 0)
    multiply_tile<true>({dy + (size_t)from * m + m0, m, m - m0, depth}, {x + (size_t)from * n + n0, n, n - n0, depth},
                        sum);
  int row = m0 + threadIdx.x / 16 * 8, column = n0 + threadIdx.x % 16 * 8;
  if (column >= n || row >= m) return;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float *to = slots.data + blockIdx.y * slots.stride + (size_t)(row + i) * slots.pitch + column;
    if (add) {
      Eight old = load8(to);
#pragma unroll
      for (int j = 0; j < 8; j++) sum[i].v[j] += old.v[j];
    }
    store8(to, sum[i]);
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static int chunk_rows(const Gather &g) {
  int rows = CHUNK_FLOATS / MAX(gather_columns(g), 1) / TILE * TILE;
  return MIN(MAX(rows, TILE), gather_capacity(g));
}

// A tensor that is read as it lies, one tap and every pixel, is its own unrolled matrix.
static bool is_matrix(const Gather &g) {
  const Axis &y = g.walk.y, &x = g.walk.x;
  return g.in.dtype == F32 && y.taps * x.taps == 1 && y.in_step == 1 && x.in_step == 1 && !y.in && !x.in &&
         y.size == g.in.h && x.size == g.in.w;
}

// The unrolled rows from `first` on, in `scratch` unless they exist already.
static const float *unroll(Device *dev, const Gather &g, int first, int rows, float *scratch) {
  int columns = gather_columns(g);
  if (is_matrix(g)) return (const float *)g.in.data + (size_t)first * columns;
  int blocks = blocks_for((size_t)rows * (columns / 8), THREADS);
  if (!blocks) return scratch; // no taps meet anything
  WITH_TYPE(g.in.dtype, T,
            { unroll_kernel<T><<<blocks, THREADS, 0, stream_of(dev)>>>(g, first, rows, columns, scratch); });
  LAUNCH_CHECK();
  return scratch;
}

static int tiles(int m, int n) { return blocks_for(m, TILE) * blocks_for(n, TILE); }

// The terms of every result are cut into pieces: where few tiles would leave a GPU idle, if a piece is long enough to be
// worth the extra pass, and wherever one long sum would round too much. Depends on shapes alone, or the bits would differ
// from one GPU to the next.
static int piece_of(int terms, int tiles) {
  int pieces = MAX(MIN(FILL_BLOCKS / MAX(tiles, 1), terms / MIN_PIECE), blocks_for(terms, MAX_PIECE));
  return MAX(blocks_for(terms, MAX(pieces, 1) * DEPTH), 1) * DEPTH;
}

// Floats that the pieces of a chunk of results take; none where there is one.
static size_t slot_floats(const Part &p) {
  int terms = gather_columns(p.gather), rows = chunk_rows(p.gather), n = p.out.t.ldc;
  int pieces = blocks_for(terms, piece_of(terms, tiles(rows, n)));
  return pieces > 1 ? (size_t)pieces * rows * n : 0;
}

static size_t unrolled_floats(const Gather &g) { return is_matrix(g) ? 0 : (size_t)gather_columns(g) * chunk_rows(g); }

template <bool BACKWARD> static void compute_part(Device *dev, const Part &p, const Tensor *w, float *filter) {
  const Gather &g = p.gather;
  int depth = gather_columns(g), n = p.out.t.ldc, chunk = chunk_rows(g), piece = piece_of(depth, tiles(chunk, n));
  int pieces = MAX(blocks_for(depth, piece), 1);
  float *columns = filter + (size_t)depth * n, *slots = columns + unrolled_floats(g);
  cudaStream_t stream = stream_of(dev);
  if (depth) {
    int blocks = blocks_for((size_t)depth * (n / 8), THREADS);
    WITH_TYPE(w->dtype, T,
              { filter_matrix_kernel<T, BACKWARD><<<blocks, THREADS, 0, stream>>>(g, *w, depth, n, filter); });
    LAUNCH_CHECK();
  }
  for (int first = 0, rows; first < gather_capacity(g); first += rows) {
    rows = MIN(chunk, gather_capacity(g) - first);
    const float *a = unroll(dev, g, first, rows, columns);
    int blocks = tiles(rows, n);
    WITH_TYPE(w->dtype, T, {
      if (pieces == 1) {
        gemm_kernel<T, false><<<blocks, THREADS, 0, stream>>>(p, first, rows, a, filter, depth, depth, NULL);
      } else {
        gemm_kernel<T, true>
            <<<dim3(blocks, pieces), THREADS, 0, stream>>>(p, first, rows, a, filter, depth, piece, slots);
        sum_pieces_kernel<T>
            <<<blocks_for((size_t)rows * (n / 8), THREADS), THREADS, 0, stream>>>(p, first, rows, pieces, slots);
      }
    });
    LAUNCH_CHECK();
  }
}

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  size_t most = 0;
  for_each_part(conv, pairs, in, w, out, BACKWARD, [&](const Part &p) {
    size_t filter = (size_t)gather_columns(p.gather) * p.out.t.ldc;
    most = MAX(most, filter + unrolled_floats(p.gather) + slot_floats(p));
  });
  float *scratch = (float *)device_scratch(dev, most * sizeof(float));
  if (dev->measuring) return;
  for_each_part(conv, pairs, in, w, out, BACKWARD, [&](const Part &p) { compute_part<BACKWARD>(dev, p, w, scratch); });
}

// Every pair and chunk adds to the same slots, one launch after the other.
static void wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  static const Conv one_by_one = {1, 0};
  const Tensor *dw = &out->dw, one = tensor(F32, 0, 1, 1, 0);
  Gather gx[CONV_MAX_PAIRS], gy[CONV_MAX_PAIRS];
  int m = dy->ldc, n = dw->h * dw->w * dw->ldc, chunk = 0;
  for (int i = 0; i < pairs; i++) {
    gx[i] = gather_forward(&conv[0], &x[i], dw, &dy[i]);
    gy[i] = gather_forward(&one_by_one, &dy[i], &one, &dy[i]);
    chunk = MAX(chunk, chunk_rows(gx[i]));
  }
  Slots slots = {NULL, blocks_for(chunk, piece_of(chunk, tiles(m, n))), n, (size_t)m * n};
  size_t slot_floats = slots.count * slots.stride, dy_floats = (size_t)chunk * m, x_floats = (size_t)chunk * n;
  float *scratch = (float *)device_scratch(dev, (slot_floats + dy_floats + x_floats) * sizeof(float));
  if (!scratch) return;
  slots.data = scratch;
  bool add = false;
  for (int i = 0; i < pairs; i++)
    for (int first = 0, pixels; first < gather_capacity(gx[i]); first += pixels, add = true) {
      pixels = MIN(chunk, gather_capacity(gx[i]) - first);
      const float *a = unroll(dev, gy[i], first, pixels, scratch + slot_floats);
      const float *b = unroll(dev, gx[i], first, pixels, scratch + slot_floats + dy_floats);
      dim3 grid(tiles(m, n), slots.count);
      gemm_wgrad_kernel<<<grid, THREADS, 0, stream_of(dev)>>>(gx[i], first, pixels, blocks_for(pixels, slots.count), a,
                                                              m, b, n, slots, add);
      LAUNCH_CHECK();
    }
  filter_grad_reduce(dev, slots, out);
}

extern "C" const Rung rung_im2col = {"im2col", im2col_supports, compute<false>, compute<true>, wgrad};
