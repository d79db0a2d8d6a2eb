// Catches options that are not understood, and texts in weights that are read although they are damaged.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/batches/holdout.h"
#include "test/harness/test.h"

static void expect_options(const char *says, float fraction, const char *fold, const char *group) {
  HoldoutOptions o;
  Err err = {""};
  EXPECT(holdout_options(&o, fraction, fold, group, 1, &err) == !says);
  if (!EXPECT(!says || strstr(err.msg, says))) puts(err.msg);
}

TEST(holdout_reads_its_options) {
  static const char *const bad[] = {"0/5", "6/5", "2/1", "2", "2/", "/5", "2/5x", "-1/5", "1/1001", ""};
  for (int i = 0; i < COUNT(bad); i++) expect_options(": give I/N with I from 1 to N", 0, bad[i], NULL);
  expect_options("--fold and --val-fraction cannot be combined", 0.2f, "1/2", NULL);
  expect_options("--group needs --val-fraction P or --fold I/N", 0, NULL, "a");
  expect_options("--group [ is not a regular expression", 0.2f, NULL, "[");
  expect_options(NULL, 0, NULL, NULL);
  expect_options(NULL, 0, "1000/1000", "(a)");
  HoldoutOptions o;
  Err err;
  EXPECT(holdout_options(&o, 0, "2/5", "a b", 7, &err));
  char *text = holdout_option_text(&o);
  EXPECT_STR(text, "--fold 2/5 --split-seed 7 --group 'a b'");
  free(text);
}

TEST(holdout_refuses_damaged_texts) {
  static const char *const bad[] = {
      "",
      "[]",
      "{}",
      "{\"split\":\"train\",\"by\":\"\",\"groups\":2,\"val\":[\"a\"],\"contents\":\"\",\"train\":\"\"}",
      "{\"split\":\"train\",\"by\":\"\",\"val\":[\"b\",\"a\"],\"contents\":\"\",\"train\":\"\"}",
      "{\"split\":\"train\",\"by\":\"\",\"val\":[\"a\",\"a\"],\"contents\":\"\",\"train\":\"\"}",
      ("{\"split\":\"train\",\"by\":\"\",\"val\":[\"a\"],\"contents\":\"0000000000000001\",\"train\":"
       "\"0000000200000001\"}"),
      "{\"split\":\"train\",\"by\":\"\",\"val\":[\"a\"],\"contents\":\"0000000000000001\"}",
      ("{\"split\":\"train\",\"by\":\"\",\"val\":[\"a\"],\"contents\":\"0000000000000001\",\"annotations\":\"1\","
       "\"train\":\"\"}"),
      "{\"split\":\"train\",\"val\":[\"a\"],\"contents\":\"0000000000000001\",\"train\":\"\"}"};
  Holdout h;
  Err err;
  for (int i = 0; i < COUNT(bad); i++)
    if (!EXPECT(!holdout_read(&h, bad[i], &err))) printf("  %s\n", bad[i]);
  EXPECT(holdout_read(&h,
                      "{\"split\":\"train\",\"by\":\"--fold 1/2\",\"groups\":2,\"val\":[\"a\"],"
                      "\"contents\":\"00000000000000aF\",\"train\":\"0000000200000003\",\"more\":[1]}",
                      &err));
  EXPECT(h.held == 1 && h.val[0].key == 0xaf && h.trained == 2 && h.train[1] == 3 && h.groups == 2);
  holdout_free(&h);
}

TEST(holdout_names_the_first_difference) {
  HeldImage two[] = {{"a", 1, 0}, {"c", 2, 0}}, other[] = {{"a", 1, 0}, {"b", 2, 0}},
            changed[] = {{"a", 1, 0}, {"c", 3, 0}};
  const Holdout was = {.val = two, .held = 2}, fewer = {.val = two, .held = 1}, is = {.val = other, .held = 2},
                now = {.val = changed, .held = 2};
  Err err;
  EXPECT(holdout_same(&was, &was, false, &err));
  EXPECT(!holdout_same(&was, &fewer, false, &err) && !strcmp(err.msg, "c was held out, but is no longer"));
  EXPECT(!holdout_same(&fewer, &was, true, &err) && !strcmp(err.msg, "c is held out now, but was not"));
  EXPECT(!holdout_same(&was, &is, false, &err) && !strcmp(err.msg, "b is held out now, but was not"));
  EXPECT(!holdout_same(&was, &now, false, &err) && !strcmp(err.msg, "c, which is held out, has changed"));
  EXPECT(holdout_same(&was, &now, true, &err));
}
