// Catches a digest that changes: files could no longer be read.
#include "base/alloc.h"
#include "base/digest.h"
#include "test/harness/test.h"

// What base/digest.h says, computed in Python.
TEST(digest_is_as_described) {
  enum { N = (1 << 20) + 77 };
  unsigned char *bytes = xmalloc(N);
  for (int i = 0; i < N; i++) bytes[i] = (unsigned char)(i % 251);
  EXPECT(digest_all("abc", 3) == 0x6c0ecec25ae910c8u);
  EXPECT(digest_all(bytes, 100) == 0x9e7ad4a450d0b10eu);
  EXPECT(digest_all(bytes, N) == 0x044f49d221396035u); // two blocks
  EXPECT_INT((long long)digest_blocks(N), 2);
  EXPECT(digest_join((uint64_t[]){digest_block(bytes, N, 0), digest_block(bytes, N, 1)}, 2) == digest_all(bytes, N));
  free(bytes);
}

TEST(digest_as_digits) {
  char digits[DIGEST_DIGITS + 1] = {0};
  uint64_t digest;
  digest_write(0x0123456789abcdefu, digits);
  EXPECT_STR(digits, "0123456789abcdef");
  EXPECT(digest_read(digits, &digest) && digest == 0x0123456789abcdefu);
  EXPECT(!digest_read("0123456789abcdeF", &digest) && !digest_read("0123", &digest));
}
