// The gradients by filter in TF32: wgmma takes floats K-major only, and K are the pixels, while memory has a pixel's
// channels together.
#pragma once
#include "cuda/conv/split_k.cuh"
#include "cuda/conv/wgmma.cuh"

enum {
  TILE_K = 32,   // pixels: a row of a K-major tile
  CHANNELS = 32, // of a panel: a swizzled row of floats
  TF32_K = 8,    // of one wgmma
  K_BLOCKS = TILE_K / TF32_K,
  TURNED = 3, // K-major tiles: one is written, and two are read, of the one warpgroup and of the other
};
static constexpr int PANEL_FLOATS = TILE_K * SWIZZLE_ROW; // bytes

// Where column k of a K-major tile comes from: wgmma's columns t and t + 4 of eight are pixels 2t and 2t + 1, since a
// warp can then read A from different banks.
//
// turn: x of a stage, panels [pixels, channels] that lie `apart`, to `tile` [channels, columns], by eight warps;
// `sums`: by channel, of the thread's pixels. A warp has four columns of all panels: its lanes read 16 bytes of each
// of four pixels, and store the four channels one by one, each lane beginning with another, so that all 32 meet
// different banks.
struct PixelTransposer {
  uint32_t from, to[4];
  bool odd, upper; // of the lane's pair of channels' chunks
  __device__ PixelTransposer() {
    const int warp = threadIdx.x / 32, q = threadIdx.x % 8, t = threadIdx.x % 32 / 8;
    const int pixel = warp / 2 * 8 + 2 * t + warp % 2;
    from = pixel * SWIZZLE_ROW + (q ^ pixel % 8) * 16;
#pragma unroll
    for (int s = 0; s < 4; s++) {
      const int channel = 4 * q + (s + q / 2) % 4;
      to[s] = channel * SWIZZLE_ROW + (warp ^ channel % 8) * 16 + t * 4;
    }
    odd = q / 2 % 2;
    upper = q / 4;
  }
  template <int PANELS>
  __device__ __forceinline__ void turn(uint32_t x, uint32_t tile, int apart, float4 (*sums)[PANELS] = NULL) const {
    float4 v[PANELS];
#pragma unroll
    for (int i = 0; i < PANELS; i++) v[i] = load_shared16(x + i * apart + from);
    if (sums)
#pragma unroll
      for (int i = 0; i < PANELS; i++) add4((*sums)[i], v[i]);
#pragma unroll
    for (int i = 0; i < PANELS; i++) {
      float4 u = odd ? make_float4(v[i].y, v[i].z, v[i].w, v[i].x) : v[i];
      if (upper) u = make_float4(u.z, u.w, u.x, u.y);
      const float each[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
      for (int s = 0; s < 4; s++)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(tile + i * PANEL_FLOATS + to[s]), "f"(each[s]) : "memory");
    }
  }
};
