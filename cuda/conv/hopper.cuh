// Hopper's own instructions (sm_90a), a wrapper each: the tensor memory accelerator (TMA), mbarriers and the pipeline
// built on them, clusters and distributed shared memory, named barriers, setmaxnreg. On
// the host, the tensor maps by which TMA knows a tensor. Names of PTX are in parentheses. hopper_wgmma.cuh has the
// tensor cores'.
//
// Tiles are rows of 128 bytes in the 128-byte swizzle: 16-byte chunk j of row i lies at chunk j ^ (i % 8). TMA writes
// and wgmma reads them like that, so that eight rows of a column are in different banks. Both go by addresses, so that
// tiles begin at multiples of 1024. (In the 32-byte swizzle, chunk j of row i lies at j ^ (i / 4 % 2), and 256 takes
// the place of 1024.)
#pragma once
#include <cuda.h> // types and constants alone; no function of the driver is linked
#include "cuda/common.cuh"
#include "cuda/conv/ptx.cuh"
extern "C" {
#include "exact/im2col.h"
}

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
static constexpr bool HAS_WGMMA = false;
#else
static constexpr bool HAS_WGMMA = true;
#endif

enum {
  WARPGROUP = 128,
  SWIZZLE_ROW = 128,       // bytes
  SWIZZLE_ATOM = 1024,     // eight rows, after which the swizzle repeats
  MAX_ADDRESS = 1 << 18,   // of a matrix descriptor
  MAX_SHARED = 227 * 1024, // that a block may have
  MAX_POLLS = 1 << 28,     // minutes: a barrier that is still waited for then never completes
};

// An address in shared memory, computed once and kept in a register (volatile): a special register, which is slow to
// read, is part of it.
__device__ __forceinline__ uint32_t pinned_address(const void *p) {
  uint32_t address;
  asm volatile("{\n.reg .u64 wide;\ncvta.to.shared.u64 wide, %1;\ncvt.u32.u64 %0, wide;\n}" : "=r"(address) : "l"(p));
  return address;
}

// ---- mbarriers, the pipeline ----------------------------------------------------------------------------------------

// A barrier completes a phase when `count` threads have arrived and the transaction count is back at zero. Waiting is
// for the end of the phase of a parity: 0 first, then 1, 0, …; before the first phase has ended, waiting for parity 1
// returns at once.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// After the inits, before others use the barriers: TMA, in the async proxy, sees them.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and raises the transaction count (mbarrier.arrive.expect_tx).
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// The address of the same variable in the shared memory of block `rank` of the cluster (mapa).
__device__ __forceinline__ uint32_t remote_address(uint32_t address, int rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
// Without .release.cluster: a release at that scope is a fence for the whole GPU, and costs 600 cycles; the pipeline
// needs none, since stages are read by wgmma and written by TMA alone.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  for (int polls = 0;; polls++) {
    uint32_t done;
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    if (done) return;
    // An error that is reported, where a hang would not be. (A trap here makes ptxas spill the accumulators of large
    // tiles.)
    if (polls == MAX_POLLS) *(volatile int *)NULL = 0;
  }
}

// The pipeline of stages between producer and consumer warps: each stage has a full and an empty barrier. Everyone who
// takes part goes round the stages with a PipelineState of its own.
template <int STAGES> struct PipelineBarriers { uint64_t full[STAGES], empty[STAGES]; };
// By one thread, before the others use it: arrivals that make a stage full, and empty again.
template <int STAGES>
__device__ __forceinline__ void pipeline_init(PipelineBarriers<STAGES> &b, int producers, int consumers) {
  uint32_t full = pinned_address(b.full), empty = pinned_address(b.empty);
#pragma unroll
  for (int i = 0; i < STAGES; i++) {
    barrier_init(full + 8 * i, producers);
    barrier_init(empty + 8 * i, consumers);
  }
  barrier_init_fence();
}
template <int STAGES> struct PipelineState {
  uint32_t full, empty; // of the current stage
  int stage = 0;
  uint32_t parity = 0;

  __device__ PipelineState(PipelineBarriers<STAGES> &b)
      : full(pinned_address(b.full)), empty(pinned_address(b.empty)) {}
  __device__ __forceinline__ void wait_full() const { barrier_wait(full, parity); }
  __device__ __forceinline__ void wait_empty() const { barrier_wait(empty, parity ^ 1); }
  __device__ __forceinline__ void advance() {
    full += 8;
    empty += 8;
    if (++stage == STAGES) {
      full -= 8 * STAGES;
      empty -= 8 * STAGES;
      stage = 0;
      parity ^= 1;
    }
  }
};

// ---- shared memory by threads ---------------------------------------------------------------------------------------

__device__ __forceinline__ void store_shared(uint32_t to, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
__device__ __forceinline__ float2 load_shared(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}
template <class T> __device__ __forceinline__ void store_shared_zero(uint32_t to) {
  if constexpr (sizeof(T) == 2)
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(to), "h"((uint16_t)0) : "memory");
  else
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(0) : "memory");
}
__device__ __forceinline__ float4 load_shared16(uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
// To the distributed shared memory: that of any block of the cluster.
__device__ __forceinline__ void store_cluster(uint32_t to, const float4 &v) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
               : "memory");
}
__device__ __forceinline__ void prefetch_l2(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// Four 8 × 8 matrices of 16-bit elements (ldmatrix, stmatrix), of which a lane has a pair: row lane / 4, columns 2 ·
// (lane % 4) and the next. Lanes 8i … give the addresses of the rows of the i-th.
__device__ __forceinline__ void ldmatrix_pairs(uint32_t (&m)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void stmatrix_pairs(uint32_t to, const uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(m[0]), "r"(m[1]),
               "r"(m[2]), "r"(m[3])
               : "memory");
}

// The same of the transposed matrices: a lane has column lane / 4, rows 2 · (lane % 4) and the next.
__device__ __forceinline__ void stmatrix_transposed(uint32_t to, const uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(m[0]), "r"(m[1]),
               "r"(m[2]), "r"(m[3])
               : "memory");
}

// max(v, 0), NaN where v is, in one instruction.
__device__ __forceinline__ float positive_part(float v) {
  float positive;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(positive) : "f"(v));
  return positive;
}

// ---- clusters, dependent launches, named barriers, registers --------------------------------------------------------

// Execution barrier of all threads of a cluster (barrier.cluster, relaxed): memory accesses are not ordered by it,
// which would cost a fence for the whole GPU.
__device__ __forceinline__ void cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The same with release and acquire: all see what the others have written to distributed shared memory.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// The host's side: blocks in clusters of so many neighbours.
static inline cudaLaunchAttribute cluster_attribute(int cluster) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  return attribute;
}
template <class Params>
static void launch_clusters(Device *dev, void (*kernel)(Params), int cluster, int blocks, int threads, int shared,
                            const Params &params) {
  cudaLaunchAttribute attribute = cluster_attribute(cluster);
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream_of(dev);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params));
}
// A value that is equal in all lanes of a warp, made so for the compiler, which can then keep it in a uniform register.
__device__ __forceinline__ int uniform(int v) { return __shfl_sync(~0u, v, 0); }
// Named barriers (bar.sync, bar.arrive): complete when as many threads have come (a multiple of 32), wherever in the
// code each warp is; some wait, some only arrive.
__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// By one thread, for the 32 of its warp, the others of which have exited: they are counted together
// (barrier.cta.arrive, without .aligned).
__device__ __forceinline__ void named_arrive_for_warp(int barrier, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// All threads of a warpgroup.
__device__ __forceinline__ void warpgroup_sync(int warpgroup) { named_sync(1 + warpgroup, WARPGROUP); }
// The calling warpgroup gives back registers down to N, or takes some until it has N a thread (setmaxnreg).
template <int N> __device__ __forceinline__ void registers_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void registers_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- TMA ------------------------------------------------------------------------------------------------------------

// Copies are issued by one thread and arrive as bytes in an mbarrier's transaction count; what lies outside the tensor
// arrives as zeros.

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap *map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// The generic address of an array among the kernel's parameters. A map that is prefetched by an index known at run time
// is indexed from here: the offset is then added behind the conversion to a generic address (cvta.param). Where it is
// added before, ptxas 12.4 and 12.5 leave the conversion out for prefetch.tensormap, and the offset itself, 48 past a
// multiple of 64 perhaps, is the address that the GPU finds misaligned.
template <class T> __device__ __forceinline__ const T *generic_parameters(const T *array) {
  asm volatile("" : "+l"(array));
  return array;
}
// L2 eviction priority of the lines that a copy reads: normal, or first to be evicted. The constants are what
// createpolicy.fractional.L2::evict_normal and evict_first return; the instruction would delay the copy.
static constexpr uint64_t EVICT_NORMAL = 0x1000000000000000, EVICT_FIRST = 0x12f0000000000000;

// Tiled mode: the box at (x, y, z, n) of a tensor, x being contiguous.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap *map, uint32_t barrier, int x, int y, int z,
                                         int n, uint64_t policy = EVICT_NORMAL) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(n), "l"(policy)
               : "memory");
}
// Im2col mode: channels c … of a run of pixels, of which the first is (y, x) of image n before the tap's offset is
// added.
__device__ __forceinline__ void tma_load_im2col(uint32_t to, const CUtensorMap *map, uint32_t barrier, int c, int x,
                                                int y, int n, int tap_x, int tap_y, uint64_t policy = EVICT_NORMAL) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint"
               " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(c), "r"(x), "r"(y), "r"(n), "h"((uint16_t)tap_x), "h"((uint16_t)tap_y),
               "l"(policy)
               : "memory");
}

// Tiled mode, into the shared memory of every block of the cluster whose bit is set, at the same address in each, where
// the barrier at the same address counts what that block gets.
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap *map, uint32_t barrier, int x, int y,
                                                   int z, int n, int blocks) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(n), "h"((uint16_t)blocks)
               : "memory");
}

// A proxy fence: between ordinary writes to shared memory and the TMA store, or the wgmma, that reads them.
__device__ __forceinline__ void shared_write_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Stores, in bulk groups: a box to (x, y, z, n), or pixels from (y, x) of image n on (im2col). What lies outside the
// tensor is not written.
__device__ __forceinline__ void tma_store(const CUtensorMap *map, uint32_t from, int x, int y, int z, int n) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z), "r"(n)
               : "memory");
}
__device__ __forceinline__ void tma_store_im2col(const CUtensorMap *map, uint32_t from, int c, int x, int y, int n) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(from), "r"(c), "r"(x), "r"(y), "r"(n)
      : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the stores of all but the last `PENDING` bulk groups of this thread have read shared memory. Their writes end
// with the kernel.
template <int PENDING = 0> __device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// ---- tensor maps, on the host ---------------------------------------------------------------------------------------

// A function of the driver, found at run time.
template <class Function> static Function *driver_function(const char *name) {
  void *found = NULL;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050 // before, this is not there; from 13.0 on, the other is not
  CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
#else
  CUDA_CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess)
    die(EXIT_RUN, "the driver lacks %s: update it to one for CUDA 12 or later", name);
  return (Function *)found;
}
// What a map is for. TMA rounds floats that are wgmma's operands to TF32, to nearest and ties to even; wgmma itself
// would truncate their last 13 bits. Promoted: L2 reads 256 bytes at a time from memory.
enum MapUse { MAP_OPERAND, MAP_OPERAND_PROMOTED, MAP_RESULT };
static inline CUtensorMapDataType map_type(DType t, MapUse use) {
  CHECK(t == BF16 || t == F16 || t == F32);
  if (t == F32) return use == MAP_RESULT ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  return t == BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}
static inline CUtensorMapL2promotion map_promotion(MapUse use) {
  return use == MAP_OPERAND_PROMOTED ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
}

// Tiled mode, data [n, z, y, x], sizes given from x on, strides in bytes from y on, with boxes of `box`. A box's x
// extent is a swizzled row of 32 or 128 bytes.
static inline CUtensorMap map_strided(const void *data, DType dtype, const size_t (&size)[4], const size_t (&stride)[3],
                                      const int (&box)[4], MapUse use) {
  static auto *const encode = driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  cuuint64_t sizes[4], strides[3];
  cuuint32_t boxes[4], step[4];
  for (int i = 0; i < 4; i++) {
    sizes[i] = size[i];
    boxes[i] = box[i];
    step[i] = 1;
    if (i) strides[i - 1] = stride[i - 1];
  }
  bool narrow = box[0] * dtype_size(dtype) == 32;
  CUtensorMap map;
  CHECK(!encode(&map, map_type(dtype, use), 4, (void *)data, sizes, strides, boxes, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                narrow ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_128B, map_promotion(use),
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}
// The same of data without gaps.
static inline CUtensorMap map_tiled(const void *data, DType dtype, const size_t (&size)[4], const int (&box)[4],
                                    MapUse use = MAP_OPERAND) {
  const size_t row = size[0] * dtype_size(dtype);
  return map_strided(data, dtype, size, {row, row * size[1], row * size[1] * size[2]}, box, use);
}

// Filters [filters, taps, channels].
static inline CUtensorMap map_filters(const Tensor *w, int channels, int filters) {
  return map_tiled(w->data, w->dtype, {(size_t)w->ldc, (size_t)w->h * w->w, (size_t)w->n, 1},
                   {channels, 1, filters, 1});
}
// A tensor's pixels in the order of memory, [pixels, channels].
static inline CUtensorMap map_pixels(const Tensor *t, int channels, int pixels, MapUse use = MAP_OPERAND) {
  return map_tiled(t->data, t->dtype, {(size_t)t->ldc, 1, tensor_pixels(t), 1}, {channels, 1, pixels, 1}, use);
}

// The corners of the im2col mode's bounding box: how far the first tap of the first output pixel lies from the tensor's
// first pixel, and that of the last from the tensor's last.
static inline int corner_lower(const Im2colAxis *a) { return a->in; }
static inline int corner_upper(const Im2colAxis *a, int size) {
  return a->in + (a->size - 1) * a->in_stride + 1 - size;
}

// Im2col mode, pixels [n, h, w, channels], of which a copy is `pixels` in a row, a swizzled row of `channels` each.
// Output pixels lie between the corners, `step` apart. Sizes from the channels on, what is said of pixels from w on.
struct Im2colMap {
  const void *data;
  DType dtype;
  size_t size[4], stride[3]; // stride: bytes to the next pixel, row, image
  int lower[2], upper[2], step[2];
};
static inline CUtensorMap encode_im2col(const Im2colMap &m, int channels, int pixels, MapUse use) {
  static auto *const encode = driver_function<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  cuuint64_t size[4], stride[3];
  for (int i = 0; i < 4; i++) size[i] = m.size[i];
  for (int i = 0; i < 3; i++) stride[i] = m.stride[i];
  cuuint32_t step[] = {1, (cuuint32_t)m.step[0], (cuuint32_t)m.step[1], 1};
  bool narrow = channels * dtype_size(m.dtype) == 32;
  CUtensorMap map;
  CHECK(!encode(&map, map_type(m.dtype, use), 4, (void *)m.data, size, stride, m.lower, m.upper, channels, pixels, step,
                CU_TENSOR_MAP_INTERLEAVE_NONE, narrow ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_128B,
                map_promotion(use), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}
// Loads of an im2col matrix: the pixels under the first tap of its output pixels, in rows of so many bytes.
static inline CUtensorMap map_im2col(const Tensor *t, const Im2col *im2col, int pixels, MapUse use = MAP_OPERAND,
                                     int row = SWIZZLE_ROW) {
  const Im2colAxis *y = &im2col->y, *x = &im2col->x;
  size_t pixel = t->ldc * dtype_size(t->dtype);
  return encode_im2col({t->data,
                        t->dtype,
                        {(size_t)t->ldc, (size_t)t->w, (size_t)t->h, (size_t)t->n},
                        {pixel, t->w * pixel, (size_t)t->h * t->w * pixel},
                        {corner_lower(x), corner_lower(y)},
                        {corner_upper(x, t->w), corner_upper(y, t->h)},
                        {x->in_stride, y->in_stride}},
                       row / dtype_size(t->dtype), pixels, use);
}
// The same, but in tiled mode where the im2col matrix is the tensor itself.
static inline CUtensorMap map_im2col_rows(const Tensor *t, const Im2col *im2col, int rows, MapUse use = MAP_OPERAND) {
  if (!im2col_is_identity(im2col, t)) return map_im2col(t, im2col, rows, use);
  return map_pixels(t, SWIZZLE_ROW / (int)dtype_size(t->dtype), rows, use);
}
// Whether a map of the im2col mode can say it: its corners lie within 128 pixels, by the filter's size, and its strides
// are up to 8.
static inline bool map_im2col_fits(const Conv *conv, const Tensor *w) {
  return MAX(w->h, w->w) + 2 * conv->pad + conv->stride <= 100 && conv->stride <= 8;
}
// Stores of a GEMM's rows: the pixels of the result that a view's output pixels are.
static inline CUtensorMap map_result(const Tensor *t, const Im2col *im2col, int channels, int pixels) {
  const Im2colAxis *y = &im2col->y, *x = &im2col->x;
  size_t pixel = t->ldc * dtype_size(t->dtype), row = t->w * pixel;
  return encode_im2col({(const char *)t->data + y->out * row + x->out * pixel,
                        t->dtype,
                        {(size_t)t->ldc, (size_t)x->size, (size_t)y->size, (size_t)t->n},
                        {x->out_stride * pixel, y->out_stride * row, t->h * row},
                        {0, 0},
                        {0, 0},
                        {1, 1}},
                       channels, pixels, MAP_RESULT);
}
