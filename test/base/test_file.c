// Catches files left half written after a failed or interrupted write, and links or other people's files overwritten.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static char *read_text(const char *path) {
  size_t size;
  char *text = file_read(path, &size, NULL);
  if (text) EXPECT_INT((long long)size, (long long)strlen(text));
  return text;
}

static bool write_text(const char *path, const char *text, Err *err) {
  AtomicFile a;
  if (!file_begin(&a, path, err)) return false;
  fputs(text, a.f);
  return file_commit(&a, err);
}

TEST(file_is_replaced_whole_or_not_at_all) {
  char *path = xasprintf("%s/atomic", test_tmp());
  Err err;
  EXPECT(write_text(path, "old", &err));
  AtomicFile a;
  EXPECT(file_begin(&a, path, &err));
  fputs("half", a.f);
  fflush(a.f);
  char *tmp = xstrdup(a.tmp), *during = read_text(path);
  EXPECT_STR(during, "old");
  EXPECT(path_is_file(tmp));
  file_abort(&a);
  char *after_abort = read_text(path);
  EXPECT_STR(after_abort, "old");
  EXPECT(!path_is_file(tmp));
  EXPECT(write_text(path, "new", &err));
  char *after_commit = read_text(path);
  EXPECT_STR(after_commit, "new");
  EXPECT(!path_is_file(tmp));
  char *all[] = {path, tmp, during, after_abort, after_commit};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// A folder that appears at the target lets everything succeed but the rename.
TEST(file_failed_commit_leaves_nothing_behind) {
  char *path = xasprintf("%s/uncommitted", test_tmp()), *inside = xasprintf("%s/inside", path);
  Err err;
  AtomicFile a;
  EXPECT(file_begin(&a, path, &err));
  char *tmp = xstrdup(a.tmp);
  EXPECT(dirs_make(inside, &err));
  EXPECT(!file_commit(&a, &err));
  EXPECT(strstr(err.msg, "cannot write ") == err.msg && strstr(err.msg, "/uncommitted: Is a directory"));
  EXPECT(!path_is_file(tmp) && path_is_dir(inside));
  EXPECT(!file_begin(&a, path, &err)); // and one that is there is seen at once
  EXPECT(strstr(err.msg, "/uncommitted: Is a directory"));
  free(tmp);
  free(inside);
  free(path);
}

// A file of 60 GB, which takes no room, in a run's folder.
TEST(file_read_own_refuses_what_no_run_writes) {
  char *path = xasprintf("%s/endless-record", test_tmp());
  size_t size;
  Err err;
  EXPECT(write_text(path, "{}", &err) && !truncate(path, (off_t)60 << 30));
  EXPECT(!file_read_own(path, &size, &err));
  EXPECT(strstr(err.msg, "/endless-record has 61440 MB, more than any such file of a run; remove it"));
  unlink(path);
  free(path);
}

// What a killed program left is taken away.
TEST(file_clean_takes_what_was_left) {
  char *path = xasprintf("%s/left", test_tmp());
  Err err;
  AtomicFile a;
  EXPECT(write_text(path, "whole", &err) && file_begin(&a, path, &err));
  char *tmp = xstrdup(a.tmp);
  file_keep(&a);
  EXPECT(path_is_file(tmp));
  file_clean(path);
  EXPECT(!path_is_file(tmp) && path_is_file(path));
  free(tmp);
  free(path);
}

// Of two that write one file, the first does; then the second may.
TEST(file_has_one_writer) {
  char *path = xasprintf("%s/contested", test_tmp());
  Err err;
  AtomicFile a, b;
  EXPECT(file_begin(&a, path, &err));
  fputs("first", a.f);
  EXPECT(!file_begin(&b, path, &err) && strstr(err.msg, "/contested: another program is writing it; "));
  EXPECT(file_commit(&a, &err));
  EXPECT(write_text(path, "second", &err));
  char *text = read_text(path);
  EXPECT_STR(text, "second");
  // What a file is called before it is whole, and that it may stay.
  EXPECT(file_begin_as(&a, path, ".part", &err));
  fputs("half", a.f);
  file_keep(&a);
  char *part = xasprintf("%s.part", path), *kept = read_text(part), *whole = read_text(path);
  EXPECT_STR(kept, "half");
  EXPECT_STR(whole, "second");
  EXPECT(file_begin_as(&a, path, ".part", &err));
  file_keep(&a);
  char *emptied = read_text(part);
  EXPECT_STR(emptied, ""); // nothing of it is in the next
  // Nor does it go where the rename fails.
  char *folder = xasprintf("%s/in-the-way", test_tmp());
  EXPECT(file_begin_as(&a, folder, ".part", &err) && dirs_make(folder, &err) && !file_commit(&a, &err));
  char *part_of_folder = xasprintf("%s.part", folder);
  EXPECT(path_is_file(part_of_folder));
  char *all[] = {path, text, part, kept, whole, emptied, folder, part_of_folder};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// A link stays a link; a pipe is written, not replaced.
TEST(file_links_and_pipes_survive) {
  char *target = xasprintf("%s/linked", test_tmp()), *link = xasprintf("%s/link", test_tmp());
  Err err;
  EXPECT(write_text(target, "old", &err));
  if (EXPECT_INT(symlink(target, link), 0)) {
    EXPECT(write_text(link, "new", &err));
    char *through = read_text(target), where[4096];
    EXPECT_STR(through, "new");
    EXPECT(readlink(link, where, sizeof where) == (ssize_t)strlen(target));
    free(through);
  }
  char *pipe = xasprintf("%s/pipe", test_tmp()), text[8] = "";
  int reader = mkfifo(pipe, 0600) ? -1 : open(pipe, O_RDONLY | O_NONBLOCK);
  if (EXPECT(reader >= 0)) {
    AtomicFile a;
    EXPECT(file_begin_as(&a, pipe, ".part", &err) && fputs("text", a.f) >= 0 && file_commit(&a, &err));
    EXPECT_INT(read(reader, text, sizeof text - 1), 4);
    EXPECT_STR(text, "text");
    close(reader);
  }
  free(pipe);
  free(target);
  free(link);
}

// What stands where a temporary file is made goes, and what it leads to is not written: a link, another name of a file,
// a pipe. A folder stays.
TEST(file_temporaries_are_made_anew) {
  char *path = xasprintf("%s/anew", test_tmp()), *tmp = xasprintf("%s.tmp", path);
  char *other = xasprintf("%s/precious", test_tmp());
  Err err;
  for (int kind = 0; kind < 4; kind++) {
    CHECK(write_text(other, "precious", &err));
    CHECK(!(kind == 0   ? symlink(other, tmp)
            : kind == 1 ? link(other, tmp)
            : kind == 2 ? mkfifo(tmp, 0600)
                        : mkdir(tmp, 0700)));
    const bool ok = write_text(path, "mine", &err);
    char *text = read_text(other), *mine = kind < 3 ? read_text(path) : xstrdup("mine");
    EXPECT_STR(text, "precious");
    EXPECT_STR(mine, "mine");
    EXPECT(ok == (kind < 3) && (ok || strstr(err.msg, "/anew: Is a directory")));
    free(text);
    free(mine);
  }
  CHECK(!rmdir(tmp));
  // Another file in its place is not given the name.
  AtomicFile a;
  CHECK(file_begin(&a, path, &err) && !unlink(tmp) && write_text(tmp, "another", &err));
  EXPECT(!file_commit(&a, &err) && strstr(err.msg, "/anew: No such file or directory"));
  char *kept = read_text(path);
  EXPECT_STR(kept, "mine");
  char *all[] = {path, tmp, other, kept};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// A pipe, a socket or a device where a file is read or written is refused, and does not hold the program.
TEST(file_pipes_are_not_waited_for) {
  char *path = xasprintf("%s/waiting", test_tmp());
  size_t size;
  Err err;
  AtomicFile a;
  CHECK(!mkfifo(path, 0600));
  EXPECT(!file_read(path, &size, &err) && strstr(err.msg, "/waiting: it is a pipe, not a regular file"));
  EXPECT(!file_begin(&a, path, &err) && strstr(err.msg, "/waiting: it is a pipe, a device or a socket; remove it"));
  EXPECT(!file_begin_as(&a, path, ".part", &err) && strstr(err.msg, "nobody reads this pipe; start its reader first"));
  CHECK(!unlink(path) && !symlink("/dev/zero", path));
  EXPECT(!file_read(path, &size, &err) && strstr(err.msg, "/waiting: it is a device, not a regular file"));
  char *empty = file_read("/dev/null", &size, &err);
  EXPECT_STR(empty, "");
  free(empty);
  free(path);
}

// What stood there gets the name of what went before, also where a kill between the two renames left both names to one
// file.
TEST(file_previous_is_kept) {
  char *path = xasprintf("%s/current", test_tmp()), *previous = xasprintf("%s/previous", test_tmp());
  char *tmp = xasprintf("%s.tmp", previous), *names[] = {path, previous, tmp};
  Err err;
  for (int i = 0; i < 4; i++) {
    if (i == 3) EXPECT(file_link(path, previous, &err)); // 2 as both
    AtomicFile a;
    if (!EXPECT(file_begin(&a, path, &err))) break;
    a.previous = previous;
    fprintf(a.f, "%d", i);
    EXPECT(path_is_file(previous) == (i > 1)); // not before it is committed
    EXPECT(file_commit(&a, &err));
    char *now = read_text(path), *before = i ? read_text(previous) : xstrdup("-1");
    EXPECT_INT(now ? atoi(now) : -2, i);
    EXPECT_INT(before ? atoi(before) : -2, i - 1);
    EXPECT(!path_is_file(tmp));
    free(now);
    free(before);
  }
  EXPECT(!file_link(tmp, previous, &err) && errno == ENOENT);
  EXPECT(strstr(err.msg, "No such file"));
  for (int i = 0; i < COUNT(names); i++) free(names[i]);
}

// A symbolic link: what is named is the file, which stays as it is when the link comes to lead to another.
TEST(file_names_lead_to_files_not_to_links) {
  char *path = xasprintf("%s/linked-to", test_tmp()), *link_path = xasprintf("%s/link-to-it", test_tmp());
  char *name = xasprintf("%s/linked-name", test_tmp());
  Err err;
  AtomicFile a;
  CHECK(file_begin(&a, path, &err) && fputs("1", a.f) >= 0 && file_commit(&a, &err) && !symlink(path, link_path));
  EXPECT(file_link(link_path, name, &err));
  CHECK(file_begin(&a, link_path, &err) && fputs("2", a.f) >= 0 && file_commit(&a, &err));
  char *now = read_text(path), *before = read_text(name);
  EXPECT(now && before && atoi(now) == 2 && atoi(before) == 1);
  char *all[] = {path, link_path, name, now, before};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// In another file system it is a copy.
TEST(file_names_in_another_file_system) {
  char *path = xasprintf("%s/here", test_tmp()), *name = xasprintf("/dev/shm/maskrcnn-test-%ld", (long)getpid());
  Err err;
  AtomicFile a;
  if (!file_begin(&a, name, &err)) {
    test_skip("no /dev/shm");
  } else {
    file_abort(&a);
    CHECK(file_begin(&a, path, &err) && fputs("1", a.f) >= 0 && file_commit(&a, &err));
    EXPECT(file_link(path, name, &err));
    char *text = read_text(name);
    EXPECT(text && atoi(text) == 1);
    free(text);
    unlink(name);
  }
  free(path);
  free(name);
}

// In place of the C library's, so that a file system without hard links can be had.
static int link_error; // that links meet; 0 = none
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
  errno = link_error;
  return link_error ? -1 : (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

// Where a file system has no hard links, a second name is a copy; where it has and refuses, it is a failure.
TEST(file_second_names_without_links) {
  static const int errors[] = {0, EPERM, EOPNOTSUPP, ENOSYS, EMLINK, EIO};
  char *path = xasprintf("%s/linkless", test_tmp()), *name = xasprintf("%s/linkless-too", test_tmp());
  Err err;
  for (int i = 0; i < COUNT(errors); i++) {
    char text[16];
    struct stat a, b;
    snprintf(text, sizeof text, "try %d", i);
    EXPECT(write_text(path, text, &err));
    link_error = errors[i];
    bool ok = file_link(path, name, &err);
    link_error = 0;
    EXPECT(ok == (errors[i] != EIO));
    char *now = read_text(name);
    EXPECT(now && !strcmp(now, text) == ok);
    EXPECT(!stat(path, &a) && !stat(name, &b) && (a.st_ino == b.st_ino) == !errors[i]);
    free(now);
  }
  EXPECT(strstr(err.msg, "cannot rename ") && strstr(err.msg, "Input/output error"));
  free(path);
  free(name);
}

TEST(file_full_disk_is_reported) {
  AtomicFile a;
  Err err;
  if (!file_begin(&a, "/dev/full", &err)) {
    test_skip("no /dev/full");
    return;
  }
  fputs("text", a.f);
  EXPECT(!file_commit(&a, &err));
  EXPECT_INT(errno, ENOSPC);
  EXPECT_STR(err.msg, "cannot write /dev/full: No space left on device");
}

// A write that failed is not forgotten, though the stream could be flushed afterwards.
TEST(file_write_that_failed_is_reported) {
  AtomicFile a;
  Err err;
  char *path = xasprintf("%s/failed", test_tmp());
  CHECK(file_begin(&a, path, &err));
  EXPECT(fgetc(a.f) == EOF && ferror(a.f)); // it is for writing alone
  EXPECT(!file_commit(&a, &err) && strstr(err.msg, path));
  EXPECT(!path_is_file(path));
  free(path);
}

TEST(file_dirs_make_reports_what_stands_in_the_way) {
  char *folder = xasprintf("%s/a//b/c/", test_tmp()), *file = xasprintf("%s/a/b/file", test_tmp());
  char *under_file = xasprintf("%s/x", file);
  Err err;
  EXPECT(dirs_make(folder, &err) && path_is_dir(folder));
  EXPECT(dirs_make(folder, &err)); // once more is fine
  EXPECT(write_text(file, "", &err));
  EXPECT(path_is_file(file) && !path_is_dir(file));
  char same[4096];
  snprintf(same, sizeof same, "%s/.", folder);
  EXPECT(path_is_same(folder, same) && !path_is_same(folder, file) && !path_is_same("/no/such", "/no/such"));
  EXPECT(!dirs_make(under_file, &err));
  char *want = xasprintf("cannot create folder %s: a file of that name exists; choose another folder", file);
  EXPECT_STR(err.msg, want);
  EXPECT(!write_text(under_file, "", &err));
  EXPECT(strstr(err.msg, "Not a directory"));
  char *all[] = {folder, file, under_file, want};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

TEST(file_read_reports_and_ends_in_nul) {
  size_t size = 1;
  Err err;
  EXPECT(!file_read(test_tmp(), &size, &err));
  EXPECT(strstr(err.msg, "Is a directory"));
  EXPECT(!file_read("/nonexistent", &size, &err));
  EXPECT_STR(err.msg, "cannot open /nonexistent: No such file or directory");
  char *empty = file_read("/dev/null", &size, &err);
  EXPECT_INT((long long)size, 0);
  EXPECT_STR(empty, "");
  free(empty);
}
