// Paths into records.
#include "lab/study/found.h"
#include "test/harness/test.h"

static void expect_found(const char *path, const char *text, double number) {
  static const char json[] =
      "{\"a\": {\"b\": [1, {\"c\": \"x y\"}], \"99.9%\": 7.5}, \"t\": true, \"z\": null, \"a.b\": 3}";
  StudyFound f = study_find(json, sizeof json - 1, path);
  const bool same = text ? f.text && !strcmp(f.text, text) : !f.text;
  if (!EXPECT(same && (f.number == number || (isnan(f.number) && isnan(number)))))
    printf("%s: %s, %g\n", path, f.text ? f.text : "nothing", f.number);
  free(f.text);
}

TEST(found_by_path) {
  expect_found("a.b.0", "1", 1);
  expect_found("a.b.1.c", "x y", NAN);
  expect_found("a.99.9%", "7.5", 7.5);
  expect_found("t", "true", 1);
  expect_found("z", NULL, NAN);
  expect_found("a", NULL, NAN);
  expect_found("a.b.2", NULL, NAN);
  expect_found("b", NULL, NAN);
  expect_found("", NULL, NAN);
  EXPECT(study_find("{\"z\": null}", 11, "z").there && !study_find("{\"z\": 1}", 8, "y").there);
  StudyFound broken = study_find("{\"z\": ", 6, "z");
  EXPECT(!broken.text);
}
