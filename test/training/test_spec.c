// Catches options that are not recorded, have the wrong source, or silently override one another.
#include <signal.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/text.h"
#include "test/harness/child.h"
#include "test/harness/test.h"
#include "training/identity.h"
#include "training/settings.h"
#include "training/spec.h"
#include "training/table.h"

static TrainSpec spec(char **more) {
  char *argv[16] = {"train", "--data", "nowhere", "--model", "tiny"};
  int n = 5;
  while (more && *more) argv[n++] = *more++;
  argv[n] = NULL;
  return train_spec(n, argv);
}

TEST(spec_table_is_consistent) {
  int n, first = 0;
  const Option *rows = train_rows(&n);
  for (int i = 0; i < n; i++) {
    const Option *o = &rows[i];
    first += o->first;
    EXPECT(!o->amend || o->key);
    EXPECT(!o->identify || o->key);
    if (o->type != OPT_HEADING && !EXPECT(*o->help && !strchr(o->help, '\n'))) printf("    %s\n", o->name);
    for (int k = 0; k < i; k++) {
      EXPECT(!o->name || !rows[k].name || strcmp(o->name, rows[k].name));
      EXPECT(!o->key || !rows[k].key || strcmp(o->key, rows[k].key));
    }
  }
  EXPECT(first >= 15 && first <= 24);
  int amendable = 0;
  for (const char *const *key = run_amendable(); *key; key++) amendable++;
  EXPECT_INT(amendable, 16);
}

// What checkpoints and messages have known since 1.0.
TEST(spec_amends_how_it_learns) {
  static const char *const may[] = {"steps", "conventions", "lr", "world", "bucket_mb"}, *const not [] = {"seed",
                                                                                                          "flip"};
  const char *const *keys = run_amendable();
  for (int i = 0; i < COUNT(may); i++) {
    bool found = false;
    for (const char *const *key = keys; *key; key++) found |= !strcmp(*key, may[i]);
    EXPECT(found);
  }
  for (const char *const *key = keys; *key; key++)
    for (int i = 0; i < COUNT(not ); i++) EXPECT(strcmp(*key, not [i]));
}

TEST(spec_is_complete_once_the_data_are_open) {
  int n;
  const Option *rows = train_rows(&n);
  TrainSpec o = spec(NULL);
  EXPECT(o.from.iters == FROM_LATER && o.from.lr == FROM_LATER && o.from.threads == FROM_LATER);
  const TrainSpec c = train_spec_complete(&o, 2, 50);
  for (int i = 0; i < n; i++)
    if (rows[i].type != OPT_HEADING && !EXPECT(option_source(&rows[i], &c) != FROM_LATER))
      printf("    %s\n", rows[i].name);
  EXPECT(c.iters == 600 && c.gpus == 2 && c.rate == 0.005 && c.warmup == 200 && c.threads >= 1);
  EXPECT(c.eval_every == 200 && c.checkpoint_every == 100);
  train_spec_free(&o);
}

static void complete_without_steps(void *o) { train_spec_complete(o, 1, 0); }

// The two share their strings: settled again, the sizes of one would be freed with the other.
TEST(spec_is_settled_once_before_the_data_are_open) {
  const char *said;
  TrainSpec o = spec((char *[]){"--conventions", "detectron2", NULL});
  const TrainSpec c = train_spec_complete(&o, 1, 50);
  EXPECT(o.own_sizes && c.sizes == o.own_sizes && c.own_sizes == o.own_sizes);
  EXPECT_INT(run_in_child(complete_without_steps, &o, &said), -SIGABRT);
  EXPECT(strstr(said, "per_epoch > 0"));
  train_spec_free(&o);
}

TEST(spec_says_where_values_come_from) {
  TrainSpec o = spec((char *[]){"--conventions", "detectron2", "--batch", "4", NULL});
  const TrainSpec c = train_spec_complete(&o, 1, 50);
  EXPECT(c.from.conventions == FROM_GIVEN && c.from.batch == FROM_GIVEN && c.batch == 4);
  EXPECT(c.from.clip_grad == FROM_CONVENTIONS && c.clip_grad == 0);
  EXPECT(c.from.warmup == FROM_CONVENTIONS && c.warmup == 1000);
  EXPECT(c.from.sizes == FROM_CONVENTIONS && c.shorter_sides.n == 6);
  EXPECT(c.from.size == FROM_MODEL && c.size == 128 && c.max_size == 256);
  EXPECT(c.from.flip == FROM_CONVENTIONS && c.from.rotate == FROM_NOTHING && c.from.beta1 == FROM_NOTHING);
  EXPECT(c.from.iters == FROM_DATA && c.from.epochs == FROM_DEFAULT);
  train_spec_free(&o);
}

TEST(spec_of_two_ways_to_say_it_tells_one) {
  TrainSpec o = spec((char *[]){"--eval-every", "0", "--eval-epochs", "2", "--iters", "9", "--epochs", "3", NULL});
  TrainSpec c = train_spec_complete(&o, 1, 50);
  EXPECT(c.from.eval_epochs == FROM_GIVEN && c.eval_every == 100 && c.from.eval_every == FROM_DATA);
  EXPECT(c.from.iters == FROM_GIVEN && c.iters == 9 && c.from.epochs == FROM_NOTHING);
  train_spec_free(&o);
  o = spec((char *[]){"--eval-every", "5", "--eval-epochs", "2", NULL});
  c = train_spec_complete(&o, 1, 50);
  EXPECT(c.from.eval_every == FROM_GIVEN && c.eval_every == 5 && c.from.eval_epochs == FROM_NOTHING);
  train_spec_free(&o);
}

TEST(spec_of_another_model_says_so) {
  TrainSpec o = spec((char *[]){"--model", "resnet50", NULL});
  const TrainSpec c = train_spec_complete(&o, 1, 50);
  EXPECT(c.from.batch == FROM_MODEL && c.from.epochs == FROM_MODEL && c.from.lr == FROM_MODEL);
  EXPECT(c.from.schedule == FROM_MODEL && c.from.warmup == FROM_MODEL && c.from.clip_grad == FROM_MODEL);
  EXPECT(c.from.optimizer == FROM_DEFAULT && c.from.seed == FROM_DEFAULT);
  train_spec_free(&o);
}

TEST(spec_settings_are_told_with_their_sources) {
  TrainSpec o = spec((char *[]){"--lr", "0.01", "--limit", "all", NULL});
  const TrainSpec c = train_spec_complete(&o, 1, 50);
  const Device cpu = {.gpu = false};
  Record j = {0};
  record_begin(&j);
  settings_record(&j, &c, &cpu);
  const char *text = record_end(&j);
  EXPECT(strstr(text, "{\"settings\":{\"data\":{\"value\":\"nowhere\",\"from\":\"given\"}"));
  EXPECT(strstr(text, "\"lr\":{\"value\":0.01,\"from\":\"given\"}"));
  EXPECT(strstr(text, "\"limit\":{\"value\":\"all\",\"from\":\"given\"}"));
  EXPECT(strstr(text, "\"warmup\":{\"value\":200,\"from\":\"default\"}"));
  EXPECT(strstr(text, "\"device\":{\"value\":\"cpu\",\"from\":\"default\"}"));
  EXPECT(!strstr(text, "\"rotate\"") && !strstr(text, "\"weights\"") && !strstr(text, ":-1,"));
  record_free(&j);
  train_spec_free(&o);
}

static void expect_given(char **more, int columns, const char *want) {
  char *text;
  size_t size;
  const TrainSpec o = spec(more), c = train_spec_complete(&o, 1, 50);
  FILE *f = text_open(&text, &size);
  settings_print_given(&c, columns, f);
  text_close(f);
  EXPECT_STR(text, want);
  free(text);
  train_spec_free((TrainSpec *)&o);
}

TEST(spec_options_that_differ_from_their_defaults) {
  expect_given((char *[]){"--out", "my run", "--amp", "--report-score", "0.5", "--seed=2", "--limit", "all", NULL}, 80,
               "options: --data nowhere --model tiny --seed 2 --out 'my run' --amp=bf16\n");
  // The default of these depends on the model, the data or each other.
  expect_given((char *[]){"--lr", "0.0025", "--flip", "0.5", "--exif", "--keep-empty=false", NULL}, 80,
               "options: --data nowhere --exif=yes --flip 0.5 --model tiny --lr 0.0025\n");
  expect_given((char *[]){"--seed", "2", "--out", "a-folder-of-a-run", NULL}, 40,
               "options: --data nowhere --model tiny \\\n  --seed 2 --out a-folder-of-a-run\n");
}

TEST(spec_of_ranks_may_differ_in_paths_alone) {
  Err err;
  EXPECT(settings_same("  --out=a\n  --batch=2\n  --trace=t\n", "  --batch=2\n  --threads=4\n", &err));
  EXPECT(!settings_same("  --batch=2\n", "  --batch=3\n", &err));
  EXPECT_STR(err.msg, "it has --batch=3, but rank 0 has --batch=2: give all ranks the same options");
}
