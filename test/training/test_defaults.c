// Catches defaults that are not those of the model, the data or torch.
#include "base/alloc.h"
#include "base/record.h"
#include "test/harness/child.h"
#include "test/harness/test.h"
#include "training/defaults.h"
#include "training/settings.h"
#include "training/setup.h"
#include "training/spec.h"

// A folder that looks like MNIST's; the contents of its files are never read.
static const char *idx_folder(void) {
  static char dir[512];
  static const char *const files[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
  snprintf(dir, sizeof dir, "%s/idx", test_tmp());
  CHECK(dirs_make(dir, NULL));
  for (int i = 0; i < COUNT(files); i++) {
    char *path = xasprintf("%s/%s", dir, files[i]);
    FILE *f = fopen(path, "w");
    CHECK(f && !fclose(f));
    free(path);
  }
  return dir;
}

static TrainSpec options(const char *data, const char *model, char **more) {
  char *argv[16] = {"train", "--data", (char *)data, "--model", (char *)model};
  int n = 5;
  while (more && *more) argv[n++] = *more++;
  argv[n] = NULL;
  return train_spec(n, argv);
}

// Of a run of so many epochs of so many steps, alone.
static Schedule schedule_of(const TrainSpec *o, int epochs, int64_t per_epoch) {
  TrainSpec run = *o;
  run.epochs = epochs;
  run = train_spec_complete(&run, 1, per_epoch);
  return setup_schedule(&run, run.rate);
}

TEST(defaults_of_a_detector_are_its_own) {
  TrainSpec o = options("nowhere", "tiny", NULL);
  EXPECT(o.batch == 2 && o.epochs == 12 && o.eval_epochs == 1 && o.from.eval_epochs == FROM_LATER &&
         o.optimizer == OPTIMIZER_SGD);
  EXPECT(o.schedule == DECAY_STEP && o.flip == 0.5f && o.clip_grad == 10 && o.weight_decay == 1e-4f);
  train_spec_free(&o);
}

// Evaluations of a detector are at least 200 steps apart and take at most a tenth of the time; a classifier's are not
// thinned.
TEST(defaults_of_evaluations) {
  static const struct {
    double val_share;
    int64_t per_epoch, epochs;
  } cases[] = {{0, 1000, 1}, {0.2, 200, 1}, {0.2, 199, 2}, {0.2, 1, 200}, {0.21, 1000, 2}, {3, 1000, 15}, {3, 10, 20}};
  TrainSpec o = options("nowhere", "tiny", NULL), of_classes = options("nowhere", "resnet18", NULL);
  for (int i = 0; i < COUNT(cases); i++) {
    o.val_share = of_classes.val_share = cases[i].val_share;
    const TrainSpec run = train_spec_complete(&o, 1, cases[i].per_epoch);
    EXPECT(run.from.eval_epochs == FROM_DATA && run.from.eval_every == FROM_DATA);
    EXPECT_INT(run.eval_epochs, cases[i].epochs);
    EXPECT_INT(run.eval_every, cases[i].epochs * cases[i].per_epoch);
    EXPECT_INT(train_spec_complete(&of_classes, 1, cases[i].per_epoch).eval_epochs, 1);
  }
  train_spec_free(&o);
  train_spec_free(&of_classes);
}

// A preset names all strengths; single ones override it, whichever comes first.
TEST(defaults_of_augmentation) {
  TrainSpec o = options("nowhere", "tiny", NULL);
  EXPECT(o.augment == AUGMENT_STANDARD && o.from.augment == FROM_DEFAULT && o.from.turn == FROM_NOTHING);
  EXPECT(o.scale_up == 0.5f && o.from.scale_up == FROM_DEFAULT);
  train_spec_free(&o);
  o = options("nowhere", "tiny", (char *[]){"--conventions", "torchvision", NULL});
  EXPECT(o.augment == AUGMENT_MIRROR && o.from.augment == FROM_CONVENTIONS && o.flip == 0.5f && o.scale_up == 0);
  train_spec_free(&o);
  o = options("nowhere", "tiny", (char *[]){"--benchmark", NULL});
  EXPECT(o.augment == AUGMENT_MIRROR && o.flip == 0.5f && o.scale_up == 0);
  train_spec_free(&o);
  o = options("nowhere", "tiny", (char *[]){"--scale-up", "2", "--augment", "any-orientation", "--flip", "0", NULL});
  EXPECT(o.turn == 1 && o.scale_up == 2 && o.scale_down == 0.3f && o.flip == 0 && o.rotate == 0);
  EXPECT(o.from.turn == FROM_PRESET && o.from.scale_up == FROM_GIVEN && o.from.flip == FROM_GIVEN);
  EXPECT(o.from.rotate == FROM_NOTHING);
  train_spec_free(&o);
  o = options("nowhere", "tiny", (char *[]){"--augment", "none", NULL});
  const Augment none = augment_of(&o);
  EXPECT(!augment_any(&none));
  train_spec_free(&o);
  o = options(idx_folder(), "resnet18", (char *[]){"--augment", "standard", NULL});
  EXPECT(o.rotate == 8 && o.flip == 0 && o.crop == 0);
  train_spec_free(&o);
}

static double peak(const Schedule *s) {
  double highest = 0;
  for (int64_t step = 0; step < s->steps; step++) highest = fmax(highest, schedule_rate(s, step));
  return highest;
}

// torchvision's cosine follows warmup, detectron2's does not wait for it.
TEST(defaults_of_a_cosine_are_its_sources) {
  static char *const optimizers[] = {"sgd", "adamw"};
  for (int i = 0; i < COUNT(optimizers); i++)
    for (int epochs = 3; epochs <= 90; epochs *= 5) {
      char *more[] = {"--optimizer", optimizers[i], "--lr", "0.05", "--schedule", "cosine", NULL};
      TrainSpec o = options("nowhere", "resnet18", more);
      const Schedule s = schedule_of(&o, epochs, 3);
      EXPECT(s.warmup > 0 && peak(&s) == float_decimal(0.05f));
      EXPECT_NEAR(schedule_rate(&s, (s.steps + s.warmup) / 2), 0.025, 0.05 * 3.15 / (double)(s.steps - s.warmup));
      train_spec_free(&o);
    }
  TrainSpec o = options("nowhere", "tiny", (char *[]){"--lr", "0.05", "--schedule", "cosine", NULL});
  const Schedule s = schedule_of(&o, 6, 3);
  EXPECT(s.warmup == 6);
  EXPECT_NEAR(schedule_rate(&s, 6), 0.05 * 0.75, 1e-12);
  train_spec_free(&o);
}

TEST(defaults_of_a_classifier_by_its_data) {
  TrainSpec o = options("nowhere", "resnet18", NULL);
  EXPECT(o.batch == 128 && o.epochs == 90 && o.eval_epochs == 1 && o.clip_grad == 0);
  EXPECT(o.schedule == DECAY_COSINE && o.flip == 0.5f && o.crop == 0.08f && o.rotate == 0);
  EXPECT(o.config.norm == NORM_BN && o.config.view == 0.875f);
  const Schedule s = schedule_of(&o, 90, 100);
  EXPECT(s.base == 0.1 * 128 / 256 && s.warmup == 500);
  EXPECT_INT(schedule_of(&o, 3, 100).warmup, 100);
  train_spec_free(&o);

  // A limit itself is accepted, as printed in --help.
  o = options("nowhere", "resnet18", (char *[]){"--val-fraction", "0.9", "--zoom", "0.99", "--crop", "0.99", NULL});
  EXPECT(o.val_fraction == 0.9f && o.zoom == 0.99f && o.crop == 0.99f);
  train_spec_free(&o);

  o = options(idx_folder(), "resnet18", NULL);
  EXPECT(o.flip == 0 && o.crop == 0 && o.rotate == 0 && o.zoom == 0);
  EXPECT(o.config.view == 1);
  train_spec_free(&o);

  o = options(idx_folder(), "resnet18",
              (char *[]){"--phases", "3@0.1,2@0.01", "--augment", "standard", "--zoom", "0.2", NULL});
  EXPECT(o.flip == 0 && o.crop == 0 && o.rotate == 8 && o.shift == 0.08f && o.shear == 0.3f && o.zoom == 0.2f);
  EXPECT_INT(o.epochs, 5);
  EXPECT_INT(schedule_of(&o, 5, 100).warmup, 0);
  train_spec_free(&o);
}

// One number draws everything, unless the split has its own.
TEST(defaults_of_a_split) {
  TrainSpec o = options(idx_folder(), "vgg-28", (char *[]){"--seed", "5", "--val-fraction", "0.2", NULL});
  EXPECT_INT(o.split_seed, 5);
  EXPECT(o.holdout.seed == 5 && o.holdout.fraction == 0.2f);
  train_spec_free(&o);
  o = options("nowhere", "tiny", (char *[]){"--seed", "5", "--fold", "2/3", "--split-seed", "1", NULL});
  EXPECT_INT(o.split_seed, 1);
  EXPECT(o.holdout.seed == 1 && o.holdout.fold == 2 && o.holdout.folds == 3);
  train_spec_free(&o);
}

// Its phases where nothing is said of length or rate; otherwise a rate that stays as it is.
TEST(defaults_of_a_model_with_phases) {
  TrainSpec o = options(idx_folder(), "vgg-28", NULL);
  EXPECT(o.optimizer == OPTIMIZER_ADAM && o.epochs == 20 && o.batch == 128 && o.weight_decay == 0 && o.zoom == 0);
  const Schedule phases = schedule_of(&o, 20, 10);
  EXPECT(phases.steps == 200 && schedule_rate(&phases, 99) == 1e-3);
  EXPECT_NEAR(schedule_rate(&phases, 100), 1e-4, 2e-20); // a quotient and a product
  train_spec_free(&o);
  o = options(idx_folder(), "vgg-28", (char *[]){"--epochs", "10", "--lr", "0.002", NULL});
  const Schedule s = schedule_of(&o, 10, 10);
  EXPECT(o.epochs == 10 && !o.phase_list.n && s.warmup == 0);
  EXPECT(schedule_rate(&s, 0) == 0.002 && schedule_rate(&s, 99) == 0.002);
  train_spec_free(&o);
  o = options("nowhere", "vgg16", NULL);
  EXPECT(schedule_of(&o, 90, 10).base == 0.005);
  train_spec_free(&o);
}

TEST(defaults_of_optimizers_are_torchs) {
  static const struct {
    const char *name;
    float decay;
    double base;
  } cases[] = {{"sgd", 1e-4f, 0.05}, {"adam", 0, 1e-3}, {"adamw", 0.01f, 1e-3}};
  for (int i = 0; i < COUNT(cases); i++) {
    TrainSpec o = options("nowhere", "resnet18", (char *[]){"--optimizer", (char *)cases[i].name, NULL});
    EXPECT(o.weight_decay == cases[i].decay && schedule_of(&o, 90, 10).base == cases[i].base);
    char *text = settings_text(&o);
    EXPECT(strstr(text, cases[i].name));
    free(text);
    train_spec_free(&o);
  }
}

static void exits(void *more) {
  TrainSpec o = options("nowhere", ((char **)more)[0], (char **)more + 1);
  train_spec_free(&o);
}

TEST(defaults_refuse_what_does_not_go_together) {
  static const struct {
    char *more[6];
    const char *says;
  } cases[] = {{{"resnet18", "--phases", "1@1", "--lr", "1"}, "--lr and --phases cannot be combined"},
               {{"resnet18", "--phases", "1@1", "--epochs", "1"}, "--epochs and --phases cannot be combined"},
               {{"resnet18", "--phases", "1@x"}, "--phases 1@x: expected EPOCHS@RATE"},
               {{"resnet18", "--sizes", "64,96"}, "--sizes is for detectors"},
               {{"alexnet", "--trainable-layers", "3"}, "--trainable-layers is for ResNets"},
               {{"googlenet", "--trainable-layers", "5"}, "--trainable-layers is for ResNets"},
               {{"vgg16", "--norm", "gn"}, "--norm is for models with selectable normalization, but vgg16"},
               {{"tiny", "--dropout", "0.5"}, "--dropout is for classifiers, but tiny is a detector: leave it out"},
               {{"tiny", "--val-fraction", "0.2", "--fold", "1/2"}, "--fold and --val-fraction cannot be combined"},
               {{"tiny", "--fold", "0/5"}, "--fold 0/5: give I/N with I from 1 to N and N from 2 to 1000, such as 2/5"},
               {{"tiny", "--fold", "1/2", "--val-json", "x"}, "--val-json and --fold cannot be combined"},
               {{"tiny", "--group", "(.*)"}, "--group needs --val-fraction P or --fold I/N"},
               {{"tiny", "--fold", "1/2", "--group", "("}, "--group ( is not a regular expression: "},
               {{"tiny", "--split-seed", "3"}, "--split-seed needs --val-fraction P or --fold I/N"},
               {{"tiny", "--fold", "1/2", "--val-split", "train"}, "--val-split train and --fold cannot be combined"},
               {{"resnet18", "--phases", "1@1,2@1+augment"},
                "--phases 1@1,2@1+augment: instead of +augment, give --augment standard --augment-after 1"}};
  for (int i = 0; i < COUNT(cases); i++) {
    const char *said;
    EXPECT_INT(run_in_child(exits, (void *)(uintptr_t)cases[i].more, &said), EXIT_USAGE);
    if (!EXPECT(strstr(said, cases[i].says))) printf("    %s\n", said);
  }
}
