// Digests: 64 bits by which data are recognised, not protected. Word by word, so that they cost next to nothing.
#pragma once
#include <stdint.h>
#include <string.h>

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
