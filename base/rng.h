// Counter-based random numbers: a value is a pure function of its key, so the order of evaluation, the number of
// threads and the device do not matter, and a resumed run draws what the uninterrupted one would have drawn.
// The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
// 2014).
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define HD __host__ __device__
#else
#define HD
#endif

// What a draw is for; the first word of every key, so that two uses of one (seed, epoch, image) never share numbers.
enum RngUse {
  RNG_ORDER = 1,
  RNG_FLIP,
  RNG_SIZE,
  RNG_RPN,
  RNG_ROI,
  RNG_INIT,
  RNG_REPLACE,
  RNG_SHAPES,
  RNG_TEST,
  RNG_AUGMENT,
  RNG_SPLIT,
  RNG_DROPOUT,
  RNG_PASTE
};

static inline HD uint64_t rng_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
// Chains one more word onto a key.
static inline HD uint64_t rng_key(uint64_t key, uint64_t word) { return rng_mix(key ^ rng_mix(word)); }
// 32 random bits for element i of a key.
static inline HD uint32_t rng_u32(uint64_t key, uint64_t i) { return (uint32_t)(rng_key(key, i) >> 32); }
// Uniform in [0, 1), 24 bits.
static inline HD float rng_uniform(uint64_t key, uint64_t i) { return (float)(rng_u32(key, i) >> 8) * 0x1p-24f; }
