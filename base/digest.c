#include "base/digest.h"
#include "base/basics.h"

enum { LANES = 8, STRIPE = LANES * 8 };

static uint64_t step(uint64_t lane, uint64_t word) {
  const uint64_t mixed = (lane ^ word) * 0x9e3779b185ebca87u; // xxHash's first prime
  return mixed << 29 | mixed >> 35;
}

static uint64_t word_at(const unsigned char *p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

// The last word is padded with zeros, and the number of bytes counts.
static uint64_t digest_words(const unsigned char *p, size_t n) {
  uint64_t lane[LANES], digest = n;
  for (uint64_t i = 0; i < LANES; i++) lane[i] = i;
  for (; n >= STRIPE; p += STRIPE, n -= STRIPE)
    for (int i = 0; i < LANES; i++) lane[i] = step(lane[i], word_at(p + 8 * i));
  for (; n >= 8; p += 8, n -= 8) digest = step(digest, word_at(p));
  uint64_t rest = 0;
  if (n) memcpy(&rest, p, n);
  digest = step(digest, rest);
  for (int i = 0; i < LANES; i++) digest = step(digest, lane[i]);
  return digest;
}

size_t digest_blocks(size_t n) { return (n + DIGEST_BLOCK - 1) / DIGEST_BLOCK; }

// Spreads every bit over all of them; one-to-one.
static uint64_t finish(uint64_t digest) {
  digest = (digest ^ digest >> 33) * 0xff51afd7ed558ccdu;
  digest = (digest ^ digest >> 33) * 0xc4ceb9fe1a85ec53u;
  return digest ^ digest >> 33;
}

uint64_t digest_block(const void *bytes, size_t n, size_t block) {
  const size_t begin = block * DIGEST_BLOCK;
  return digest_words((const unsigned char *)bytes + begin, MIN(n - begin, DIGEST_BLOCK));
}

uint64_t digest_all(const void *bytes, size_t n) {
  uint64_t digest = 0;
  for (size_t k = 0; k < digest_blocks(n); k++) digest = step(digest, digest_block(bytes, n, k));
  return finish(digest);
}

uint64_t digest_join(const uint64_t *parts, size_t n) {
  uint64_t digest = 0;
  for (size_t i = 0; i < n; i++) digest = step(digest, parts[i]);
  return finish(digest);
}

void digest_write(uint64_t digest, char digits[DIGEST_DIGITS]) {
  for (int i = 0; i < DIGEST_DIGITS; i++) digits[i] = "0123456789abcdef"[digest >> (60 - 4 * i) & 15];
}

bool digest_read(const char *text, uint64_t *digest) {
  *digest = 0;
  for (int i = 0; i < DIGEST_DIGITS; i++) {
    const char *digits = "0123456789abcdef", *d = text[i] ? strchr(digits, text[i]) : NULL;
    if (!d) return false;
    *digest = *digest << 4 | (uint64_t)(d - digits);
  }
  return true;
}
