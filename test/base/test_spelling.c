// Catches suggestions for a mistyped name that are not the nearest names.
#include "base/spelling.h"
#include "test/harness/test.h"

static int distance(const char *a, const char *b) { return edit_distance(a, strlen(a), b, strlen(b)); }

TEST(spelling_counts_edits) {
  EXPECT_INT(distance("", ""), 0);
  EXPECT_INT(distance("", "abc"), 3);
  EXPECT_INT(distance("kitten", "sitting"), 3);
  EXPECT_INT(distance("dog", "dgo"), 2);
  EXPECT_INT(spelling_distance("traffic", 7, "traffic light"), 1);
  EXPECT_INT(spelling_distance("traffic", 7, "traffic"), 0);
  char a[300], b[300]; // no longer than what is looked at
  memset(a, 'a', sizeof a);
  memset(b, 'b', sizeof b);
  EXPECT_INT(edit_distance(a, sizeof a, b, sizeof b), SPELLING_MOST);
}
