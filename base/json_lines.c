#include "base/json_lines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/line_read.h"
#include "base/regular.h"

bool json_lines(const char *path, JsonLineFn *each, void *context, Err *err) {
  return json_lines_from(&(JsonLinesAt){0}, path, each, context, err);
}

bool json_lines_from(JsonLinesAt *at, const char *path, JsonLineFn *each, void *context, Err *err) {
  FILE *f = regular_read(path, err);
  if (!f) return false;
  char *line = NULL;
  size_t cap = 0;
  bool ok = true, more = true;
  ssize_t n = 0;
  if (at->bytes && fseeko(f, at->bytes, SEEK_SET) != 0) ok = err_set(err, "cannot read %s: %s", path, strerror(errno));
  while (ok && more && (n = line_read(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
    Json j;
    json_open(&j, path, line, (size_t)n - 1);
    j.lines_before = at->lines++;
    at->bytes += n;
    more = each(&j, context);
    ok = json_done(&j) || err_set(err, "%s", j.err.msg);
    json_close(&j);
  }
  if (n < 0 && !feof(f)) ok = err_set(err, "cannot read %s: %s", path, strerror(errno)); // or no memory for a line
  free(line);
  fclose(f);
  return ok;
}
