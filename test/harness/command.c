#include "test/harness/command.h"
#include <sys/wait.h>
#include <unistd.h>
#include "base/error.h"
#include "base/file.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

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

void expect_mistake_of(const char *program, const char *says, const char *fmt, va_list args) {
  const char *said;
  char arguments[1024];
  vsnprintf(arguments, sizeof arguments, fmt, args);
  const int status = command(&said, "%s %s", program, arguments);
  const char *end = strchr(said, '\n');
  if (!EXPECT(status == 2 && end && !end[1] && strstr(said, says)))
    fprintf(stderr, "%s\n  said: %s  expected: %s\n", arguments, said, says);
}

const char *tool(const char *name) {
  static char paths[4][256];
  static int next;
  char *path = paths[next++ % 4];
  const char *b = getenv("B");
  snprintf(path, sizeof paths[0], "%s/%s", b ? b : "build", name);
  return path;
}

bool same_file(const char *a, const char *b) {
  static char x[1 << 16], y[1 << 16];
  FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
  bool same = f && g;
  for (size_t n = 1; same && n > 0;) {
    n = fread(x, 1, sizeof x, f);
    same = fread(y, 1, sizeof y, g) == n && !memcmp(x, y, n) && !ferror(f) && !ferror(g);
  }
  if (f) fclose(f);
  if (g) fclose(g);
  return same;
}

const char *shapes_set(void) {
  static char dir[512];
  const char *said;
  if (*dir) return dir;
  snprintf(dir, sizeof dir, "%s", test_kept("set"));
  if (!EXPECT_INT(command(&said, "%s --out %s --train 24 --val 6 --size 64 --seed 3", tool("shapes"), dir), 0))
    fprintf(stderr, "%s\n", said);
  return dir;
}

const char *in_tmp(const char *file) {
  static char paths[4][512];
  static int next;
  char *p = paths[next++ % 4];
  snprintf(p, sizeof paths[0], "%s/%s", test_tmp(), file);
  return p;
}

bool folder_fetch(const char *name) {
  if (path_is_dir(in_tmp(name))) return true;
  const char *kept = test_kept(name);
  if (!path_is_dir(kept)) return false;
  CHECK(!command(NULL, "cp -a %s %s", kept, test_tmp()));
  return true;
}

void folder_keep(const char *name) { CHECK(!command(NULL, "cp -a %s %s", in_tmp(name), test_kept(name))); }

int train_shapes(const char *env, const char *out, const char *more) {
  const char *said;
  int status = command(&said,
                       "%s %s --data %s --out %s/%s --model tiny --size 64 --batch 2 --iters 8 --lr 0.01 "
                       "--checkpoint-every 3 --seed 5 --eval-every never --detections 20 %s",
                       env, tool("train"), shapes_set(), test_tmp(), out, more);
  if (status) fprintf(stderr, "%s\n", said);
  return status;
}

pid_t command_start(const char *line) {
  fflush(NULL); // or the child writes it again
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    signals_end_this();
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
  }
  return pid;
}
