// Catches a temporary folder that stays behind, or that is removed although the user put a file into it.
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "base/folder.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static const char *path_in(const char *folder, const char *name) {
  static char paths[2][512];
  static int next;
  char *p = paths[next++ % 2];
  snprintf(p, sizeof paths[0], "%s/%s/%s", test_tmp(), folder, name);
  return p;
}

static void leave_file(const char *folder, const char *name) {
  FILE *f = fopen(path_in(folder, name), "w");
  CHECK(f && !fclose(f));
}

// A program that takes a folder, leaves files there and is refused. `name`: of the folder; of a file, if any.
static void be_refused(void *names) {
  const char *const *name = names;
  Err err;
  CHECK(folder_take(path_in(name[0], "."), &err));
  leave_file(name[0], "index-0.coco");
  if (name[1]) leave_file(name[0], name[1]);
  die(EXIT_USAGE, "refused");
}

TEST(folder_goes_again_where_nothing_came_to_it) {
  const char *said, *names[] = {"folder-refused", NULL};
  EXPECT_INT(run_in_child(be_refused, names, &said), EXIT_USAGE);
  EXPECT(!path_is_dir(path_in("folder-refused", "")));
  names[0] = "folder-worked";
  names[1] = "log.jsonl";
  EXPECT_INT(run_in_child(be_refused, names, &said), EXIT_USAGE);
  EXPECT(path_is_file(path_in("folder-worked", "log.jsonl")) && path_is_file(path_in("folder-worked", "index-0.coco")));
  CHECK(dirs_make(path_in("folder-stood", ""), NULL)); // one that was there stays
  names[0] = "folder-stood";
  names[1] = NULL;
  EXPECT_INT(run_in_child(be_refused, names, &said), EXIT_USAGE);
  EXPECT(path_is_file(path_in("folder-stood", "lock")));
}

// The fork of a program that took a folder ends first: the folder is the program's, and so is the lock of both.
static void fork_and_end(void *name) {
  Err err;
  int status;
  CHECK(folder_take(path_in(name, "."), &err));
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) exit(0);
  CHECK(waitpid(pid, &status, 0) == pid);
  fprintf(stderr, path_is_file(path_in(name, "lock")) ? "it stands" : "it is gone");
  die(EXIT_USAGE, " until here");
}

TEST(folder_is_left_by_who_took_it) {
  const char *said;
  EXPECT_INT(run_in_child(fork_and_end, "folder-forked", &said), EXIT_USAGE);
  EXPECT(!strncmp(said, "it stands", 9));
  EXPECT(!path_is_dir(path_in("folder-forked", "")));
}
