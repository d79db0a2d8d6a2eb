// Catches overlapping pieces of scratch memory, and allocations that go on after the largest task.
#include <stdint.h>
#include <unistd.h>
#include "base/scratch.h"
#include "test/harness/test.h"

static void fill(char *p, size_t bytes, char value) { memset(p, value, bytes); }
static bool holds(const char *p, size_t bytes, char value) {
  for (size_t i = 0; i < bytes; i++)
    if (p[i] != value) return false;
  return true;
}

TEST(scratch_pieces_stay_apart) {
  static const size_t sizes[] = {1, 0, 100, 64, 100000, 7};
  Scratch s = {0};
  for (int round = 0; round < 3; round++) { // the first takes piece by piece, later ones from one block
    char *p[COUNT(sizes)];
    for (int i = 0; i < COUNT(sizes); i++) {
      p[i] = scratch_take(&s, sizes[i]);
      EXPECT(holds(p[i], sizes[i], 0) && (uintptr_t)p[i] % _Alignof(max_align_t) == 0);
      fill(p[i], sizes[i], (char)(i + 1));
    }
    for (int i = 0; i < COUNT(sizes); i++) EXPECT(holds(p[i], sizes[i], (char)(i + 1)));
    EXPECT(round == 0 || (!s.more && p[0] == s.block));
    scratch_reset(&s);
  }
  EXPECT(!scratch_take(&s, SIZE_MAX) && !scratch_take(&s, SIZE_MAX / 4 + 1));
  scratch_free(&s);
}

TEST(scratch_resize_keeps_what_was_there) {
  Scratch s = {0};
  for (int round = 0; round < 3; round++) {
    char *a = scratch_resize(&s, NULL, 0, 50), *b;
    fill(a, 50, 1);
    a = scratch_resize(&s, a, 50, 5000);
    EXPECT(holds(a, 50, 1));
    fill(a, 5000, 2);
    b = scratch_take(&s, 30); // a is no longer the last
    fill(b, 30, 3);
    char *grown = scratch_resize(&s, a, 5000, 9000);
    EXPECT(grown != a && holds(grown, 5000, 2) && holds(b, 30, 3));
    EXPECT(scratch_resize(&s, grown, 9000, 10) == grown);
    EXPECT(!scratch_resize(&s, grown, 9000, SIZE_MAX) && holds(grown, 5000, 2));
    scratch_reset(&s);
  }
  EXPECT(!s.more);
  scratch_free(&s);
}

TEST(scratch_reads_files) {
  Scratch s = {0};
  char path[512];
  snprintf(path, sizeof path, "%s/file", test_tmp());
  for (size_t bytes = 0; bytes <= 4096; bytes += 1024) {
    FILE *f = fopen(path, "wb");
    for (size_t i = 0; i < bytes; i++) fputc((int)(i % 251), f);
    CHECK(f && !fclose(f));
    size_t size = 1;
    Err err;
    const uint8_t *read = scratch_read_file(&s, path, &size, &err);
    if (!EXPECT(read && size == bytes)) continue;
    for (size_t i = 0; i < bytes; i++) EXPECT(read[i] == i % 251);
    scratch_reset(&s);
  }
  size_t size;
  Err err;
  EXPECT(!scratch_read_file(&s, "/no/such/file", &size, &err) && strstr(err.msg, "/no/such/file: No such file"));
  EXPECT(!scratch_read_file(&s, test_tmp(), &size, &err) && strstr(err.msg, "not a regular file but a folder"));
  // Of files in /proc the size is not known before: they say 0.
  const char *text = scratch_read_file(&s, "/proc/self/stat", &size, &err);
  EXPECT(text && size > 10 && text[0] >= '0' && text[0] <= '9');
  scratch_free(&s);
}
