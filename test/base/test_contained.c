// Catches library calls that end the caller's process, or report an error to the wrong thread.
#include <pthread.h>
#include "base/alloc.h"
#include "base/contained.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static int steps; // that the work has come through

static void fails_in_every_way(void *context) {
  const int *way = context;
  steps++;
  if (*way == 0) die(EXIT_USAGE, "no such %s", "thing");
  if (*way == 1) die_unforeseen("the GPU\nis lost");
  if (*way == 2) CHECK(*way == 3);
  if (*way == 3) die_of_memory(12, "here.c:1");
  steps++;
}

TEST(contained_gets_the_line_and_goes_on) {
  static const char *const want[] = {"no such thing", "the GPU?is lost", "check failed: *way == 3",
                                     "out of memory: cannot allocate 12 bytes (here.c:1)"};
  for (int way = 0; way < COUNT(want); way++) {
    Err err = {""};
    steps = 0;
    EXPECT(!contained_call(fails_in_every_way, &way, &err));
    EXPECT_INT(steps, 1);
    if (!EXPECT(strstr(err.msg, want[way]))) printf("  \"%s\"\n", err.msg);
    EXPECT(!is_contained());
  }
  int none = 4;
  Err err = {"as it was"};
  EXPECT(contained_call(fails_in_every_way, &none, &err));
  EXPECT_INT(steps, 3);
  EXPECT_STR(err.msg, "as it was");
}

static void see_contained(void *context) { *(bool *)context = is_contained(); }

static void *contained_in_thread(void *context) {
  see_contained(context);
  return NULL;
}

static void asks_another_thread(void *context) {
  pthread_t thread;
  EXPECT_INT(pthread_create(&thread, NULL, contained_in_thread, context), 0);
  pthread_join(thread, NULL);
}

TEST(contained_is_one_thread) {
  bool here = false, there = true;
  EXPECT(contained_call(see_contained, &here, NULL) && here);
  EXPECT(contained_call(asks_another_thread, &there, NULL) && !there);
}

static void warns(void *context) { warn("goes on without %s", (const char *)context); }
static void warns_contained(void *context) { EXPECT(contained_call(warns, context, NULL)); }

TEST(contained_warns_nobody) {
  const char *said;
  EXPECT_INT(run_in_child(warns, "it\n", &said), 0);
  EXPECT_STR(said, "goes on without it?\n");
  EXPECT_INT(run_in_child(warns_contained, "it", &said), 0);
  EXPECT_STR(said, "");
}
