// One harness: a test registers itself, checks count, and the run closes with "N passed, N failed".
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Test {
  const char *name;
  void (*run)(void);
  int tier; // 0 quick (also under sanitizers), 1 normal, 2 long
  struct Test *next;
} Test;
void test_register(Test *t);

// TEST(name) { … } for the quick tier; TEST_TIER(name, 1) { … } otherwise.
#define TEST_TIER(id, level)                                                                                           \
  static void test_##id(void);                                                                                         \
  static Test test_entry_##id = {.name = #id, .run = test_##id, .tier = (level)};                                      \
  __attribute__((constructor)) static void test_add_##id(void) { test_register(&test_entry_##id); }                    \
  static void test_##id(void)
#define TEST(id) TEST_TIER(id, 0)

// A failed check marks the running test failed, prints file, line and values, and lets the test go on; each macro is
// true when the check held.
bool test_true(bool ok, const char *expr, const char *file, int line);
bool test_int(long long got, long long want, const char *expr, const char *file, int line);
bool test_near(double got, double want, double tolerance, const char *expr, const char *file, int line); // NaN fails
bool test_str(const char *got, const char *want, const char *expr, const char *file, int line);
#define EXPECT(cond) test_true((cond), #cond, __FILE__, __LINE__)
#define EXPECT_INT(got, want) test_int((got), (want), #got, __FILE__, __LINE__)
#define EXPECT_NEAR(got, want, tol) test_near((got), (want), (tol), #got, __FILE__, __LINE__)
#define EXPECT_STR(got, want) test_str((got), (want), #got, __FILE__, __LINE__)

// Of the running test so far: for a process of its own, whose checks its parent does not see.
long test_failures(void);
// Marks the running test as skipped; returns from it by hand: `if (!shared) { test_skip("why"); return; }`.
void test_skip(const char *why);
// Ends the process, saying that the test hangs, unless the running test is done within so many seconds of this call:
// for tests of threads that might wait for one another. Far above what the test takes.
void test_limit(unsigned seconds);
// Path inside ../shared/data, or NULL where it is not there. Static buffer, overwritten by the next call but three.
const char *shared_path(const char *relative);
// Scratch folder of the running test, empty when it begins and removed when it ends.
const char *test_tmp(void);
// The path NAME in a scratch folder that lasts as long as this process: for what is made once for several tests.
// Static buffer, overwritten by the next call but three.
const char *test_kept(const char *name);
