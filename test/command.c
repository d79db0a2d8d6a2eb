#include "test/command.h"
#include <sys/wait.h>
#include "test/test.h"

int command(const char **output, const char *fmt, ...) {
  static char text[1 << 16];
  char line[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(line, sizeof line - 8, fmt, args);
  va_end(args);
  strcat(line, " 2>&1");
  FILE *p = popen(line, "r");
  CHECK(p);
  size_t n = 0, got;
  while ((got = fread(text + n, 1, sizeof text - 1 - n, p)) > 0) n += got;
  text[n] = '\0';
  if (output) *output = text;
  int status = pclose(p);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char *tool(const char *name) {
  static char path[256];
  const char *b = getenv("B");
  snprintf(path, sizeof path, "%s/%s", b ? b : "build", name);
  return path;
}

bool same_file(const char *a, const char *b) {
  size_t na, nb;
  char *x = file_read(a, &na, NULL), *y = file_read(b, &nb, NULL);
  bool same = x && y && na == nb && !memcmp(x, y, na);
  free(x);
  free(y);
  return same;
}
