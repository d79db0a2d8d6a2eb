// Catches a file written piece by piece whose last piece is incomplete after a failure.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/growing.h"
#include "test/harness/test.h"

static void expect_text(const char *path, const char *want) {
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (EXPECT(text)) EXPECT_STR(text, want);
  free(text);
}

TEST(growing_is_whole_after_every_piece) {
  char *path = xasprintf("%s/pieces", test_tmp()), *part = xasprintf("%s.partial", path);
  GrowingFile g;
  Err err;
  if (!EXPECT(growing_open(&g, path, "[", "]\n", &err))) return;
  EXPECT_STR(g.partial, part);
  expect_text(part, "[]\n");
  EXPECT(growing_add(&g, "1", 1, &err));
  expect_text(part, "[1]\n");
  EXPECT(growing_add(&g, ",22", 3, &err) && growing_add(&g, "", 0, &err));
  expect_text(part, "[1,22]\n");
  EXPECT(!path_is_file(path));
  EXPECT(growing_commit(&g, &err));
  expect_text(path, "[1,22]\n");
  EXPECT(!path_is_file(part));
  // A run before is replaced at the end only, and what it left unfinished is kept.
  EXPECT(growing_open(&g, path, "", "", &err) && growing_add(&g, "line\n", 5, &err));
  expect_text(path, "[1,22]\n");
  growing_keep(&g);
  expect_text(part, "line\n");
  for (int i = 1; i <= 3; i++) {
    char *kept = xasprintf("%s-%d", part, i);
    EXPECT(growing_open(&g, path, "[", "]", &err));
    expect_text(part, "[]");
    if (EXPECT(g.kept)) EXPECT_STR(g.kept, kept);
    expect_text(kept, i == 1 ? "line\n" : "[x]");
    free(kept);
    EXPECT(growing_add(&g, "x", 1, &err));
    growing_keep(&g);
  }
  // Of what holds nothing, nothing is kept, nor of what another program is writing.
  EXPECT(growing_open(&g, path, "[", "]", &err));
  GrowingFile other;
  EXPECT(!growing_open(&other, path, "[", "]", &err) && strstr(err.msg, "another program is writing it"));
  EXPECT(growing_add(&g, "x", 1, &err));
  EXPECT(!growing_open(&other, path, "[", "]", &err) && strstr(err.msg, "another program is writing it"));
  growing_abort(&g);
  EXPECT(!path_is_file(part));
  EXPECT(growing_open(&g, path, "[", "]", &err));
  growing_keep(&g);
  EXPECT(growing_open(&g, path, "[", "]", &err) && !g.kept);
  growing_abort(&g);
  // A link where results go is followed, and what was left stands where it leads to.
  char *link = xasprintf("%s/growing-link", test_tmp()), *first = xasprintf("%s-5", part);
  CHECK(!symlink(path, link));
  EXPECT(growing_open(&g, path, "", "", &err) && growing_add(&g, "line\n", 5, &err));
  growing_keep(&g);
  EXPECT(growing_open(&g, link, "", "", &err) && g.kept);
  expect_text(first, "line\n");
  growing_abort(&g);
  free(link);
  free(first);
  EXPECT(!growing_open(&g, "/nowhere/x", "", "", &err) && strstr(err.msg, "/nowhere/x"));
  free(path);
  free(part);
}

// Under a limit of its size, as on a full disk: with limits at every byte of the third piece and what closes it.
TEST(growing_takes_all_or_nothing) {
  char *path = xasprintf("%s/limited", test_tmp()), *part = xasprintf("%s.partial", path);
  for (rlim_t limit = 8; limit < 13; limit++) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      GrowingFile g;
      Err err;
      signal(SIGXFSZ, SIG_IGN);
      CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit}) && growing_open(&g, path, "[", "]\n", &err));
      int added = 0;
      while (growing_add(&g, "abc", 3, &err)) added++;
      bool said = strstr(err.msg, "/limited.partial: File too large");
      growing_keep(&g);
      _exit(said ? added : 100);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == (limit < 9 ? 1 : limit < 12 ? 2 : 3));
    expect_text(part, limit < 9 ? "[abc]\n" : limit < 12 ? "[abcabc]\n" : "[abcabcabc]\n");
  }
  free(path);
  free(part);
}

// Somebody reads along, and gets each piece when it is added.
TEST(growing_goes_through_a_pipe) {
  char *path = xasprintf("%s/growing", test_tmp());
  CHECK(!mkfifo(path, 0600));
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    GrowingFile g;
    Err err;
    CHECK(growing_open(&g, path, "[", "]\n", &err) && growing_add(&g, "1", 1, &err));
    pause(); // until the reader has it
    _exit(1);
  }
  char read_back[8] = "";
  FILE *f = fopen(path, "rb");
  if (EXPECT(f)) EXPECT_INT((long long)fread(read_back, 1, 2, f), 2);
  EXPECT_STR(read_back, "[1");
  fclose(f);
  CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
  free(path);
}
