// Catches invalid UTF-8 that is accepted, and valid UTF-8 that is refused.
#include "base/basics.h"
#include "base/utf8.h"
#include "test/harness/test.h"

static size_t length_of(const char *bytes) { return utf8_length(bytes, bytes + strlen(bytes)); }

TEST(utf8_sequences) {
  for (int lead = 1; lead < 256; lead++)
    for (int next = 0; next < 256; next++) {
      const char pair[] = {(char)lead, (char)next};
      size_t want = lead < 0x80 ? 1 : lead >= 0xC2 && lead < 0xE0 && next >= 0x80 && next < 0xC0 ? 2 : 0;
      EXPECT_INT(utf8_length(pair, pair + 2), want);
    }
  static const char *const good[] = {"\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF"};
  static const char *const bad[] = {"\xE0\x9F\xBF",     "\xED\xA0\x80",     "\xED\xBF\xBF",
                                    "\xE2\x82",         "\xE2\x82(",        "\xF0\x8F\xBF\xBF",
                                    "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF0\x90\x80"};
  for (int i = 0; i < COUNT(good); i++) EXPECT_INT(length_of(good[i]), 3);
  for (int i = 0; i < COUNT(bad); i++) EXPECT_INT(length_of(bad[i]), 0);
  EXPECT_INT(length_of("\xF0\x90\x80\x80"), 4);
  EXPECT_INT(length_of("\xF4\x8F\xBF\xBF"), 4);
  EXPECT(utf8_is("") && utf8_is("caf\u00e9") && !utf8_is("caf\xe9") && !utf8_is("caf\xc3"));
}
