#include "classification/data/class_advice.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"

// Input sizes. LEAST: the smallest that ./train accepts.
enum { LEAST = 4, SMALL = 64, LARGE = 224, STEP = 32, MANY_IMAGES = 20000 };

// The default of --batch, unless that leaves fewer than 20 steps an epoch.
static int suit_batch(int images) {
  int batch = 128;
  while (batch > 8 && 20 * batch > images) batch /= 2;
  return batch;
}

// Small grey images, all of one size.
static char *for_idx(const ClassSurvey *s, int size) {
  const int side = MAX(size ? size : MAX(s->median.h, s->median.w), LEAST);
  if (side > SMALL) return xasprintf("--model resnet18 --size %d", side);
  char other[32] = "";
  if (side != 28) snprintf(other, sizeof other, " --size %d", side);
  return xasprintf("--model vgg-28%s --phases 10@1e-3,10@1e-4,25@1e-4 --augment standard --augment-after 20", other);
}

// Photographs: torchvision's default input size, or less if over half of the images are smaller than that.
static char *for_folders(const Dataset *d, const ClassSurvey *s, int size) {
  const char *model = d->num_images < MANY_IMAGES ? "resnet18" : "resnet50";
  const int held = MAX(MIN(s->median.h, s->median.w) / STEP * STEP, SMALL), side = size ? size : MIN(held, LARGE);
  return side == LARGE ? xasprintf("--model %s", model) : xasprintf("--model %s --size %d", model, side);
}

char *class_advice(const Dataset *train, const ClassSurvey *survey, int size, const char *holdout) {
  char *by_type = train->gray ? for_idx(survey, size) : for_folders(train, survey, size);
  char *flags = xasprintf("%s --batch %d%s", by_type, suit_batch(train->num_images), holdout);
  free(by_type);
  return flags;
}
