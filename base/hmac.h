// SHA-256 (FIPS 180-4) and HMAC-SHA256 (RFC 2104): a keyed hash, by which whoever knows a key proves it, and shows that
// data have not been changed. For a few hundred bytes at a time; for recognising large data: base/digest.h.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32 };

typedef struct Sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64]; // of which bytes % 64 are used
} Sha256;

void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *p, size_t bytes);
void sha256_end(Sha256 *s, uint8_t digest[SHA256_BYTES]);

typedef struct Hmac {
  Sha256 inner, outer;
} Hmac;

void hmac_begin(Hmac *h, const void *key, size_t bytes);
void hmac_add(Hmac *h, const void *p, size_t bytes);
void hmac_end(Hmac *h, uint8_t mac[SHA256_BYTES]);
// The HMAC of a text.
void hmac_text(const uint8_t key[SHA256_BYTES], const char *text, uint8_t mac[SHA256_BYTES]);

// Whether two secrets are equal, in a time that does not depend on where they differ.
bool secret_equal(const void *a, const void *b, size_t bytes);
