// Catches help text that loses words where lines break, or that changes with the terminal behind a pipe.
#define _XOPEN_SOURCE 600 // posix_openpt
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/text.h"
#include "base/wrap.h"
#include "test/harness/test.h"

static void expect_wrapped(const char *text, int column, int indent, int columns, const char *want) {
  char *got;
  size_t size;
  FILE *f = text_open(&got, &size);
  wrap_print(f, text, column, indent, columns);
  text_close(f);
  EXPECT_STR(got, want);
  free(got);
}

TEST(wrap_breaks_at_blanks) {
  expect_wrapped("one two three", 0, 0, 13, "one two three\n"); // fills the line
  expect_wrapped("one two three", 0, 0, 12, "one two\nthree\n");
  expect_wrapped("one two three", 4, 2, 11, "one two\n  three\n");
  expect_wrapped("one two three", 5, 2, 11, "one\n  two three\n");
  expect_wrapped("one\ntwo three", 0, 4, 80, "one\n    two three\n");
  expect_wrapped("", 0, 4, 80, "\n");
  expect_wrapped("a… b… c…", 0, 0, 5, "a… b…\nc…\n"); // characters, not bytes
}

TEST(wrap_breaks_words_that_are_too_long) {
  expect_wrapped("--x one|two|three", 0, 2, 8, "--x\n  one|\n  two|\n  three\n");
  expect_wrapped("abcdefghij", 0, 1, 4, "abcd\n efg\n hij\n");
  expect_wrapped("……………", 0, 0, 2, "……\n……\n…\n");
}

// A terminal of that many columns, and $COLUMNS; NULL: not set.
static int columns_of(int width, const char *variable) {
  const int primary = posix_openpt(O_RDWR | O_NOCTTY);
  CHECK(primary >= 0 && !grantpt(primary) && !unlockpt(primary));
  FILE *terminal = fopen(ptsname(primary), "r+");
  CHECK(terminal);
  const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)width};
  CHECK(!ioctl(primary, TIOCSWINSZ, &size));
  variable ? setenv("COLUMNS", variable, 1) : unsetenv("COLUMNS");
  const int columns = wrap_columns(terminal);
  fclose(terminal);
  close(primary);
  return columns;
}

TEST(wrap_columns_are_the_terminals) {
  const char *was = getenv("COLUMNS");
  char *kept = was ? strdup(was) : NULL;
  EXPECT_INT(columns_of(100, NULL), 100);
  EXPECT_INT(columns_of(20, NULL), 40);
  EXPECT_INT(columns_of(300, NULL), 120);
  EXPECT_INT(columns_of(0, NULL), 80); // a serial line
  EXPECT_INT(columns_of(100, "60"), 60);
  EXPECT_INT(columns_of(100, "wide"), 100);
  EXPECT_INT(columns_of(100, "0"), 100);
  FILE *file = tmpfile();
  CHECK(file);
  setenv("COLUMNS", "60", 1);
  EXPECT_INT(wrap_columns(file), 80);
  fclose(file);
  kept ? setenv("COLUMNS", kept, 1) : unsetenv("COLUMNS");
  free(kept);
}
