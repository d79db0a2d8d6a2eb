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
  EXPECT(mapped.augment_from == 0 && mapped.augment_until == 0); // always
  EXPECT(mapped.train && mapped.strict && mapped.batch == 4 && mapped.world == 2 && mapped.first_step == 7);
}

// Phases say in which epochs; where no phase does, not even mirroring remains.
TEST(loading_augments_in_the_phases_that_say_so) {
  TrainSpec o = {.batch = 4, .gpus = 1, .flip = 0.5f, .rotate = 8};
  Err err;
  EXPECT(phases_parse(&o.phase_list, "2@0.1,3@0.1+augment,1@0.1", &err));
  const LoaderOptions some = of(&o, true);
  EXPECT(some.augment_from == 2 && some.augment_until == 5 && some.augment.rotate == 8 && some.augment.flip == 0.5f);
  EXPECT(phases_parse(&o.phase_list, "2@0.1", &err));
  const LoaderOptions none = of(&o, true);
  EXPECT(none.augment.rotate == 0 && none.augment.flip == 0);
}

// With --same-images every rank loads what a single one would.
TEST(loading_may_give_all_ranks_the_same) {
  const TrainSpec apart = {.batch = 1, .gpus = 3}, same = {.batch = 1, .gpus = 3, .same_images = true};
  EXPECT_INT(of(&apart, false).world, 3);
  EXPECT(of(&same, false).world == 1 && of(&same, false).rank == 0);
}
