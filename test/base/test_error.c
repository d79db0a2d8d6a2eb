// Catches error messages of several lines, messages written past their buffer, and failures that are not reported.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

TEST(error_messages_are_one_line) {
  Err err;
  EXPECT(!err_set(&err, "%s: is %s", "a\nb\r\t", "\033[2J\x7f é"));
  EXPECT_STR(err.msg, "a?b?\t: is ?[2J? é");
}

// What is not UTF-8, and control characters that are, do not get to a terminal or into a log.
TEST(error_messages_are_utf8) {
  static const char *const of[][2] = {
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"a\xff\xfe", "a??"},
      {"\xc3", "?"},
      {"\xe2\x82x", "??x"},
      {"\xc0\x80", "??"},
      {"\xed\xa0\x80", "???"},
      {"\xc2\x9b[2J", "??[2J"}};
  for (int i = 0; i < COUNT(of); i++) {
    Err err;
    err_set(&err, "%s", of[i][0]);
    EXPECT_STR(err.msg, of[i][1]);
  }
}

TEST(error_messages_are_cut_not_overrun) {
  Err err;
  enum { LONGER = 2 * sizeof err.msg };
  char *longer = xmalloc(LONGER);
  memset(longer, 'x', LONGER - 1);
  longer[LONGER - 1] = '\0';
  EXPECT(!err_set(&err, "%s", longer));
  EXPECT_INT((long long)strlen(err.msg), (long long)sizeof err.msg - 1);
  EXPECT(!err_set(NULL, "ignored"));
  char *copy = xasprintf("%s!", longer);
  EXPECT_INT((long long)strlen(copy), LONGER);
  free(copy);
  free(longer);
}

static void die_of(void *foreseen) {
  die_context("step %d; %s", 7, "nothing is kept");
  if (foreseen) die(EXIT_RUN, "the disk is full");
  die_unforeseen("the %s fell off the bus", "GPU");
}

// What was said before of where the program is stands behind a failure that does not know, and behind no other.
TEST(error_unforeseen_failures_say_where_the_program_is) {
  const char *said;
  int foreseen;
  EXPECT_INT(run_in_child(die_of, NULL, &said), EXIT_RUN);
  EXPECT(strstr(said, ": the GPU fell off the bus (step 7; nothing is kept)\n"));
  EXPECT_INT(run_in_child(die_of, &foreseen, &said), EXIT_RUN);
  EXPECT(strstr(said, ": the disk is full\n"));
}

static bool tell_twice(void *says, int *code, char *line, size_t room) {
  char text[256];
  snprintf(text, sizeof text, "rank 1: %.200s", line);
  snprintf(line, room, "%s", text);
  *code = 7;
  return !strcmp(says, "another says it");
}
static void die_telling(void *says) {
  die_tells(tell_twice, says);
  die_of(NULL);
}
static void check_telling(void *says) {
  die_tells(tell_twice, says);
  check_failed("a < b", "f.c", 12);
}
static bool tell_badly(void *says, int *code, char *line, size_t room) {
  (void)code;
  (void)line;
  (void)room;
  die(EXIT_RUN, "%s", (char *)says);
}
static void die_telling_badly(void *says) {
  die_tells(tell_badly, says);
  die(EXIT_USAGE, "the first reason");
}

// Of several processes one says why all end, by the line that each would have printed.
TEST(error_failures_are_told_to_others) {
  const char *said;
  EXPECT_INT(run_in_child(die_telling, "another says it", &said), 7);
  EXPECT_STR(said, "");
  EXPECT_INT(run_in_child(die_telling, "nobody does", &said), 7);
  EXPECT(strstr(said, ": rank 1: the GPU fell off the bus (step 7; nothing is kept)\n"));
  EXPECT_INT(run_in_child(check_telling, "another says it", &said), 7);
  EXPECT_STR(said, "");
  EXPECT_INT(run_in_child(check_telling, "nobody does", &said), 7);
  EXPECT(strstr(said, ": rank 1: f.c:12: check failed: a < b (a bug in this program, please report it)\n"));
  EXPECT_INT(run_in_child(die_telling_badly, "it fails itself", &said), EXIT_RUN);
  EXPECT(strstr(said, ": it fails itself\n") && !strstr(said, "the first reason"));
}
