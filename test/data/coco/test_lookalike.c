// Catches names that look the same and are shown without a word of how they differ, and different ones taken for such.
#include "base/alloc.h"
#include "data/coco/lookalike.h"
#include "test/harness/test.h"

TEST(lookalike_names) {
  static const char *const same[][2] = {{"Zelle \xc3\xbc", "Zelle u\xcc\x88"}, // ü
                                        {"u\xcc\x88x", "\xc3\xbcx"},
                                        {"\xc7\x98", "\xc3\xbc\xcc\x81"},          // ǘ, ü with an accent
                                        {"\xd0\xb9", "\xd0\xb8\xcc\x86"},          // й
                                        {"traffic light", "traffic\xc2\xa0light"}, // a blank that does not break
                                        {"disc", "\xe2\x80\x8b"
                                                 "disc\xef\xbb\xbf"}}, // blanks without width
      *const other[][2] = {{"\xc3\xbc", "\xc3\xb6"}, {"u", "u\xcc\x88"}, {"\xc3\xbc", "u"},
                           {"disc", "ring"},         {"", "\xc3\xbc"},   {"\xe7\x8c\xab", "\xe7\x8a\xac"}};
  for (int i = 0; i < COUNT(same); i++)
    EXPECT(looks_same(same[i][0], same[i][1]) && looks_same(same[i][1], same[i][0]));
  for (int i = 0; i < COUNT(other); i++)
    EXPECT(!looks_same(other[i][0], other[i][1]) && !looks_same(other[i][1], other[i][0]));
  EXPECT(!looks_same("a\xff", "b\xc3"));
}
