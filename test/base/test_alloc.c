// Catches memory that loses its contents when it grows, and a program that runs out of memory without saying for what.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

TEST(alloc_array_grows_and_keeps) {
  int *items = NULL;
  size_t cap = 0;
  for (size_t i = 0; i < 1000; i++) {
    array_reserve((void **)&items, &cap, i + 1, sizeof *items);
    items[i] = (int)i;
  }
  EXPECT(cap >= 1000 && cap < 4000);
  for (int i = 0; i < 1000; i++) EXPECT_INT(items[i], i);
  array_reserve((void **)&items, &cap, 5000, sizeof *items);
  EXPECT_INT((long long)cap, 5000);
  free(items);
}

TEST(alloc_memory_suffices_or_not) {
  EXPECT(memory_suffices(1000));
  if (allocations_counted()) EXPECT(!memory_suffices(SIZE_MAX / 4)); // a sanitizer ends a program that asks for so much
}

typedef struct Request {
  const char *what, *options;
} Request;

static void ask_for_too_much(void *context) {
  const Request *p = context;
  memory_for(p->what, p->options);
  xmalloc(SIZE_MAX / 4);
}

static void expect_out_of_memory(const char *what, const char *options, const char *says) {
  const char *said;
  EXPECT_INT(run_in_child(ask_for_too_much, &(Request){what, options}, &said), EXIT_RUN);
  if (!EXPECT(strstr(said, says))) printf("    %s\n", said);
}

TEST(alloc_out_of_memory_says_what_for) {
  if (allocations_counted()) { // a sanitizer ends a program that asks for so much
    expect_out_of_memory(NULL, NULL, ": out of memory: cannot allocate 4611686018427.4 MB (test/base/test_alloc.c:");
    expect_out_of_memory("the scores", "--val-limit", " MB for the scores (test/base/test_alloc.c:");
    expect_out_of_memory("the scores", "--val-limit", "); reduce --val-limit\n");
  }
  Err err, around;
  EXPECT(!err_memory(&err, 99, "a name", NULL) && !err_memory(NULL, 99, "a name", NULL));
  EXPECT_STR(err.msg, "out of memory: cannot allocate 99 bytes for a name");
  err_set(&around, "step 3: %s", err.msg);
  EXPECT_INT(err_exit(&around), EXIT_RUN);
  err_set(&around, "cannot open 3");
  EXPECT_INT(err_exit(&around), EXIT_USAGE);
}
