#include "base/json_lines.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

bool json_lines(const char *path, JsonLineFn *each, void *context, Err *err) {
  size_t size;
  char *text = file_read(path, &size, err);
  bool ok = text, more = true;
  for (char *line = text, *end; ok && more && line < text + size; line = end + 1) {
    end = memchr(line, '\n', (size_t)(text + size - line));
    if (!end) break;
    Json j = {.file = path, .begin = text, .at = line, .end = end}; // messages count lines from the file's beginning
    more = each(&j, context);
    ok = json_done(&j) || err_set(err, "%s", j.err.msg);
    json_close(&j);
  }
  free(text);
  return ok;
}
