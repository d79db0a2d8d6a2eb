// Catches checkpoints, logs and best weights that are lost, or that stop training, while the disk is full.
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "test/harness/child.h"
#include "test/harness/run_fixture.h"
#include "training/numbered.h"

// In place of the C library's, so that the log can be kept from growing and a file from being replaced.
static bool no_room;
static _Atomic(const char *) refused; // the file; NULL = none
static atomic_int refusals;
int rename(const char *from, const char *to) {
  const char *path = refused;
  if (!path || strcmp(path, to)) return renameat(AT_FDCWD, from, AT_FDCWD, to);
  refusals++;
  errno = ENOSPC;
  return -1;
}
ssize_t pwrite(int file, const void *bytes, size_t n, off_t at) {
  if (!no_room) return syscall(SYS_pwrite64, file, bytes, n, at);
  errno = ENOSPC;
  return -1;
}

// A checkpoint waits for records that cannot be written at the moment, and steps do not wait for it.
TEST(files_wait_for_room_for_the_log) {
  Run r;
  Err err;
  open_run(&r, "log-without-room");
  no_room = true;
  make_step(&r, 0);
  EXPECT(files_save(&r.f, &r.e, 1, false, &err));
  EXPECT(files_poll(&r.f, &err) && r.f.saver.under_way && !r.f.saver.writing);
  no_room = false;
  EXPECT(files_settle(&r.f, &err));
  EXPECT_INT(step_of(r.f.checkpoint), 1);
  char *log = xasprintf("%s/log.jsonl", r.folder), *text = file_read(log, &(size_t){0}, NULL);
  EXPECT(text && !strncmp(text, "{\"step\":1,", 10) && strchr(text, '\n'));
  free(text);
  free(log);
  close_run(&r);
}

// A checkpoint that is there, and whose further name has to wait, is not the one before it.
TEST(files_wait_for_room_for_a_further_name) {
  Run r;
  Err err;
  open_run(&r, "name-without-room");
  char *said = xasprintf("%s/said-nameless", test_tmp()), *second = numbered_name(r.folder, 2);
  r.f.keep = 2;
  make_step(&r, 0);
  EXPECT(files_save(&r.f, &r.e, 1, false, &err) && files_settle(&r.f, &err));
  int kept = quiet_begin(said);
  refused = second;
  refusals = 0;
  make_step(&r, 1);
  EXPECT(files_save(&r.f, &r.e, 2, false, &err));
  while (!refusals && !saver_ready(&r.f.saver)) usleep(1000);
  EXPECT(!path_is_file(second));
  refused = NULL;
  EXPECT(files_settle(&r.f, &err));
  quiet_end(kept);
  EXPECT_INT(step_of(second), 2);
  EXPECT_INT(step_of(r.f.checkpoint), 2);
  EXPECT_INT(step_of(r.f.previous), 1);
  free(said);
  free(second);
  close_run(&r);
}

// Scores that are known before the state is written, for which there is no room yet.
TEST(files_keep_the_best_once_it_is_written) {
  Run r;
  Err err;
  open_scored_run(&r, "best-unwritten", &scored);
  char *best = xasprintf("%s/best-box.safetensors", r.folder), *said = xasprintf("%s/said-unwritten", test_tmp());
  int kept = quiet_begin(said);
  refused = r.f.checkpoint;
  evaluate(&r, 1, 0.2, 0.4);
  while (!scoring_ready(&r.f.scoring)) EXPECT(files_poll(&r.f, &err));
  EXPECT(files_poll(&r.f, &err) && r.f.saver.under_way && r.f.scoring.under_way && access(best, F_OK) != 0);
  refused = NULL;
  EXPECT(files_settle(&r.f, &err));
  quiet_end(kept);
  EXPECT_INT(best_step(&r, "box"), 1);
  free(best);
  free(said);
  close_run(&r);
}
