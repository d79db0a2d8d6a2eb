#include "base/hmac.h"
#include <string.h>

// The fractional parts of the cube roots of the first 64 primes.
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void add_block(uint32_t state[8], const uint8_t block[64]) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++)
    w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    const uint32_t s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6],
           h = state[7];
  for (int i = 0; i < 64; i++) {
    const uint32_t s1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25), choice = (e & f) ^ (~e & g);
    const uint32_t s0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t t = h + s1 + choice + constants[i] + w[i];
    h = g;
    g = f;
    f = e;
    e = d + t;
    d = c;
    c = b;
    b = a;
    a = t + s0 + majority;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; i++) state[i] += sum[i];
}

void sha256_begin(Sha256 *s) {
  static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  *s = (Sha256){0};
  memcpy(s->state, first, sizeof first);
}

void sha256_add(Sha256 *s, const void *p, size_t bytes) {
  const uint8_t *from = p;
  while (bytes) {
    const size_t used = s->bytes % sizeof s->block, room = sizeof s->block - used, n = bytes < room ? bytes : room;
    memcpy(s->block + used, from, n);
    s->bytes += n;
    from += n;
    bytes -= n;
    if (n == room) add_block(s->state, s->block);
  }
}

void sha256_end(Sha256 *s, uint8_t digest[SHA256_BYTES]) {
  uint8_t length[8];
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)(s->bytes * 8 >> (56 - 8 * i));
  sha256_add(s, "\x80", 1);
  while (s->bytes % sizeof s->block != sizeof s->block - sizeof length) sha256_add(s, "", 1);
  sha256_add(s, length, sizeof length);
  for (int i = 0; i < SHA256_BYTES; i++) digest[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_begin(Hmac *h, const void *key, size_t bytes) {
  uint8_t pad[64] = {0};
  if (bytes > sizeof pad) { // a longer key is replaced by its hash
    sha256_begin(&h->inner);
    sha256_add(&h->inner, key, bytes);
    sha256_end(&h->inner, pad);
  } else if (bytes) {
    memcpy(pad, key, bytes);
  }
  for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
  sha256_begin(&h->inner);
  sha256_add(&h->inner, pad, sizeof pad);
  for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
  sha256_begin(&h->outer);
  sha256_add(&h->outer, pad, sizeof pad);
}

void hmac_add(Hmac *h, const void *p, size_t bytes) { sha256_add(&h->inner, p, bytes); }

void hmac_end(Hmac *h, uint8_t mac[SHA256_BYTES]) {
  sha256_end(&h->inner, mac);
  sha256_add(&h->outer, mac, SHA256_BYTES);
  sha256_end(&h->outer, mac);
}

void hmac_text(const uint8_t key[SHA256_BYTES], const char *text, uint8_t mac[SHA256_BYTES]) {
  Hmac h;
  hmac_begin(&h, key, SHA256_BYTES);
  hmac_add(&h, text, strlen(text));
  hmac_end(&h, mac);
}

bool secret_equal(const void *a, const void *b, size_t bytes) {
  const volatile uint8_t *x = a, *y = b;
  uint8_t differ = 0;
  for (size_t i = 0; i < bytes; i++) differ |= x[i] ^ y[i];
  return !differ;
}
