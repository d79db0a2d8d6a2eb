// Rung 02, im2col: explicit GEMM in fp32. Idea: write the im2col matrix to a workspace, a chunk of rows at a time, and
// multiply matrices.
// Removes: loading every operand for every few results. A threadblock tile's operands in shared memory feed 128 × 128
// accumulators, a thread's registers 8 × 8.
// Adds to the rung before: threadblock tiles, register blocking, a mainloop with two buffers of shared memory, split-K.
// Limit: the fp32 units, and the im2col matrix, taps times as large as the tensor, which goes to memory and back.
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"
#include "cuda/conv/split_k.cuh"

enum {
  TILE_MN = 128,                          // threadblock tile: M and N
  TILE_K = 16,                            // of a mainloop iteration
  PITCH = TILE_MN + 4,                    // of shared memory: keeps rows aligned to vectors and off each other's banks
  THREADS = 256,                          // 16 × 16, each with 8 × 8 accumulators
  LOADS = TILE_MN * TILE_K / 4 / THREADS, // vectors of four that a thread loads of each operand, an iteration
  CHUNK_FLOATS = 1 << 25,                 // of the im2col matrix
  FILL_BLOCKS = 528,                      // two waves of two threadblocks on each of an H100's 132 SMs
  MIN_SLICE_K = 128,
  MAX_SLICE_K = 1024 // of a split-K slice
};

static bool im2col_supports(Device *, ConvOp, const Conv *, const Tensor *, const Tensor *) { return true; }

// ---- threadblock tile and mainloop ----------------------------------------------------------------------------------

// A threadblock tile's part of an operand: `mn` rows (A) or columns (B) by `k_extent`, both limited to what is left of
// the matrix from `data` on; beyond, tiles are zero. The limit along the contiguous side is a multiple of four.
struct GemmOperand {
  const float *data;
  int pitch, mn, k_extent;
};

// MN_MAJOR: M or N is contiguous in memory, [k, mn]; otherwise K is, [mn, k].
template <bool MN_MAJOR>
__device__ __forceinline__ void load_tile(const GemmOperand &o, int first, float4 (&v)[LOADS]) {
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    int index = threadIdx.x + i * THREADS;
    int mn = MN_MAJOR ? index % (TILE_MN / 4) * 4 : index / (TILE_K / 4);
    int k = first + (MN_MAJOR ? index / (TILE_MN / 4) : index % (TILE_K / 4) * 4);
    bool inside = mn < o.mn && k < o.k_extent;
    size_t at = MN_MAJOR ? (size_t)k * o.pitch + mn : (size_t)mn * o.pitch + k;
    v[i] = inside ? *(const float4 *)(o.data + at) : float4{};
  }
}
template <bool MN_MAJOR> __device__ __forceinline__ void store_tile(float (*tile)[PITCH], const float4 (&v)[LOADS]) {
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    int index = threadIdx.x + i * THREADS;
    if constexpr (MN_MAJOR) {
      *(float4 *)&tile[index / (TILE_MN / 4)][index % (TILE_MN / 4) * 4] = v[i];
    } else {
      int mn = index / (TILE_K / 4), k = index % (TILE_K / 4) * 4;
      tile[k][mn] = v[i].x;
      tile[k + 1][mn] = v[i].y;
      tile[k + 2][mn] = v[i].z;
      tile[k + 3][mn] = v[i].w;
    }
  }
}

// The mainloop, double-buffered: global loads of the next iteration are in flight while this one multiplies. acc[i] =
// row 8·(thread / 16) + i of a · b, columns 8·(thread % 16) ….
template <bool A_MN_MAJOR>
__device__ __forceinline__ void tile_mainloop(const GemmOperand &a, const GemmOperand &b, Eight (&acc)[8]) {
  __shared__ float tile_a[2][TILE_K][PITCH], tile_b[2][TILE_K][PITCH];
  int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 8;
  float4 next_a[LOADS], next_b[LOADS];
  load_tile<A_MN_MAJOR>(a, 0, next_a);
  load_tile<true>(b, 0, next_b);
  for (int first = 0, buffer = 0; first < a.k_extent; first += TILE_K, buffer ^= 1) {
    store_tile<A_MN_MAJOR>(tile_a[buffer], next_a);
    store_tile<true>(tile_b[buffer], next_b);
    __syncthreads(); // one is enough: this buffer is written again only after the next
    load_tile<A_MN_MAJOR>(a, first + TILE_K, next_a);
    load_tile<true>(b, first + TILE_K, next_b);
#pragma unroll
    for (int k = 0; k < TILE_K; k++) {
      Eight x = load8(&tile_a[buffer][k][row]), y = load8(&tile_b[buffer][k][column]);
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i].v[j] += x.v[i] * y.v[j];
    }
  }
}

// ---- kernels --------------------------------------------------------------------------------------------------------

// to [rows, columns] = rows first … first + rows - 1 of the im2col matrix as floats; rows without data are left alone.
// A thread for every eight columns of a row, columns fastest, so that stores are coalesced.
template <class T>
__global__ void im2col_kernel(const __grid_constant__ Im2colView view, int first, int rows, int columns, float *to) {
  size_t thread = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  int row = (int)(thread / (columns / 8)), column = (int)(thread % (columns / 8)) * 8;
  if (row >= rows || first + row >= view_rows(view)) return;
  Position at = position_of(view, first + row);
  int tap = column / view.in.ldc, taps = view.im2col.x.taps;
  int y = view.im2col.y.in + view.im2col.y.in_stride * at.i + tap / taps,
      x = view.im2col.x.in + view.im2col.x.in_stride * at.j + tap % taps;
  bool inside = y >= 0 && y < view.in.h && x >= 0 && x < view.in.w;
  store8(to + (size_t)row * columns + column,
         inside ? load8(pixel<T>(view.in, at.n, y, x) + column % view.in.ldc) : Eight{});
}

// The filter as the GEMM's B, floats [taps · channels of the operand, n], with n the pitch of the result. A thread for
// every eight columns of a row.
template <class T, bool BACKWARD>
__global__ void filter_matrix_kernel(const __grid_constant__ Im2colView view, const Tensor w, int columns, int n,
                                     float *to) {
  unsigned i = thread_index();
  int k = i / (n / 8), first = i % (n / 8) * 8;
  if (k >= columns) return;
  int c = k % view.in.ldc, tap = k / view.in.ldc;
  tap = filter_tap({c, tap / view.im2col.x.taps, tap % view.im2col.x.taps}, view, w.w);
  Eight e = {};
#pragma unroll
  for (int j = 0; j < 8; j++) {
    int filter = BACKWARD ? c : first + j, channel = BACKWARD ? first + j : c;
    if (filter < w.n) e.v[j] = to_float(((const T *)w.data)[((size_t)filter * w.h * w.w + tap) * w.ldc + channel]);
  }
  store8(to + (size_t)k * n + first, e);
}

// Rows first … first + rows - 1 of one GEMM, a [rows, gemm_k] · b [gemm_k, n]. Grid (threadblock tiles of 128 × 128, N
// fastest; slices); a thread has 8 × 8 accumulators. SPLIT_K: those of slice blockIdx.y go to the workspace [slices,
// rows, n], and split_k_epilogue_kernel finishes them; otherwise the epilogue is here.
template <class T, bool SPLIT_K>
__global__ __launch_bounds__(THREADS, 2) void gemm_kernel(const __grid_constant__ GemmProblem p, int first, int rows,
                                                          const float *a, const float *b, int gemm_k, int slice_k,
                                                          float *workspace) {
  int n = p.out.t.ldc, tiles_n = (n + TILE_MN - 1) / TILE_MN;
  int m0 = blockIdx.x / tiles_n * TILE_MN, n0 = blockIdx.x % tiles_n * TILE_MN;
  int from = SPLIT_K ? blockIdx.y * slice_k : 0, k_extent = SPLIT_K ? min(gemm_k - from, slice_k) : gemm_k,
      valid = min(rows, view_rows(p.view) - first);
  if (m0 >= valid) return;
  Eight acc[8] = {};
  tile_mainloop<false>({a + (size_t)m0 * gemm_k + from, gemm_k, valid - m0, k_extent},
                       {b + (size_t)from * n + n0, n, n - n0, k_extent}, acc);
  int row = m0 + threadIdx.x / 16 * 8, column = n0 + threadIdx.x % 16 * 8;
  if (column >= n) return;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    if (row + i >= valid) continue;
    if constexpr (SPLIT_K)
      store8(workspace + ((size_t)blockIdx.y * rows + row + i) * n + column, acc[i]);
    else
      problem_store8<T>(p, first + row + i, column, acc[i]);
  }
}

// The split-K reduction: slices are added in order, then the epilogue. A thread for every eight columns of a row.
template <class T>
__global__ void split_k_epilogue_kernel(const __grid_constant__ GemmProblem p, int first, int rows, int slices,
                                        const float *workspace) {
  int n = p.out.t.ldc;
  unsigned i = thread_index();
  int row = i / (n / 8), column = i % (n / 8) * 8;
  if (row >= min(rows, view_rows(p.view) - first)) return;
  Eight acc = load8(workspace + (size_t)row * n + column);
  for (int k = 1; k < slices; k++) {
    Eight next = load8(workspace + ((size_t)k * rows + row) * n + column);
#pragma unroll
    for (int j = 0; j < 8; j++) acc.v[j] += next.v[j];
  }
  problem_store8<T>(p, first + row, column, acc);
}

// wgrad: slice blockIdx.y of the workspace [slices, m, n] (+)= dyᵀ · x over its slice_k of a chunk of `pixels`, whose
// first is `first` of the view; dy [pixels, m], x [pixels, n], the im2col matrix. Grid (threadblock tiles of 128 × 128,
// N fastest; slices). `add`: a chunk before this one has filled the workspace.
__global__ __launch_bounds__(THREADS, 2) void wgrad_gemm_kernel(const __grid_constant__ Im2colView view, int first,
                                                                int pixels, int slice_k, const float *dy, int m,
                                                                const float *x, int n, SplitKWorkspace workspace,
                                                                bool add) {
  int tiles_n = (n + TILE_MN - 1) / TILE_MN, m0 = blockIdx.x / tiles_n * TILE_MN, n0 = blockIdx.x % tiles_n * TILE_MN;
  int from = blockIdx.y * slice_k, k_extent = min(min(pixels, view_rows(view) - first) - from, slice_k);
  Eight acc[8] = {};
  if (k_extent > 0)
    tile_mainloop<true>({dy + (size_t)from * m + m0, m, m - m0, k_extent},
                        {x + (size_t)from * n + n0, n, n - n0, k_extent}, acc);
  int row = m0 + threadIdx.x / 16 * 8, column = n0 + threadIdx.x % 16 * 8;
  if (column >= n || row >= m) return;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float *to = workspace.data + blockIdx.y * workspace.stride + (size_t)(row + i) * workspace.pitch + column;
    if (add) {
      Eight old = load8(to);
#pragma unroll
      for (int j = 0; j < 8; j++) acc[i].v[j] += old.v[j];
    }
    store8(to, acc[i]);
  }
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static int chunk_rows(const Im2colView &view) {
  int rows = CHUNK_FLOATS / MAX(view_columns(view), 1) / TILE_MN * TILE_MN;
  return MIN(MAX(rows, TILE_MN), view_capacity(view));
}

// A tensor with one tap, stride 1, no padding and the type of the GEMM is its own im2col matrix.
static bool is_im2col_matrix(const Im2colView &view) {
  const Im2colAxis &y = view.im2col.y, &x = view.im2col.x;
  return view.in.dtype == F32 && y.taps * x.taps == 1 && y.in_stride == 1 && x.in_stride == 1 && !y.in && !x.in &&
         y.size == view.in.h && x.size == view.in.w;
}

// Rows of the im2col matrix from `first` on: in `workspace`, unless the tensor is the matrix.
static const float *im2col_matrix(Device *dev, const Im2colView &view, int first, int rows, float *workspace) {
  int columns = view_columns(view);
  if (is_im2col_matrix(view)) return (const float *)view.in.data + (size_t)first * columns;
  int blocks = blocks_for((size_t)rows * (columns / 8), THREADS);
  if (!blocks) return workspace; // no taps: K is 0
  WITH_TYPE(view.in.dtype, T,
            { im2col_kernel<T><<<blocks, THREADS, 0, stream_of(dev)>>>(view, first, rows, columns, workspace); });
  LAUNCH_CHECK();
  return workspace;
}

static int tiles(int m, int n) { return blocks_for(m, TILE_MN) * blocks_for(n, TILE_MN); }

// K of a split-K slice. K is split where few tiles would leave a GPU idle, if a slice is long enough to be worth the
// extra pass, and wherever one long sum would round too much. By shapes alone, or the bits would differ from one GPU to
// the next.
static int split_k_extent(int gemm_k, int tiles) {
  int slices = MAX(MIN(FILL_BLOCKS / MAX(tiles, 1), gemm_k / MIN_SLICE_K), blocks_for(gemm_k, MAX_SLICE_K));
  return MAX(blocks_for(gemm_k, MAX(slices, 1) * TILE_K), 1) * TILE_K;
}

// Of a chunk of rows. Forward splits only K, because an image's result must not depend on the rest of the batch.
template <bool BACKWARD> static int chunk_slice_k(const GemmProblem &p) {
  int blocks = BACKWARD ? tiles(chunk_rows(p.view), p.out.t.ldc) : FILL_BLOCKS;
  return split_k_extent(view_columns(p.view), blocks);
}

// Floats of workspace for the slices of a chunk of rows; 0 where K is not split.
template <bool BACKWARD> static size_t workspace_floats(const GemmProblem &p) {
  int slices = blocks_for(view_columns(p.view), chunk_slice_k<BACKWARD>(p));
  return slices > 1 ? (size_t)slices * chunk_rows(p.view) * p.out.t.ldc : 0;
}

static size_t im2col_floats(const Im2colView &view) {
  return is_im2col_matrix(view) ? 0 : (size_t)view_columns(view) * chunk_rows(view);
}

template <bool BACKWARD>
static void compute_problem(Device *dev, const GemmProblem &p, const Tensor *w, float *filter) {
  const Im2colView &view = p.view;
  int k_extent = view_columns(view), n = p.out.t.ldc, chunk = chunk_rows(view), slice_k = chunk_slice_k<BACKWARD>(p);
  int slices = MAX(blocks_for(k_extent, slice_k), 1);
  float *columns = filter + (size_t)k_extent * n, *workspace = columns + im2col_floats(view);
  cudaStream_t stream = stream_of(dev);
  if (k_extent) {
    int blocks = blocks_for((size_t)k_extent * (n / 8), THREADS);
    WITH_TYPE(w->dtype, T,
              { filter_matrix_kernel<T, BACKWARD><<<blocks, THREADS, 0, stream>>>(view, *w, k_extent, n, filter); });
    LAUNCH_CHECK();
  }
  for (int first = 0, rows; first < view_capacity(view); first += rows) {
    rows = MIN(chunk, view_capacity(view) - first);
    const float *a = im2col_matrix(dev, view, first, rows, columns);
    int blocks = tiles(rows, n);
    WITH_TYPE(w->dtype, T, {
      if (slices == 1) {
        gemm_kernel<T, false><<<blocks, THREADS, 0, stream>>>(p, first, rows, a, filter, k_extent, k_extent, NULL);
      } else {
        gemm_kernel<T, true>
            <<<dim3(blocks, slices), THREADS, 0, stream>>>(p, first, rows, a, filter, k_extent, slice_k, workspace);
        split_k_epilogue_kernel<T>
            <<<blocks_for((size_t)rows * (n / 8), THREADS), THREADS, 0, stream>>>(p, first, rows, slices, workspace);
      }
    });
    LAUNCH_CHECK();
  }
}

template <bool BACKWARD>
static void compute(Device *dev, const Conv *conv, int pairs, const Tensor *in, const Tensor *w, const Dest *out) {
  size_t most = 0;
  for_each_problem(conv, pairs, in, w, out, BACKWARD, [&](const GemmProblem &p) {
    size_t filter = (size_t)view_columns(p.view) * p.out.t.ldc;
    most = MAX(most, filter + im2col_floats(p.view) + workspace_floats<BACKWARD>(p));
  });
  float *workspace = (float *)device_workspace(dev, most * sizeof(float));
  if (dev->measuring) return;
  for_each_problem(conv, pairs, in, w, out, BACKWARD,
                   [&](const GemmProblem &p) { compute_problem<BACKWARD>(dev, p, w, workspace); });
}

// Every pair and chunk adds to the same slices, one launch after the other.
static void wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out) {
  static const Conv one_by_one = {1, 0};
  const Tensor *dw = &out->dw, one = tensor(F32, 0, 1, 1, 0);
  Im2colView gx[CONV_MAX_PAIRS], gy[CONV_MAX_PAIRS];
  int m = dy->ldc, n = dw->h * dw->w * dw->ldc, chunk = 0;
  for (int i = 0; i < pairs; i++) {
    gx[i] = wgrad_view(&conv[0], &x[i], dw, &dy[i]);
    gy[i] = wgrad_view(&one_by_one, &dy[i], &one, &dy[i]);
    chunk = MAX(chunk, chunk_rows(gx[i]));
  }
  SplitKWorkspace partial = {NULL, blocks_for(chunk, split_k_extent(chunk, tiles(m, n))), n, (size_t)m * n};
  size_t partial_floats = partial.slices * partial.stride, dy_floats = (size_t)chunk * m, x_floats = (size_t)chunk * n;
  float *workspace = (float *)device_workspace(dev, (partial_floats + dy_floats + x_floats) * sizeof(float));
  if (!workspace) return;
  partial.data = workspace;
  bool add = false;
  for (int i = 0; i < pairs; i++)
    for (int first = 0, pixels; first < view_capacity(gx[i]); first += pixels, add = true) {
      pixels = MIN(chunk, view_capacity(gx[i]) - first);
      const float *a = im2col_matrix(dev, gy[i], first, pixels, workspace + partial_floats);
      const float *b = im2col_matrix(dev, gx[i], first, pixels, workspace + partial_floats + dy_floats);
      dim3 grid(tiles(m, n), partial.slices);
      wgrad_gemm_kernel<<<grid, THREADS, 0, stream_of(dev)>>>(gx[i], first, pixels, blocks_for(pixels, partial.slices),
                                                              a, m, b, n, partial, add);
      LAUNCH_CHECK();
    }
  split_k_reduce(dev, partial, out);
}

extern "C" const Rung rung_im2col = {"im2col", im2col_supports, compute<false>, compute<true>, wgrad};
