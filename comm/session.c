#include "comm/session.h"
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void random_bytes(uint8_t bytes[SHA256_BYTES]) { CHECK(getrandom(bytes, SHA256_BYTES, 0) == SHA256_BYTES); }

void hex_of(const uint8_t bytes[SHA256_BYTES], char text[NONCE_TEXT]) {
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(text + 2 * (size_t)i, 3, "%02x", bytes[i]);
}

bool hex_parse(uint8_t bytes[SHA256_BYTES], const char *text) {
  static const char digits[] = "0123456789abcdef";
  if (strlen(text) != NONCE_TEXT - 1 || strspn(text, digits) != NONCE_TEXT - 1) return false;
  for (int i = 0; i < SHA256_BYTES; i++)
    bytes[i] = (uint8_t)(16 * (strchr(digits, text[2 * i]) - digits) + (strchr(digits, text[2 * i + 1]) - digits));
  return true;
}

void nonce_draw(char text[NONCE_TEXT]) {
  uint8_t bytes[SHA256_BYTES];
  random_bytes(bytes);
  hex_of(bytes, text);
}

bool nonce_is(const char *text) {
  uint8_t bytes[SHA256_BYTES];
  return hex_parse(bytes, text);
}

static void add_frame(Hmac *h, const Frame *f) {
  uint8_t head[WIRE_HEAD];
  frame_head(f, head);
  hmac_add(h, head, sizeof head);
  hmac_add(h, f->text, strlen(f->text));
}

void session_key(uint8_t session[SHA256_BYTES], const uint8_t key[SHA256_BYTES], const Frame *hello,
                 const Frame *challenge) {
  Hmac h;
  hmac_begin(&h, key, SHA256_BYTES);
  add_frame(&h, hello);
  add_frame(&h, challenge);
  hmac_end(&h, session);
}
