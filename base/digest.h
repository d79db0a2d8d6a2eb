// Digests: 64 bits by which data are recognised and damage is found, not forgery (for that: base/hmac.h).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// ---- of values, one after the other ---------------------------------------------------------------------------------

static inline uint64_t digest_word(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
  return digest ^ (digest >> 32);
}
static inline uint64_t digest_bytes(uint64_t digest, const void *p, size_t bytes) {
  const char *at = (const char *)p;
  uint64_t word;
  digest = digest_word(digest, bytes);
  for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
    memcpy(&word, at, sizeof word); // of a constant size: a load, not a call
    digest = digest_word(digest, word);
  }
  if (bytes == 0) return digest;
  word = 0;
  memcpy(&word, at, bytes);
  return digest_word(digest, word);
}
static inline uint64_t digest_text(uint64_t digest, const char *text) {
  return digest_bytes(digest, text ? text : "", text ? strlen(text) : 0);
}

// ---- of arrays ------------------------------------------------------------------------------------------------------

// A multiply-rotate hash in eight lanes of 64 bits, as xxHash64 has four (https://github.com/Cyan4973/xxHash). Word w
// of a block goes into lane w mod 8: lane = rotate((lane ^ word) * odd, 29). The step is one-to-one in the lane for a
// given word, and in the word for a given lane, and so is all that follows: damage within one aligned word, such as a
// flipped bit, always changes the digest. Other damage leaves it as it was with a chance of 2^-64.
enum { DIGEST_BLOCK = 1 << 20, DIGEST_DIGITS = 16 };

uint64_t digest_all(const void *bytes, size_t n);
// The same by parts, for several threads: of each block of DIGEST_BLOCK bytes, then of the blocks' digests in order.
size_t digest_blocks(size_t n);
uint64_t digest_block(const void *bytes, size_t n, size_t block);
uint64_t digest_join(const uint64_t *parts, size_t n);
// As lower-case hexadecimal digits, without an end. Reading fails on anything else.
void digest_write(uint64_t digest, char digits[DIGEST_DIGITS]);
bool digest_read(const char *digits, uint64_t *digest);
