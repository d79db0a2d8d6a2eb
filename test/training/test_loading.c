// Catches augmentation in the wrong phase, and ranks that load the wrong share of the images.
#include "models/model.h"
#include "test/harness/test.h"
#include "training/loading.h"

static LoaderOptions of(const TrainSpec *o, bool mapped) {
  const ObjectType type = {.mapped = mapped};
  Dataset d = {.type = &type};
  const TrainingRun r = {.o = *o, .train = &d, .model = model_of(&o->config), .first = 7};
  return run_loader_options(&r);
}

TEST(loading_augments_images) {
  const TrainSpec o = {.batch = 4, .gpus = 2, .flip = 0.5f, .rotate = 8, .shift = 0.1f, .crop = 0.2f, .strict = true};
  const LoaderOptions mapped = of(&o, true), resized = of(&o, false);
  EXPECT(mapped.augment.rotate == 8 && mapped.augment.shift == 0.1f && mapped.augment.crop == 0.2f);
  EXPECT(!memcmp(&mapped.augment, &resized.augment, sizeof mapped.augment) && mapped.augment.flip == 0.5f);
  EXPECT(mapped.augment_after == 0); // always
  EXPECT(mapped.train && mapped.strict && mapped.batch == 4 && mapped.world == 2 && mapped.first_step == 7);
}

TEST(loading_augments_after_the_first_epochs) {
  const TrainSpec o = {.batch = 4, .gpus = 1, .augment_after = 2, .rotate = 8};
  const LoaderOptions l = of(&o, true);
  EXPECT(l.augment_after == 2 && l.augment.rotate == 8);
}

// With --same-images every rank loads what a single one would.
TEST(loading_may_give_all_ranks_the_same) {
  const TrainSpec apart = {.batch = 1, .gpus = 3}, same = {.batch = 1, .gpus = 3, .same_images = true};
  EXPECT_INT(of(&apart, false).world, 3);
  EXPECT(of(&same, false).world == 1 && of(&same, false).rank == 0);
}
