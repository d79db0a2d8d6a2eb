// Catches lines that are cut, or that fill memory.
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/line_read.h"
#include "test/harness/test.h"

TEST(line_read_reads_lines) {
  char *path = xasprintf("%s/lines", test_tmp()), *line = NULL;
  size_t cap = 0;
  FILE *f = fopen(path, "w+");
  CHECK(f && fwrite("one\n\nt\0o\nend", 1, 12, f) == 12);
  rewind(f);
  EXPECT(line_read(&line, &cap, f) == 4 && !strcmp(line, "one\n"));
  EXPECT(line_read(&line, &cap, f) == 1 && !strcmp(line, "\n"));
  EXPECT(line_read(&line, &cap, f) == 4 && !memcmp(line, "t\0o\n", 5));
  EXPECT(line_read(&line, &cap, f) == 3 && !strcmp(line, "end"));
  EXPECT(line_read(&line, &cap, f) == -1 && feof(f));
  free(line);
  free(path);
  fclose(f);
}

// Of a file of 60 GB without a line's end, which takes no room.
TEST(line_read_refuses_endless_lines) {
  char *path = xasprintf("%s/endless", test_tmp()), *line = NULL;
  size_t cap = 0;
  FILE *f = fopen(path, "w+");
  CHECK(f && !ftruncate(fileno(f), (off_t)60 << 30));
  errno = 0;
  EXPECT(line_read(&line, &cap, f) == -1 && errno == EFBIG && !feof(f) && cap < 200 << 20);
  free(line);
  fclose(f);
  unlink(path);
  free(path);
}
