#include "test/harness/studies.h"
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"

const char *study_tmp(void) {
  const char *path = in_tmp("study");
  CHECK(dirs_make(path, NULL));
  return path;
}

const char *study_put(const char *name, const char *text) {
  static char path[4][512];
  static int next;
  char *to = path[next++ % 4];
  snprintf(to, sizeof path[0], "%s/%s", study_tmp(), name);
  FILE *f = fopen(to, "w");
  CHECK(f);
  fputs(text, f);
  CHECK(!fclose(f));
  return to;
}

char *study_text(const char *folder, const char *name) {
  char path[600];
  size_t size;
  snprintf(path, sizeof path, "%s/%s/%s", study_tmp(), folder, name);
  char *text = file_read(path, &size, NULL);
  return text ? text : xstrdup("");
}

int count_of(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
  return n;
}

int study_of(const char *plan, const char *folder, const char *options, const char **said) {
  const char *other;
  return command(said ? said : &other, "%s %s --out %s/%s %s", tool("study"), plan, study_tmp(), folder, options);
}

void expect_in(const char *text, const char *what, const char *file, int line) {
  if (!test_true(strstr(text, what) != NULL, what, file, line)) printf("in\n%s\n", text);
}
