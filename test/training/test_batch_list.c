// Catches lists of batch sizes that are misread.
#include "test/harness/test.h"
#include "training/batch_list.h"

static void expect_list(const char *text, int n, const int *size) {
  BatchList l;
  Err err = {0};
  if (!EXPECT(batch_list_parse(&l, text, &err)) || !EXPECT_INT(l.n, n)) printf("    %s: %s\n", text, err.msg);
  for (int i = 0; i < n && i < l.n; i++) EXPECT_INT(l.size[i], size[i]);
}

static void expect_refused(const char *text, const char *says) {
  BatchList l;
  Err err = {0};
  if (!EXPECT(!batch_list_parse(&l, text, &err) && strstr(err.msg, says))) printf("    %s: %s\n", text, err.msg);
}

TEST(batch_list) {
  static const int doubled[] = {1, 2, 4, 8, 16, 32, 64, 128}, by_ten[] = {5, 20, 30, 40, 50}, one[] = {64};
  static const int mixed[] = {1, 2, 4, 8, 12, 16, 20};
  expect_list("64", 1, one);
  expect_list("1,2,4,8,16,32,64,128", 8, doubled);
  expect_list("1,2,…,128", 8, doubled);
  expect_list("1,2,4,...,128", 8, doubled);
  expect_list("1,2,4,...,64,128", 8, doubled);
  expect_list("5,20,30,…,50", 5, by_ten);
  expect_list("1,2,…,4,8,…,20", 7, mixed); // 20 is not 8 doubled again and again
}

TEST(batch_list_mistakes) {
  static const char numbers[] = "expected numbers from 1 to 1024";
  static const char *const none[] = {"",    ",", "1,", ",1", "1,,2", "0", "-1", "1025", "99999999999999999999",
                                     "1 2", "1x"};
  for (int i = 0; i < COUNT(none); i++) expect_refused(none[i], numbers);
  expect_refused("1,2,…", "': expected a number after the ellipsis");
  expect_refused("1,2,…8", "': expected a number after the ellipsis");
  expect_refused("1,2,…,…,8", numbers);
  expect_refused("…,8", "before the ellipsis does not reach 8");
  expect_refused("1,…,8", "before the ellipsis does not reach 8");
  expect_refused("4,7,…,12", "before the ellipsis does not reach 12");
  expect_refused("8,4,…,1", "before the ellipsis does not reach 1");
  expect_refused("2,5,…,10", "before the ellipsis does not reach 10"); // 5 is not 2 doubled
  expect_refused("2,2,…,2", "before the ellipsis does not reach 2");
  expect_refused("1,2,3,…,1024", "before the ellipsis does not reach 1024"); // too many
}
