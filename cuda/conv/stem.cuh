// What the stem's files share: images, of four channels at most, in shared memory without their padding channels, so
// that descriptors of core matrices reach what lies under every tap. Two pixels side by side, or one of floats, are one
// row of 16 bytes of a core matrix, and four taps side by side are a group: sixteen channels. A row of the filter
// further is a row of the patch further, and a group further is a constant distance. Since descriptors say how far core
// matrices are apart, these overlap as the pixels under neighbouring taps do.
//
// Where a pair of pixels lies, for output pixel m and the i-th pair of taps: pair i begins at pixel stride · m + 2i of
// the patch.
//   stride 1: row m + 2i, and every pixel lies in two rows: that of its own, and that of the pixel to its left;
//   stride 2: row m + i;
//   stride 4: row m + i / 2 of one of two planes, which even and odd pairs have to themselves.
// A pixel of floats, under tap i: row m + i / stride of the plane i % stride of as many planes.
#pragma once
#include "cuda/conv/wgmma.cuh"

enum {
  STEM_CHANNELS = 8, // of a pixel in memory …
  STEM_MOST = 4,     // … of which so many count
  PIXEL_BYTES = 8,   // of these, of 16 bits
  PAIR_BYTES = 16,   // a row of a core matrix: two pixels of 16 bits, or one of floats
  CORE_BYTES = 128,  // of a core matrix: eight rows
  GROUP = 4,         // taps side by side
  TILE_W = WGMMA_M,  // output pixels of a tile
  STEM_FILTERS = 64, // of a block, but of the stride of 4 of floats
  SM_SHARED = 228 * 1024,
  BLOCK_RESERVED = 2048, // of shared memory for each block: static, and the system's
};

// A patch: what a tile of `rows` by TILE_W output pixels sees, and as many taps more as fill `groups`.
struct StemPatch {
  int rows, groups;
  int h, w;      // pixels
  int pitch;     // bytes of a row
  int next_pair; // bytes from the first pair of a group to the second; of floats from the first tap to the second, …
  int next_half; // … and to the third
  int next_group;
  int bytes;
};
static inline StemPatch stem_patch(int stride, int taps_h, int groups, int rows, bool floats = false) {
  StemPatch p = {rows, groups};
  p.h = stride * (rows - 1) + taps_h;
  p.w = stride * (TILE_W - 1) + GROUP * groups;
  int plane = blocks_for(p.w, stride) * PAIR_BYTES; // of a row; of floats an odd number of pixels, for banks
  if (floats) plane |= PAIR_BYTES;
  p.pitch = plane * (floats ? stride : stride == 4 ? 2 : 1);
  p.next_pair = stride == 1 ? 2 * PAIR_BYTES : stride == 2 ? PAIR_BYTES : plane;
  if (floats) p.next_pair = stride == 1 ? PAIR_BYTES : plane;
  p.next_half = stride == 1 ? 2 * PAIR_BYTES : stride == 2 ? PAIR_BYTES : 2 * plane;
  p.next_group = GROUP / stride * PAIR_BYTES;
  p.bytes = p.h * p.pitch;
  return p;
}

// Images and their tiles.
struct StemInput {
  Tensor in;
  int pad, tiles_y, tiles_x; // tiles of an image
  StemPatch patch;
};
static inline StemInput stem_input(const Tensor *x, const Conv *conv, const Tensor *y, const StemPatch &patch) {
  StemInput s = {*x, conv->pad, blocks_for(y->h, patch.rows), blocks_for(y->w, TILE_W), patch};
  CHECK((size_t)x->n * s.tiles_y * s.tiles_x >> 30 == 0); // counted in int, a grid further than the last
  return s;
}
static inline int stem_capacity(const StemInput &s) { return s.in.n * s.tiles_y * s.tiles_x; }
__device__ __forceinline__ int stem_tiles(const StemInput &s) { return rows_of(s.in) * s.tiles_y * s.tiles_x; }

struct StemTile {
  int n, y, x; // its first output pixel
};
__device__ __forceinline__ StemTile stem_tile(const StemInput &s, int tile) {
  int row = tile / s.tiles_x;
  return {row / s.tiles_y, row % s.tiles_y * s.patch.rows, tile % s.tiles_x * TILE_W};
}

// cp_async16 of ptx.cuh, of 8 bytes.
__device__ __forceinline__ void cp_async8(uint32_t to, const void *from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(inside ? 8 : 0) : "memory");
}

// Where pixel i of a patch's row lies in it.
template <class T, int STRIDE> __device__ __forceinline__ int patch_offset(const StemPatch &s, int i) {
  if (sizeof(T) == 4) return i % STRIDE * (s.pitch / STRIDE) + i / STRIDE * PAIR_BYTES;
  return i / STRIDE * PAIR_BYTES + i % STRIDE / 2 * s.next_pair + i % 2 * PIXEL_BYTES;
}

// Starts the copies of a tile's patch, from row `first` on, by so many warps, a row each; zeros outside the image.
template <class T, int STRIDE, int WARPS>
__device__ __forceinline__ void load_patch(const StemInput &s, const StemTile &t, uint32_t patch, int first = 0) {
  int lane = threadIdx.x % 32, x0 = t.x * STRIDE - s.pad;
  for (int row = first + threadIdx.x / 32; row < s.patch.h; row += WARPS) {
    int y = t.y * STRIDE - s.pad + row;
    bool in_row = (unsigned)y < (unsigned)s.in.h;
    const T *from = pixel<T>(s.in, t.n, in_row ? y : 0, 0);
    uint32_t to = patch + row * s.patch.pitch;
    for (int i = lane; i < s.patch.w; i += 32) {
      bool inside = in_row && (unsigned)(x0 + i) < (unsigned)s.in.w;
      const T *source = from + (inside ? (x0 + i) * STEM_CHANNELS : 0);
      if (sizeof(T) == 4) {
        cp_async16(to + patch_offset<T, STRIDE>(s.patch, i), source, inside);
      } else if (STRIDE == 1) {
        cp_async8(to + i * PAIR_BYTES, source, inside);
        if (i > 0) cp_async8(to + i * PAIR_BYTES - PIXEL_BYTES, source, inside);
      } else
        cp_async8(to + patch_offset<T, STRIDE>(s.patch, i), source, inside);
    }
  }
  cp_async_commit();
}
// Four floats, rounded to TF32.
__device__ __forceinline__ void round_shared16(uint32_t to, const float4 &v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(round_to_tf32(v.x)), "f"(round_to_tf32(v.y)),
               "f"(round_to_tf32(v.z)), "f"(round_to_tf32(v.w))
               : "memory");
}
// Rounds to TF32 what this thread has copied of a patch of floats, whose copies are complete.
template <int STRIDE, int WARPS> __device__ __forceinline__ void round_patch(const StemPatch &s, uint32_t patch) {
  for (int row = threadIdx.x / 32; row < s.h; row += WARPS)
    for (int i = threadIdx.x % 32; i < s.w; i += 32) {
      const uint32_t at = patch + row * s.pitch + patch_offset<float, STRIDE>(s, i);
      round_shared16(at, load_shared16(at));
    }
}

// Whether problems are those of images.
static inline bool stem_is(const Conv *conv, const Tensor *x, const Tensor *w) {
  int s = conv->stride;
  return x->ldc == STEM_CHANNELS && w->c <= STEM_MOST && (s == 1 || s == 2 || s == 4) && w->h * w->w > 1;
}
