// Catches records lost while a file of JSON lines is read, and broken lines that are not reported by number.
#include "base/alloc.h"
#include "base/json_lines.h"
#include "test/harness/test.h"

typedef struct Sum {
  double value, enough;
} Sum;

static bool add(Json *line, void *context) {
  Sum *s = context;
  s->value += json_number(line);
  return s->value < s->enough;
}

static bool sum_of(const char *text, Sum *s, Err *err) {
  char *path = xasprintf("%s/numbers.jsonl", test_tmp());
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && !fclose(f));
  const bool ok = json_lines(path, add, s, err);
  free(path);
  return ok;
}

TEST(json_lines_are_read_until_it_is_enough) {
  Sum all = {0, 100}, some = {0, 3}, none = {0, 1};
  Err err;
  EXPECT(sum_of("1\n2\n4\n8", &all, &err) && all.value == 7); // the last is cut short
  EXPECT(sum_of("1\n2\n4\n", &some, &err) && some.value == 3);
  EXPECT(sum_of("", &none, &err) && none.value == 0);
}

TEST(json_lines_say_where_they_are_broken) {
  Sum s = {0, 100};
  Err err;
  EXPECT(!sum_of("1\n2\n  ]\n", &s, &err) && strstr(err.msg, "numbers.jsonl:3:3: "));
  EXPECT(!sum_of("1\n2 3\n", &s, &err) && strstr(err.msg, "numbers.jsonl:2:3: "));
  EXPECT(!json_lines("/nowhere.jsonl", add, &s, &err) && strstr(err.msg, "/nowhere.jsonl"));
}
