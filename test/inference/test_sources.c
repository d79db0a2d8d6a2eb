// Catches images of a folder or list that are skipped, repeated or misnamed.
#include <unistd.h>
#include "base/alloc.h"
#include "inference/sources.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static void expect_next(Sources *s, const char *want) {
  Err err;
  char *path = NULL;
  if (EXPECT_INT(sources_next(s, 10, &path, &err), SOURCE_IMAGE)) EXPECT_STR(path, want);
  free(path);
}

static void expect_state(Sources *s, SourceState want) {
  Err err;
  char *path = NULL;
  EXPECT_INT(sources_next(s, 0, &path, &err), want);
}

TEST(sources_of_files_and_folders_in_order) {
  Err err;
  const char *folder = in_tmp("sources");
  CHECK(!command(NULL,
                 "mkdir -p %s/below.png && cd %s && touch b.PNG a.jpeg .hidden.jpg notes.txt c.jpg below.png/d.png",
                 folder, folder));
  const char *const names[] = {"z.jpg", folder, "no-such.png"};
  Sources *s = sources_open(names, 3, -1, &err);
  if (!EXPECT(s)) return;
  int n;
  const char *const *files = sources_files(s, &n);
  if (EXPECT_INT(n, 6)) EXPECT_STR(files[5], "no-such.png");
  EXPECT(!sources_has_list(s));
  const char *const inside[] = {"a.jpeg", "b.PNG", "below.png", "c.jpg"}; // a folder that is called as an image: bad
  expect_next(s, "z.jpg");
  for (int i = 0; i < COUNT(inside); i++) {
    char *path = xasprintf("%s/%s", folder, inside[i]);
    expect_next(s, path);
    free(path);
  }
  expect_next(s, "no-such.png");
  expect_state(s, SOURCE_ENDS);
  expect_state(s, SOURCE_ENDS);
  sources_close(s);
}

TEST(sources_refuse_an_empty_folder_and_two_lists) {
  Err err;
  const char *folder = in_tmp("no-images");
  CHECK(!command(NULL, "mkdir -p %s && touch %s/photo.bmp", folder, folder));
  EXPECT(!sources_open(&folder, 1, -1, &err) &&
         strstr(err.msg, ": no .jpg, .jpeg or .png file in this folder; subfolders are not searched, so name them or "
                         "pass a list: find "));
  const char *const lists[] = {"-", "-"};
  EXPECT(!sources_open(lists, 2, 0, &err) && strstr(err.msg, "- is given twice, but there is only one standard input"));
}

// Lines come in pieces; what stands before and after the list keeps its place.
TEST(sources_read_a_list_as_it_comes) {
  Err err;
  int ends[2];
  CHECK(!pipe(ends));
  const char *const names[] = {"first.jpg", "-", "last.jpg"};
  Sources *s = sources_open(names, 3, ends[0], &err);
  if (!EXPECT(s)) return;
  int n;
  sources_files(s, &n);
  EXPECT_INT(n, 2);
  EXPECT(sources_has_list(s));
  expect_next(s, "first.jpg");
  expect_state(s, SOURCE_WAITS);
  CHECK(write(ends[1], "a b.jpg\nc", 9) == 9);
  expect_next(s, "a b.jpg");
  expect_state(s, SOURCE_WAITS);
  CHECK(write(ends[1], ".png\r\n\n\nd", 9) == 9);
  expect_next(s, "c.png");
  expect_state(s, SOURCE_WAITS);
  close(ends[1]);
  expect_next(s, "d"); // a last line without its newline
  expect_next(s, "last.jpg");
  expect_state(s, SOURCE_ENDS);
  sources_close(s);
  close(ends[0]);
}

// Of find -print0: newlines are part of names.
TEST(sources_read_a_list_that_ends_names_with_nul) {
  Err err;
  int ends[2];
  CHECK(!pipe(ends));
  const char *const names[] = {"-"};
  Sources *s = sources_open(names, 1, ends[0], &err);
  CHECK(write(ends[1], "a.jpg\0b\nb.jpg\0c", 15) == 15);
  expect_next(s, "a.jpg");
  expect_next(s, "b\nb.jpg");
  expect_state(s, SOURCE_WAITS);
  CHECK(write(ends[1], "\r\0\0d", 4) == 4);
  close(ends[1]);
  expect_next(s, "c\r");
  expect_next(s, "d");
  expect_state(s, SOURCE_ENDS);
  sources_close(s);
  close(ends[0]);
}

// As on the command line; one without images is a bad image among others.
TEST(sources_take_folders_of_a_list) {
  Err err;
  int ends[2];
  CHECK(!pipe(ends));
  char *folder = xstrdup(in_tmp("listed")),
       *lines = xasprintf("%s/full\nx.jpg\n%s/empty\n%s/full/\n", folder, folder, folder);
  CHECK(!command(NULL, "mkdir -p %s && cd %s && mkdir full empty && touch full/b.PNG full/a.jpg full/notes.txt", folder,
                 folder));
  const char *const names[] = {"-"};
  Sources *s = sources_open(names, 1, ends[0], &err);
  CHECK(write(ends[1], lines, strlen(lines)) == (ssize_t)strlen(lines));
  static const char *const want[] = {"/full/a.jpg", "/full/b.PNG", NULL, "/empty", "/full/a.jpg"};
  for (int i = 0; i < COUNT(want); i++) {
    char *path = want[i] ? xasprintf("%s%s", folder, want[i]) : xstrdup("x.jpg");
    expect_next(s, path);
    free(path);
  }
  sources_close(s); // amidst a folder
  close(ends[0]);
  close(ends[1]);
  free(folder);
  free(lines);
}

// What follows the NUL would be lost.
TEST(sources_refuse_nul_amidst_lines) {
  Err err;
  char *path;
  int ends[2];
  CHECK(!pipe(ends));
  const char *const names[] = {"-"};
  Sources *s = sources_open(names, 1, ends[0], &err);
  CHECK(write(ends[1], "a.jpg\n", 6) == 6);
  expect_next(s, "a.jpg");
  CHECK(write(ends[1], "b.jpg\0c.jpg\n", 12) == 12);
  EXPECT_INT(sources_next(s, 10, &path, &err), SOURCE_FAILS);
  EXPECT(strstr(err.msg, "the list on standard input mixes NUL and newline: end all names with newlines, or all with "
                         "NUL as find -print0 does"));
  sources_close(s);
  close(ends[0]);
  close(ends[1]);
}

TEST(sources_say_that_a_list_cannot_be_read) {
  Err err;
  char *path;
  int ends[2];
  CHECK(!pipe(ends));
  const char *const names[] = {"-"};
  Sources *s = sources_open(names, 1, ends[1], &err); // the end to write to
  close(ends[0]);                                     // so that poll has something to say
  EXPECT_INT(sources_next(s, 10, &path, &err), SOURCE_FAILS);
  EXPECT(strstr(err.msg, "cannot read the list on standard input: "));
  sources_close(s);
  close(ends[1]);
}
