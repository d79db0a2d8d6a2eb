// Catches text built in memory that is silently truncated.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

enum { LINES = 4000, WIDE = 50 };

// Lines of WIDE characters, some of which a stream holds back; the n-th allocation from the opening on fails.
static void write_lines(void *nth) {
  char *text;
  size_t size;
  allocations_fail(*(const int *)nth);
  FILE *f = text_open(&text, &size);
  for (int i = 0; i < LINES; i++) fprintf(f, "%*d\n", WIDE - 1, i);
  text_close(f);
  const bool whole = size == LINES * WIDE && text[size] == '\0' && strlen(text) == size;
  free(text);
  _exit(whole ? 0 : 99);
}

TEST(text_is_whole_or_the_program_ends) {
  const char *said;
  int failed = 0, nth = 1;
  if (!allocations_counted()) return test_skip("a sanitizer has allocators of its own");
  for (int whole = 0; nth < 100 && whole < 3; nth++) { // a buffer of the C library's may be done without
    int status = run_in_child(write_lines, &nth, &said);
    whole = status == 0 ? whole + 1 : 0;
    failed += status == EXIT_RUN;
    if (!EXPECT(status == 0 || (status == EXIT_RUN && strstr(said, "out of memory: "))))
      printf("  allocation %d: status %d, %s\n", nth, status, said);
  }
  EXPECT(failed > 5 && nth < 100);
}

TEST(text_may_be_empty) {
  char *text;
  size_t size = 3;
  text_close(text_open(&text, &size));
  EXPECT_STR(text, "");
  EXPECT_INT((long long)size, 0);
  free(text);
}
