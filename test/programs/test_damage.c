// Catches runs that say nothing useful when a file of theirs is damaged, moved or cut by another program.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static char *line_for(const char *out, const char *more) {
  return xasprintf("exec env OMP_NUM_THREADS=1 %s --data %s --out %s/%s --model tiny --size 64 --batch 1 --iters 6 "
                   "--limit 8 --eval-every never --checkpoint-every 2 --seed 5 --threads 1 --device cpu %s",
                   tool("train"), shapes_set(), test_tmp(), out, more);
}

static int train(const char *out, const char *more, const char **said) {
  char *line = line_for(out, more);
  const int status = command(said, "%s", line);
  free(line);
  return status;
}

static char *path_in(const char *out, const char *file) { return xasprintf("%s/%s/%s", test_tmp(), out, file); }

static void expect_said(const char *said, const char *what) {
  if (!EXPECT(strstr(said, what))) printf("    %s\n", said);
}

TEST_TIER(damage_of_the_checkpoint_names_the_one_before, 1) {
  const char *said;
  CHECK(!train("damaged", "--stop-after 4", &said));
  char *last = path_in("damaged", "checkpoint.safetensors");
  CHECK(!truncate(last, file_length(last) / 2));
  EXPECT_INT(train("damaged", "--resume", &said), 2);
  expect_said(said, "checkpoint-previous.safetensors is intact (step 2), continue from it: ");
  expect_said(said, "--resume=previous\n");
  EXPECT_INT(train("damaged", "--resume=previous", &said), 0);
  CHECK(!unlink(last) && !symlink("nowhere", last));
  EXPECT_INT(train("damaged", "--resume", &said), 2);
  expect_said(said, "checkpoint.safetensors is a symbolic link to nowhere; remove it, ");
  EXPECT_INT(train("damaged", "--resume --force", &said), 2);
  expect_said(said, "is a symbolic link to a file that does not exist");
  free(last);
}

TEST_TIER(damage_by_divergence_says_why_it_is_not_rolled_back, 1) {
  const char *said;
  EXPECT_INT(train("not-rolled-back", "--lr 1e6 --on-divergence rollback --checkpoint-every 1", &said), 1);
  expect_said(said, "; not rolled back: ");
}

// A run that another program disturbs after its fifth step, and how it ends.
static int disturb(const char *out, const char *fmt, char **said) {
  char *log = path_in(out, "log.jsonl"), *to = path_in(out, "said"), *line = line_for(out, "--iters 5000"), *text;
  char *aside = xasprintf("%s.%s", to, "txt");
  for (char *slash = strrchr(aside, '/'); slash; slash = NULL) *slash = '-'; // beside the folder
  char *redirected = xasprintf("%s >%s 2>&1", line, aside);
  const pid_t pid = command_start(redirected);
  size_t size;
  int status = -1;
  for (double begin = now_seconds(); now_seconds() - begin < 60; usleep(1000)) {
    text = path_is_file(log) ? file_read(log, &size, NULL) : NULL;
    const bool there = text && strstr(text, "{\"step\":5,");
    free(text);
    if (there) break;
  }
  CHECK(!command(NULL, fmt, test_tmp(), out, test_tmp(), out));
  CHECK(waitpid(pid, &status, 0) == pid);
  *said = file_read(aside, &size, NULL);
  char *all[] = {log, to, line, aside, redirected};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_TIER(damage_by_moving_the_folder_is_named, 1) {
  char *said;
  EXPECT_INT(disturb("moved", "mv %s/%s '%s/%s away'", &said), 1);
  expect_said(said, "/moved was moved to ");
  expect_said(said, "moved away'\n"); // quoted
  free(said);
}

// Annotations that have just been written get no index; a tenth of a second later they do.
TEST_TIER(damage_of_a_mapped_file_is_no_crash, 1) {
  char *said;
  if (shapes_set()) usleep(200000);
  const int status = disturb("cut", "truncate -c -s 0 %s/%s/index-*.coco && ls %s/%s/index-*.coco", &said);
  EXPECT_INT(status, 1);
  expect_said(said, " was cut short by another program while it was in use");
  free(said);
}
