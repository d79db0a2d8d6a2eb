// Catches checkpoints written in the background with values of a later step, and failed writes that are not reported.
#include <unistd.h>
#include "base/alloc.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"
#include "training/saver.h"

static const RunState third = {.step = 3, .run = "{\"seed\":1}"};

static void open_trained(Engine *e) {
  ModelConfig config = small_config(NORM_BN, CLASSES);
  small_engine(e, &config);
  params_randomise(&e->params, 1);
  for (int step = 0; step < 3; step++) EXPECT(small_step(e, step).finite);
}

static SaveOrder order_of(const char *path) { return (SaveOrder){.file = {.path = path, .momentum = true}, .log = -1}; }

TEST(saver_writes_what_was_taken) {
  Engine e;
  Saver s = {0};
  Err err;
  open_trained(&e);
  char *want = xstrdup(small_save(&e, "in-line", true)), *path = xstrdup(small_checkpoint("beside"));
  EXPECT(saver_end(&s, &err) && !saver_ready(&s)); // nothing is under way
  saver_take(&s, &e, &third);
  EXPECT(small_step(&e, 3).finite && !saver_ready(&s));
  const SaveOrder order = order_of(path);
  saver_write(&s, &order);
  EXPECT(small_step(&e, 4).finite);
  EXPECT(saver_end(&s, &err));
  EXPECT(same_file(path, want));
  free(path);
  free(want);
  engine_close(&e);
}

// What stood there before, and what stands there now.
TEST(saver_gives_further_names) {
  Engine e;
  Saver s = {0};
  Err err;
  open_trained(&e);
  char *first = xstrdup(small_save(&e, "first", true)), *path = xstrdup(small_save(&e, "current", true));
  char *previous = xstrdup(small_checkpoint("previous")), *best = xstrdup(small_checkpoint("best"));
  EXPECT(small_step(&e, 3).finite);
  SaveOrder order = order_of(path);
  order.file.previous = previous;
  order.links = (const char *const[]){best, NULL};
  saver_take(&s, &e, &third);
  saver_write(&s, &order);
  EXPECT(saver_end(&s, &err));
  EXPECT(same_file(previous, first) && !same_file(path, first) && same_file(best, path));
  char *all[] = {first, path, previous, best};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
  engine_close(&e);
}

// A disk without room, by a link to one, which ends when the link does.
TEST(saver_waits_for_room) {
  Engine e;
  Saver s = {0};
  Err err;
  open_trained(&e);
  char *path = xstrdup(small_checkpoint("room")), *want = xstrdup(small_save(&e, "room-want", true));
  char *said = xasprintf("%s/room-said", test_tmp());
  SaveOrder order = order_of(path);
  CHECK(!symlink("/dev/full", path));
  int kept = quiet_begin(said);
  saver_take(&s, &e, &third);
  saver_write(&s, &order);
  EXPECT(!saver_end(&s, &err) && strstr(err.msg, "room.safetensors: could not be written completely: No space left"));
  order.patience = 60;
  saver_take(&s, &e, &third);
  saver_write(&s, &order);
  while (command(NULL, "test -s %s", said) && !saver_ready(&s)) {
  }
  EXPECT(saver_busy(&s));
  CHECK(!unlink(path));
  EXPECT(saver_end(&s, &err) && same_file(path, want) && !saver_busy(&s));
  quiet_end(kept);
  EXPECT_INT(command(NULL, "grep -c '^step 3: .*: No space left on device; retrying$' %s | grep -x 1", said), 0);
  free(said);
  free(want);
  free(path);
  engine_close(&e);
}

TEST(saver_reports_what_does_not_pass) {
  Engine e;
  Saver s = {0};
  Err err = {""};
  open_trained(&e);
  SaveOrder order = order_of("/nowhere/checkpoint.safetensors");
  order.patience = 5;
  char *said = xasprintf("%s/said", test_tmp());
  int kept = quiet_begin(said);
  saver_take(&s, &e, &third);
  saver_write(&s, &order);
  while (!saver_ready(&s)) usleep(1000);
  quiet_end(kept);
  EXPECT(command(NULL, "test -s %s", said) != 0); // nothing of another try
  free(said);
  EXPECT(!saver_end(&s, &err) && !s.under_way);
  EXPECT_STR(err.msg, "cannot write /nowhere/checkpoint.safetensors: No such file or directory");
  order = order_of(small_checkpoint("unnamed"));
  order.links = (const char *const[]){"/nowhere/best.safetensors", NULL};
  saver_take(&s, &e, &third);
  saver_write(&s, &order);
  EXPECT(!saver_end(&s, &err) && strstr(err.msg, "unnamed.safetensors to /nowhere/best.safetensors: No such file"));
  order = order_of(small_checkpoint("unlogged"));
  order.log = 1 << 20; // no file: what is to be on disk before the checkpoint is not
  saver_take(&s, &e, &third);
  saver_write(&s, &order);
  EXPECT(!saver_end(&s, &err) && !path_is_file(order.file.path));
  EXPECT_STR(err.msg, "log.jsonl: Bad file descriptor");
  engine_close(&e);
}
