// Catches log records lost or repeated when a run resumes, numbers that do not read back, and a garbled progress line.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static char *read_log(const char *dir) {
  Err err;
  char *path = xasprintf("%s/log.jsonl", dir);
  size_t size;
  char *text = file_read(path, &size, &err);
  free(path);
  return text ? text : xstrdup(err.msg);
}

static void write_log(const char *dir, const char *text) {
  Err err;
  CHECK(dirs_make(dir, &err));
  char *path = xasprintf("%s/log.jsonl", dir);
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
  free(path);
}

// A fresh scratch folder's name.
static char *scratch(const char *name) { return xasprintf("%s/log_%s", test_tmp(), name); }

TEST(record_values) {
  Record r = {0};
  for (int round = 0; round < 2; round++) { // the second reuses the buffer
    record_begin(&r);
    record_int(&r, "int", INT64_MIN);
    record_num(&r, "num", 0.1);
    record_num(&r, "third", 1.0 / 3);
    record_num(&r, "whole", 90000);
    record_num(&r, "nan", NAN);
    record_num(&r, "inf", -INFINITY);
    record_bool(&r, "yes", true);
    record_str(&r, "null", NULL);
    record_raw(&r, "list", "[1,2]");
    record_strings(&r, "none", NULL, 0);
    record_strings(&r, "names", (const char *[]){"a\"", "b"}, 2);
    EXPECT_STR(record_end(&r), "{\"int\":-9223372036854775808,\"num\":0.1,\"third\":0.3333333333333333,"
                               "\"whole\":90000,\"nan\":null,\"inf\":null,\"yes\":true,\"null\":null,\"list\":[1,2],"
                               "\"none\":[],\"names\":[\"a\\\"\",\"b\"]}");
  }
  record_begin(&r);
  EXPECT_STR(record_end(&r), "{}");
  record_free(&r);
}

TEST(record_strings) {
  static const struct {
    const char *value, *json;
  } cases[] = {
      {"a\"b\\c", "a\\\"b\\\\c"},
      {"tab\tnewline\n\x01", "tab\\u0009newline\\u000a\\u0001"},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"}, // é € 😀
      {"\xff", "\\ufffd"},
      {"\xc3", "\\ufffd"},                                  // cut short
      {"\xc3(", "\\ufffd("},                                // continuation missing
      {"\xc0\xaf", "\\ufffd\\ufffd"},                       // overlong '/'
      {"\xe0\x80\xaf", "\\ufffd\\ufffd\\ufffd"},            // overlong
      {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},            // a surrogate
      {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"}, // above U+10FFFF
  };
  Record r = {0};
  for (int i = 0; i < COUNT(cases); i++) {
    record_begin(&r);
    record_str(&r, cases[i].value, cases[i].value);
    char *want = xasprintf("{\"%s\":\"%s\"}", cases[i].json, cases[i].json);
    EXPECT_STR(record_end(&r), want);
    free(want);
  }
  record_free(&r);
}

TEST(number_text_reads_back) {
  static const double values[] = {0, -0.0, 0.1, 1e-320, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 0x1p53, -1.5};
  char text[NUMBER_TEXT];
  for (int i = 0; i < COUNT(values); i++) EXPECT(strtod(number_text(values[i], text), NULL) == values[i]);
}

TEST(float_decimal_is_what_was_typed) {
  static const struct {
    float value;
    double decimal;
  } cases[] = {{0.001f, 0.001}, {0.05f, 0.05}, {1 / 3.f, 0.33333334}, {16777216, 16777216}, {-0.1f, -0.1}};
  for (int i = 0; i < COUNT(cases); i++) EXPECT(float_decimal(cases[i].value) == cases[i].decimal);
}

TEST(log_fresh_run_starts_over) {
  Err err;
  Log log;
  char *dir = scratch("fresh");
  write_log(dir, "{\"step\":0}\nold\n");
  if (EXPECT(log_open(&log, dir, -1, &err))) {
    record_num(log_begin(&log, 1, "train"), "loss", 2.5);
    log_commit(&log);
    log_begin(&log, 2, "train");
    log_commit(&log);
    EXPECT(log_close(&log, &err));
  }
  char *text = read_log(dir);
  EXPECT_STR(text, "{\"step\":1,\"kind\":\"train\",\"loss\":2.5}\n{\"step\":2,\"kind\":\"train\"}\n");
  free(text);
  free(dir);
}

TEST(log_resume_drops_later_steps) {
  static const struct {
    int64_t resume;
    const char *kept;
  } cases[] = {
      {0, "{\"step\":0,\"kind\":\"config\"}\n"},
      {10, "{\"step\":0,\"kind\":\"config\"}\n{\"step\":10}\n{\"step\":10,\"ap\":0.5}\n"},
      {19, "{\"step\":0,\"kind\":\"config\"}\n{\"step\":10}\n{\"step\":10,\"ap\":0.5}\n"},
      {20, "{\"step\":0,\"kind\":\"config\"}\n{\"step\":10}\n{\"step\":10,\"ap\":0.5}\n{\"step\":20}\n"},
  };
  Err err;
  char *dir = scratch("resume");
  for (int i = 0; i < COUNT(cases); i++) {
    write_log(dir, "{\"step\":0,\"kind\":\"config\"}\n{\"step\":10}\n{\"step\":10,\"ap\":0.5}\n{\"step\":20}\n{\"st");
    Log log;
    if (!EXPECT(log_open(&log, dir, cases[i].resume, &err))) continue;
    log_begin(&log, 30, "train");
    log_commit(&log);
    EXPECT(log_close(&log, &err));
    char *text = read_log(dir), *want = xasprintf("%s{\"step\":30,\"kind\":\"train\"}\n", cases[i].kept);
    EXPECT_STR(text, want);
    free(want);
    free(text);
  }
  free(dir);
}

// What could not be read to its end is not taken for the end: a log that is resumed while memory is out stays whole.
TEST(log_resume_without_memory_drops_nothing) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  const char *want = "{\"step\":1,\"kind\":\"train\"}\n{\"step\":2,\"kind\":\"train\"}\n";
  char *dir = scratch("short"), *said = xasprintf("%s/log_short_said", test_tmp());
  int failed = 0, opened = 0;
  fflush(stdout);
  for (int nth = 1; !opened; nth++) {
    int status;
    write_log(dir, want);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      Log log;
      Err err;
      quiet_begin(said);
      allocations_fail(nth);
      const int64_t end = allocations() + nth; // past it, one has failed
      bool ok = log_open(&log, dir, 2, &err);
      _exit(allocations() < end ? 0 : ok ? 3 : 2);
    }
    CHECK(waitpid(child, &status, 0) == child);
    char *text = read_log(dir);
    EXPECT_STR(text, want);
    free(text);
    if (!EXPECT(WIFEXITED(status))) break;
    opened = WEXITSTATUS(status) == 0;
    failed += !opened && WEXITSTATUS(status) != 3; // 3: the memory that was refused was not needed
  }
  EXPECT(failed > 0);
  free(said);
  free(dir);
}

static int64_t allocations_to_resume(int records) {
  Err err;
  Log log;
  char *dir = scratch("long");
  char *lines = xcalloc((size_t)records + 1, sizeof "{\"step\":1}");
  for (int i = 0; i < records; i++) strcat(lines + i * (int)strlen("{\"step\":1}\n"), "{\"step\":1}\n");
  write_log(dir, lines);
  const int64_t before = allocations();
  EXPECT(log_open(&log, dir, 1, &err));
  const int64_t made = allocations() - before;
  EXPECT(log_close(&log, &err));
  free(lines);
  free(dir);
  return made;
}

// A run that is resumed after many steps holds no more memory than after a few: a line takes what reads it, once.
TEST(log_resume_takes_memory_for_no_line) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  EXPECT_INT(allocations_to_resume(1000) - allocations_to_resume(10), 1000 - 10);
}

static void commit(Log *log, int64_t step, const char *type) {
  log_begin(log, step, type);
  log_commit(log);
}

// A step's record and progress take no memory once the first have, held back or not.
TEST(log_allocates_nothing_per_step) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  Err err;
  Log log;
  char *dir = scratch("quiet"), *said = xasprintf("%s/log_said", test_tmp());
  CHECK(log_open(&log, dir, -1, &err));
  int kept = quiet_begin(said);
  for (int held = 0; held < 2; held++) {
    int64_t before = 0;
    if (held) log_hold(&log);
    for (int64_t step = 1; step <= 300; step++) {
      log_progress(&log, &(Progress){.step = step, .steps = 1000, .images = 2 * step, .loss = 1, .learning_rate = 0.1});
      Record *r = log_begin(&log, step, "train");
      record_num(r, "loss", 1 / 3.0);
      log_commit(&log);
      if (step == 1) before = allocations();
    }
    EXPECT_INT(allocations() - before, 0);
  }
  quiet_end(kept);
  log_release(&log);
  EXPECT(log_close(&log, &err));
  free(said);
  free(dir);
}

// What was committed between hold and release stands behind the record that took its time, or is written at the end.
TEST(log_holds_records_back) {
  Err err;
  Log log;
  char *dir = scratch("held");
  CHECK(log_open(&log, dir, -1, &err));
  commit(&log, 5, "train");
  log_hold(&log);
  commit(&log, 6, "train");
  commit(&log, 7, "train");
  char *text = read_log(dir);
  EXPECT_STR(text, "{\"step\":5,\"kind\":\"train\"}\n");
  free(text);
  log_release(&log);
  commit(&log, 5, "eval");
  log_hold(&log);
  commit(&log, 8, "train");
  EXPECT(log_close(&log, &err));
  text = read_log(dir);
  EXPECT_STR(text, "{\"step\":5,\"kind\":\"train\"}\n{\"step\":5,\"kind\":\"eval\"}\n{\"step\":6,\"kind\":\"train\"}\n"
                   "{\"step\":7,\"kind\":\"train\"}\n{\"step\":8,\"kind\":\"train\"}\n");
  free(text);
  static const int64_t resumes[][2] = {{7, 5}, {5, 5}, {4, -1}}; // the step resumed at, the last evaluation there
  for (int i = 0; i < COUNT(resumes); i++) {
    CHECK(log_open(&log, dir, resumes[i][0], &err));
    EXPECT_INT(log.evaluated, resumes[i][1]);
    EXPECT(log_close(&log, &err));
  }
  free(dir);
}

static void limit_files(rlim_t bytes) {
  struct rlimit limit;
  CHECK(!getrlimit(RLIMIT_FSIZE, &limit));
  limit.rlim_cur = MIN(bytes, limit.rlim_max);
  CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}

// A limit on file size simulates a disk that is full for a while.
TEST(log_keeps_what_cannot_be_written) {
  Err err;
  Log log;
  char *dir = scratch("full"), *text = NULL, *said = NULL, *want = NULL;
  size_t size;
  CHECK(log_open(&log, dir, -1, &err));
  log.people = open_memstream(&said, &size);
  commit(&log, 1, "train");
  void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
  limit_files(40); // in the midst of the second record
  commit(&log, 2, "train");
  log_hold(&log);
  commit(&log, 3, "train");
  log_release(&log);
  commit(&log, 2, "eval");
  EXPECT(!log_written(&log, &err) && errno == EFBIG);
  EXPECT_STR(err.msg, "log.jsonl: could not be written completely: File too large");
  text = read_log(dir);
  EXPECT_STR(text, "{\"step\":1,\"kind\":\"train\"}\n"); // nothing of the second
  free(text);
  limit_files(RLIM_INFINITY);
  EXPECT(log_written(&log, &err));
  commit(&log, 4, "train");
  signal(SIGXFSZ, before);
  fclose(log.people);
  log.people = stderr;
  want = xasprintf("%s; retrying\n", err.msg); // once
  EXPECT_STR(said, want);
  EXPECT(log_close(&log, &err));
  text = read_log(dir);
  EXPECT_STR(text, "{\"step\":1,\"kind\":\"train\"}\n{\"step\":2,\"kind\":\"train\"}\n"
                   "{\"step\":2,\"kind\":\"eval\"}\n{\"step\":3,\"kind\":\"train\"}\n"
                   "{\"step\":4,\"kind\":\"train\"}\n");
  free(text);
  free(said);
  free(want);
  free(dir);
}

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

// An editor, logrotate and the like: no record is lost by it, nor what they put there.
TEST(log_survives_other_programs) {
  static const char one[] = "{\"step\":1,\"kind\":\"train\"}\n", two[] = "{\"step\":2,\"kind\":\"train\"}\n";
  enum { REPLACED, MOVED, CUT, ADDED, ADDED_HALF, WAYS };
  static const char *const said[] = {"was replaced by another program; the other file was moved to ",
                                     "was moved or removed by", "was cut short by another program",
                                     "was added to by another program", "was added to by another program"};
  for (int way = 0; way < WAYS; way++) {
    Err err;
    Log log;
    char *dir = xasprintf("%s/log_other_%d", test_tmp(), way), *path = xasprintf("%s/log.jsonl", dir);
    char *other = xasprintf("%s-other", path), *aside = xasprintf("%s-1", path), *people = NULL, *want = NULL;
    size_t size;
    CHECK(log_open(&log, dir, -1, &err));
    log.people = open_memstream(&people, &size);
    commit(&log, 1, "train");
    const int file = log.file;
    if (way == REPLACED) {
      write_text(other, "edited\n");
      CHECK(!rename(other, path));
    }
    if (way == MOVED) CHECK(!rename(path, other));
    if (way == CUT) CHECK(!truncate(path, 0));
    if (way >= ADDED) {
      FILE *f = fopen(path, "a");
      CHECK(f && fputs(way == ADDED ? "added\n" : "half", f) >= 0 && fclose(f) == 0);
    }
    commit(&log, 2, "train");
    commit(&log, 3, "train");
    EXPECT(log.file == file); // a checkpoint's writer may have its number
    fclose(log.people);
    log.people = stderr;
    EXPECT(log_close(&log, &err));
    char *at = strstr(people, said[way]);
    EXPECT(at && !strstr(at + 1, said[way])); // once
    static const char *const between[] = {one, one, "", NULL, NULL};
    const char *first = way < ADDED ? between[way] : one;
    want = xasprintf("%s%s%s%s", first,
                     way < ADDED    ? ""
                     : way == ADDED ? "added\n"
                                    : "half\n",
                     two, "{\"step\":3,\"kind\":\"train\"}\n");
    char *text = read_log(dir), *kept = way == REPLACED ? file_read(aside, &size, NULL) : NULL;
    EXPECT_STR(text, want);
    if (way == REPLACED) EXPECT_STR(kept, "edited\n");
    char *all[] = {dir, path, other, aside, people, want, text, kept};
    for (int i = 0; i < COUNT(all); i++) free(all[i]);
  }
}

// Lines that are no records, or whose step is too large, do not take those behind them along.
TEST(log_sets_aside_what_is_damaged) {
  Err err;
  Log log;
  char *dir = scratch("damaged"), *said_path = xasprintf("%s/log_damaged_said", test_tmp());
  char *aside = xasprintf("%s/log-set-aside.jsonl", dir);
  size_t size;
  write_log(dir, "{\"step\":1,\"kind\":\"train\"}\n{\"step\":2,\"ki\n{\"step\":900,\"kind\":\"train\"}\n"
                 "{\"step\":4,\"kind\":\"eval\"}\n{\"step\":5,\"kind\":\"train\"}\n{\"step\":6,\"kind\":\"tr");
  for (int again = 0; again < 2; again++) {
    int kept = quiet_begin(said_path);
    EXPECT(log_open(&log, dir, 4, &err));
    quiet_end(kept);
    EXPECT_INT(log.evaluated, 4);
    EXPECT(log_close(&log, &err));
    char *text = read_log(dir), *moved = file_read(aside, &size, NULL), *said = file_read(said_path, &size, NULL);
    EXPECT_STR(text, "{\"step\":1,\"kind\":\"train\"}\n{\"step\":4,\"kind\":\"eval\"}\n");
    EXPECT_STR(moved, "{\"step\":2,\"ki\n{\"step\":900,\"kind\":\"train\"}\n");
    EXPECT(again ? !*said : strstr(said, "log.jsonl: 2 lines were damaged") != NULL);
    free(text);
    free(moved);
    free(said);
  }
  free(aside);
  free(said_path);
  free(dir);
}

TEST(log_reports_what_cannot_be_written) {
  Err err;
  Log log;
  char *dir = scratch("blocked"), *path = xasprintf("%s/log.jsonl", dir);
  CHECK(dirs_make(path, &err)); // a folder stands where the file should
  if (EXPECT(!log_open(&log, dir, -1, &err))) EXPECT(strstr(err.msg, path));
  EXPECT(log_close(&log, &err));
  free(path);
  free(dir);
  int full = open("/dev/full", O_WRONLY);
  if (full < 0) return;
  CHECK(log_open(&log, NULL, -1, &err));
  log.file = full;
  log_hold(&log);
  log_begin(&log, 1, "train");
  log_commit(&log);
  log_release(&log);
  EXPECT(!log_close(&log, &err)); // what was held is written last
}

// The progress line of a run of 1000 steps, as people get it.
static char *progress_of(bool terminal) {
  Err err;
  Log log;
  CHECK(log_open(&log, NULL, -1, &err));
  char *text = NULL;
  size_t size = 0;
  log.people = open_memstream(&text, &size);
  log.terminal = terminal;
  CHECK(log.people);
  for (int step = 1; step <= 1000; step++) {
    Progress p = {.step = step, .steps = 1000, .images = 4 * step, .loss = 1.25, .learning_rate = 0.02};
    log_progress(&log, &p);
    if (step == 500) log_note(&log, "note %d", step);
    if (step == 500) EXPECT(log.images_per_second == 0 && !strstr(text, "img/s")); // all at once says nothing
    if (step == 500) usleep(120000);
  }
  EXPECT(log.images_per_second > 0 && log.images_per_second < 4 * 1000 / 0.12);
  EXPECT_NEAR(log.images_per_second / log.steps_per_second, 4, 1e-9); // both means have the same weights
  EXPECT(log_close(&log, &err));
  fclose(log.people);
  return text;
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) n++;
  return n;
}

TEST(log_progress_is_plain_and_rare_in_a_file) {
  char *text = progress_of(false);
  EXPECT(!strchr(text, '\r') && !strchr(text, '\033'));
  EXPECT(strstr(text, "step 1/1000  loss 1.2500  lr 0.02\n") == text);
  EXPECT(strstr(text, "\nnote 500\n"));
  EXPECT(strstr(text, "\nstep 1000/1000  "));
  EXPECT_INT(count(text, "\n"), 3); // the first, the note, the last: 1000 steps take less than ten seconds
  free(text);
}

TEST(log_progress_updates_one_line_on_a_terminal) {
  char *text = progress_of(true);
  EXPECT(strstr(text, "\r\033[Kstep 1/1000  ") == text);
  EXPECT(strstr(text, "\r\033[Knote 500\n"));
  EXPECT(strstr(text, "\r\033[Kstep 1000/1000  "));
  EXPECT_INT(count(text, "\n"), 2); // the note's and the one that closing adds
  free(text);
}
