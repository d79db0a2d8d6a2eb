// Catches curves in a run's page that show other steps or values than the log.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "page/page_draw.h"
#include "test/harness/allocations.h"
#include "test/harness/test.h"

// The page of a log that is written by `each`, n records long.
static char *page_of_log(int n, void (*each)(FILE *f, int step)) {
  char *log = xasprintf("%s/long.jsonl", test_tmp()), *out = xasprintf("%s/long.html", test_tmp());
  FILE *f = fopen(log, "w");
  for (int i = 1; i <= n; i++) each(f, i);
  CHECK(fclose(f) == 0);
  Err err;
  if (!EXPECT(page_of_runs(out, &(PageRun){.log = log}, 1, false, &err))) printf("    %s\n", err.msg);
  char *text = file_read(out, &(size_t){0}, NULL);
  CHECK(text);
  free(log);
  free(out);
  return text;
}

// The numbers of a list that follows `key`; null is NaN. Returns how many.
static int numbers(const char *text, const char *key, double *to, int most) {
  const char *p = strstr(text, key);
  int n = 0;
  if (!EXPECT(p)) return 0;
  p += strlen(key);
  CHECK(*p == '[');
  while (*p != ']' && n < most) {
    char *end;
    p++;
    if (*p == ']') break;
    to[n] = strtod(p, &end);
    if (end == p) {
      to[n] = NAN;
      end += strlen("null");
    }
    n++;
    p = end;
  }
  return n;
}

enum { MOST = 2000 };

static void write_plain(FILE *f, int step) {
  fprintf(f, "{\"step\":%d,\"kind\":\"train\",\"loss\":%d,\"wait\":null,\"seconds\":%g}\n", step, 2 * step, 0.5 * step);
  if (step % 10 == 0) fprintf(f, "{\"step\":%d,\"kind\":\"eval\",\"bbox_AP\":0.25}\n", step);
}

TEST(log_facts_of_a_short_log_are_the_log) {
  double x[MOST], y[MOST], t[MOST], lo[MOST];
  char *page = page_of_log(100, write_plain);
  EXPECT(strstr(page, "{\"records\":100,\"thinned\":1,\"unread\":0,\"cut\":false,"));
  EXPECT_INT(numbers(page, "\"x\":", x, MOST), 100);
  EXPECT_INT(numbers(page, "\"loss\":{\"y\":", y, MOST), 100);
  EXPECT_INT(numbers(page, "\"elapsed\":{\"y\":", t, MOST), 100);
  EXPECT_INT(numbers(strstr(page, "\"loss\":{"), "\"lo\":", lo, MOST), 0);
  for (int i = 0; i < 100; i++) EXPECT(x[i] == i + 1 && y[i] == 2 * i + 2 && t[i] == 0.5 * (i + 1));
  EXPECT(strstr(page, "{\"step\":100,\"kind\":\"eval\",\"bbox_AP\":0.25}") && !strstr(page, "\"wait\":{"));
  free(page);
}

static void write_spiky(FILE *f, int step) {
  const double loss = step == 5000 ? 1e6 : step == 99999 ? 7 : 1;
  fprintf(
      f,
      "{\"step\":%d,\"kind\":\"train\",\"lr\":0.01,\"loss\":%g,\"loss_objectness\":0.1,\"loss_rpn_box_reg\":0.1,"
      "\"loss_classifier\":0.2,\"loss_box_reg\":0.1,\"loss_mask\":0.5,\"grad_norm\":3.25,\"rois\":96,\"positives\":13,"
      "\"img_s\":310.5,\"wait\":1.5e-05,\"seconds\":%g}\n",
      step, loss, 0.01 * step);
}

// Of 100,000 records, the greatest value of a point that stands for several is not lost, the last ones stand alone, and
// the page is small.
TEST(log_facts_of_a_long_log_are_thinned) {
  double x[MOST], y[MOST], hi[MOST], most = 0;
  char *page = page_of_log(100000, write_spiky);
  EXPECT(strlen(page) < 5000000);
  EXPECT(strstr(page, "{\"records\":100000,\"thinned\":128,"));
  const int n = numbers(page, "\"x\":", x, MOST), several = numbers(strstr(page, "\"loss\":{"), "\"hi\":", hi, MOST);
  EXPECT_INT(numbers(page, "\"loss\":{\"y\":", y, MOST), n);
  EXPECT(n > 1000 && n < 1400 && several < n - 200);
  for (int i = 0; i < several; i++) {
    EXPECT(x[i] == 128 * (i + 1) || (i == several - 1 && x[i] < 128 * (i + 1)));
    most = fmax(most, hi[i]);
  }
  EXPECT_NEAR(most, 1e6, 0);
  EXPECT_NEAR(y[5000 / 128], (1e6 + 127) / 128, 0.1);
  for (int i = several; i < n; i++) EXPECT(x[i] == x[i - 1] + 1);
  EXPECT(x[n - 1] == 100000 && y[n - 2] == 7);
  free(page);
}

// The facts of a page, which its nonce is no part of.
static char *facts_in(const char *log, LogFacts **read) {
  Err err;
  char *out = xasprintf("%s/parts.html", test_tmp());
  if (!EXPECT(page_of_runs(out, &(PageRun){.log = log, .read = read}, 1, false, &err))) printf("    %s\n", err.msg);
  char *text = file_read(out, &(size_t){0}, NULL), *from = text ? strstr(text, "\"log\":") : NULL;
  CHECK(from);
  char *facts = xasprintf("%.*s", (int)strcspn(from, "<"), from);
  free(text);
  free(out);
  return facts;
}

// A log that is read as it grows, its last line incomplete at times, or damaged, gives the page of one that is read at
// once; and so does another log that stands in its place.
TEST(log_facts_of_a_growing_log) {
  LogFacts *read = NULL;
  char *log = xasprintf("%s/parts.jsonl", test_tmp());
  for (int length = 8000; length >= 3000; length -= 5000) { // longer, and then another one that is shorter
    FILE *f = fopen(log, "w");
    for (int step = 1; step <= length; step++) {
      const bool odd = step % 700 == 0;
      if (odd) fputs("{\"step\":7,\"kin", f);
      if (odd || step == length) {
        CHECK(fflush(f) == 0);
        char *grown = facts_in(log, &read), *at_once = facts_in(log, NULL);
        EXPECT_STR(grown, at_once);
        free(grown);
        free(at_once);
      }
      if (odd && step % 1400 == 0) fputs(" damaged\n", f);
      if (odd && step % 1400) fputs("d\":\"amend\",\"changes\":{}}\n", f);
      if (length == 8000)
        write_plain(f, step);
      else
        write_spiky(f, step);
    }
    CHECK(fclose(f) == 0);
  }
  log_facts_free(read);
  free(log);
}

static void write_a_key(FILE *f, int step) {
  fprintf(f, "{\"step\":%d,\"kind\":\"train\",\"loss_%d\":1}\n", step, step);
}

// A log of many keys is no log of a run: each would take 50 KB of memory, and a list of 1,500 numbers in the page.
TEST(log_facts_of_many_keys_are_few) {
  char *page = page_of_log(3000, write_a_key);
  int curves = 0;
  for (const char *at = page; (at = strstr(at, "{\"y\":")); at++) curves++;
  EXPECT_INT(curves, 256);
  EXPECT(strstr(page, "\"elapsed\":{\"y\":") && strstr(page, "\"records\":3000,"));
  EXPECT(strstr(page, "\"unread\":2745,"));
  free(page);
}

// A training process reads its log at each evaluation: what that takes does not grow with the log, here of 25 MB.
TEST(log_facts_of_a_long_log_take_little_memory) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  int status;
  fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    free(page_of_log(100000, write_spiky));
    getrusage(RUSAGE_SELF, &after);
    const long mb = (after.ru_maxrss - before.ru_maxrss) / 1024;
    if (mb >= 12) printf("  %ld MB\n", mb);
    fflush(stdout);
    _exit(mb >= 12);
  }
  CHECK(waitpid(child, &status, 0) == child);
  EXPECT_INT(status, 0);
}
