// Catches a keyed hash that is another than the one it is named after.
#include "base/alloc.h"
#include "base/hmac.h"
#include "test/harness/test.h"

static void expect_hex(const uint8_t *p, size_t bytes, const char *hex) {
  char text[2 * SHA256_BYTES + 1];
  for (size_t i = 0; i < bytes; i++) snprintf(text + 2 * i, 3, "%02x", p[i]);
  EXPECT_STR(text, hex);
}

// FIPS 180-4's examples, and every length around the ends of blocks, in pieces.
TEST(hmac_sha256_of_examples) {
  static const struct {
    const char *text, *digest;
  } of[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
  };
  uint8_t digest[SHA256_BYTES], again[SHA256_BYTES], text[200];
  Sha256 s;
  for (int i = 0; i < COUNT(of); i++) {
    sha256_begin(&s);
    sha256_add(&s, of[i].text, strlen(of[i].text));
    sha256_end(&s, digest);
    expect_hex(digest, sizeof digest, of[i].digest);
  }
  sha256_begin(&s); // of a million letters
  memset(text, 'a', sizeof text);
  for (int i = 0; i < 5000; i++) sha256_add(&s, text, sizeof text);
  sha256_end(&s, digest);
  expect_hex(digest, sizeof digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t n = 0; n <= sizeof text; n++) {
    sha256_begin(&s);
    sha256_add(&s, text, n);
    sha256_end(&s, digest);
    sha256_begin(&s);
    for (size_t i = 0; i < n; i++) sha256_add(&s, text + i, 1);
    sha256_end(&s, again);
    EXPECT(!memcmp(digest, again, sizeof digest));
  }
}

// RFC 4231's test cases; the fifth is cut to 128 bits.
TEST(hmac_of_rfc_4231) {
  static const struct {
    const char *key;
    size_t times; // that the key is repeated
    const char *text;
    size_t repeated;
    const char *mac;
  } of[] = {
      {"\x0b", 20, "Hi There", 1, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", 1, "what do ya want for nothing?", 1,
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {"\xaa", 20, "\xdd", 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19", 1,
       "\xcd", 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {"\x0c", 20, "Test With Truncation", 1, "a3b6167473100ee06e0c796c2955552b"},
      {"\xaa", 131, "Test Using Larger Than Block-Size Key - Hash Key First", 1,
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {"\xaa", 131,
       "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
       "hashed before being used by the HMAC algorithm.",
       1, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (int i = 0; i < COUNT(of); i++) {
    char key[140] = "";
    uint8_t mac[SHA256_BYTES];
    Hmac h;
    const size_t length = strlen(of[i].key);
    for (size_t k = 0; k < of[i].times; k++) memcpy(key + k * length, of[i].key, length);
    hmac_begin(&h, key, length * of[i].times);
    for (size_t k = 0; k < of[i].repeated; k++) hmac_add(&h, of[i].text, strlen(of[i].text));
    hmac_end(&h, mac);
    expect_hex(mac, strlen(of[i].mac) / 2, of[i].mac);
  }
}

TEST(hmac_secrets_compared) {
  uint8_t a[SHA256_BYTES] = {0}, b[SHA256_BYTES] = {0};
  EXPECT(secret_equal(a, b, sizeof a));
  for (size_t i = 0; i < sizeof a; i++) {
    b[i] = 0x80;
    EXPECT(!secret_equal(a, b, sizeof a) && secret_equal(a, b, i));
    b[i] = 0;
  }
}
