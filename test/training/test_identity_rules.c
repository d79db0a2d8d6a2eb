// Catches a resumed run that continues with another schedule than it began with, without a message.
#include "base/record.h"
#include "test/harness/test.h"
#include "training/setup.h"
#include "training/spec.h"
#include "training/table.h"

// What the identity of a run of so many epochs of so many steps has of its schedule.
static void expect_schedule(char **words, int epochs, int64_t per_epoch, const char *want) {
  Record j = {0};
  int n = 0, rows;
  while (words[n]) n++;
  TrainSpec o = train_spec(n, words);
  o.epochs = epochs;
  const TrainSpec run = train_spec_complete(&o, 1, per_epoch);
  const Schedule s = setup_schedule(&run, run.rate);
  const Option *row = train_rows(&rows);
  while (!row->key || strcmp(row->key, "schedule")) row++;
  record_begin(&j);
  row->identify(&j, row, &run, &s);
  EXPECT_STR(record_end(&j), want);
  record_free(&j);
  train_spec_free(&o);
}

// Until version 1.2 a classifier's cosine fell from the first step on, and was "cosine" in checkpoints.
TEST(identity_tells_a_cosine_after_warmup) {
#define TRAIN "train", "--data", "nowhere", "--schedule", "cosine", "--model"
  expect_schedule((char *[]){TRAIN, "resnet18", NULL}, 6, 3, "{\"schedule\":\"cosine after warmup\"}");
  expect_schedule((char *[]){TRAIN, "resnet18", "--warmup", "0", NULL}, 6, 3, "{\"schedule\":\"cosine\"}");
  expect_schedule((char *[]){TRAIN, "tiny", NULL}, 6, 3, "{\"schedule\":\"cosine\"}");
#undef TRAIN
}
