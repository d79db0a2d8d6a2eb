// Catches one class counted as two because its name differs in case or in Unicode form.
#include <stdlib.h>
#include "base/basics.h"
#include "base/name_key.h"
#include "test/harness/test.h"

TEST(name_keys_of_names_that_are_one) {
  static const struct {
    const char *a, *b;
    bool same;
  } pairs[] = {{"cat", "Cat", true},
               {"caf\u00e9", "cafe\u0301", true},
               {"\u00c9t\u00e9", "e\u0301te\u0301", true},
               {"\u00c6", "\u00e6", true},
               {"\u0141", "\u0142", true}, // Ł ł: no decomposition, odd capitals
               {"\u0160koda", "s\u030ckoda", true},
               {"\ud55c\uad6d", "\u1112\u1161\u11ab\u1100\u116e\u11a8", true}, // Hangul
               {"\uac00", "\u1100\u1161", true},
               {"\u00ff", "y\u0308", true},
               {"\u0419", "\u0438\u0306", true}, // Cyrillic
               {"\u0416\u0451", "\u0436\u0435\u0308", true},
               {"\u0390", "\u03b9\u0308\u0301", true}, // Greek
               {"\u039f\u03a3", "\u03bf\u03c2", true},
               {"\u1ec7", "e\u0323\u0302", true}, // Vietnamese
               {"cat", "cats", false},
               {"\u00e9", "e", false},
               {"\u00d7", "\u00f7", false}, // × ÷ are no letters
               {"\u00f8", "\u00f6", false},
               {"\uac00", "\uac01", false},
               {"\xff", "\xfe", false}}; // no UTF-8
  for (int i = 0; i < COUNT(pairs); i++) {
    char *a = name_key(pairs[i].a, true), *b = name_key(pairs[i].b, true);
    if (!EXPECT(!strcmp(a, b) == pairs[i].same)) printf("  %s %s\n", pairs[i].a, pairs[i].b);
    free(a);
    free(b);
  }
}

// What has no case and no decomposition stays, bytes that are no UTF-8 among it.
TEST(name_keys_keep_other_bytes) {
  static const char *const names[] = {"\xff\xfe", "a\xe9", "7 \U0001f600", "\xf0\x9f"};
  for (int i = 0; i < COUNT(names); i++) {
    char *key = name_key(names[i], true);
    if (!EXPECT(!strcmp(key, names[i]))) printf("  %s became %s\n", names[i], key);
    free(key);
  }
}
