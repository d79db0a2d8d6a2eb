// Catches evaluations in the background that change figures or the order of the log.
#include "base/alloc.h"
#include "base/clock.h"
#include "evaluation/evaluate.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"
#include "training/scoring.h"

// Every object is detected at its position, except every third, which is detected next to it.
static CocoResults find_objects(const Dataset *d) {
  CocoResults found = {.items = xcalloc((size_t)d->first_object[d->num_images], sizeof *found.items)};
  for (int i = 0; i < d->num_images; i++)
    for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++) {
      const Object *o = &d->object[k];
      CocoResult r = {.image_id = d->coco.images[d->image[i]].id,
                      .category_id = d->coco.categories[o->label - 1].id,
                      .score = 1.0 / (k + 1),
                      .has_bbox = true,
                      .has_segm = true,
                      .rle = dataset_mask(d, i, o)};
      r.bbox[0] = o->box[0] + (k % 3 ? 0 : OBJECT_W);
      r.bbox[1] = o->box[1];
      r.bbox[2] = o->box[2] - o->box[0];
      r.bbox[3] = o->box[3] - o->box[1];
      found.items[found.n++] = r;
    }
  return found;
}

static bool *all_of(const Dataset *d) {
  bool *read = xmalloc((size_t)d->num_images * sizeof *read);
  for (int i = 0; i < d->num_images; i++) read[i] = true;
  return read;
}

// A run of four steps, evaluated after the first. Returns its log; caller frees.
static char *run(const Dataset *d, const char *dir, int cores) {
  Err err;
  Log log;
  Scoring s = {0};
  CHECK(log_open(&log, dir, -1, &err));
  log.people = fopen("/dev/null", "w");
  CHECK(log.people && scoring_end(&s, &log, &err)); // nothing to wait for yet
  for (int step = 1; step <= 4; step++) {
    log_begin(&log, step, "train");
    log_commit(&log);
    if (step == 1) {
      Evaluation *v = xmalloc(sizeof *v);
      *v = (Evaluation){.found = find_objects(d), .read = all_of(d), .images = d->num_images, .left_out = 2};
      scoring_start(&s, &task_detection, d, v, (ReportTo){0}, cores, &log, step, now_seconds(), NULL);
      EXPECT(s.under_way && s.apart == (cores > 0));
      EXPECT(cores > 0 || scoring_ready(&s));
    }
    if (step == 3) EXPECT(scoring_end(&s, &log, &err) && !scoring_ready(&s));
  }
  fclose(log.people);
  log.people = stderr;
  CHECK(log_close(&log, &err));
  char *path = xasprintf("%s/log.jsonl", dir), *text;
  size_t size;
  text = file_read(path, &size, &err);
  CHECK(text);
  free(path);
  char *clock = strstr(text, ",\"clock\":{\"at\":"), *end = clock ? strchr(clock, '}') : NULL;
  if (EXPECT(end)) memmove(clock, end + 1, strlen(end)); // the rest is the same whatever the machine
  return text;
}

TEST(scoring_during_steps_keeps_figures_and_order) {
  Dataset d;
  if (!open_set(&d, small_set("scoring"), &small_options)) return;
  char *dirs[] = {xasprintf("%s/score0", test_tmp()), xasprintf("%s/score2", test_tmp())};
  char *in_place = run(&d, dirs[0], 0), *concurrent = run(&d, dirs[1], 2);
  EXPECT_STR(concurrent, in_place);
  const char *eval = strstr(in_place, "{\"step\":1,\"kind\":\"eval\",\"bbox_AP\":0."); // neither 0 nor 1
  EXPECT(eval && strstr(in_place, "\"segm_AP\":1,") > eval && strstr(in_place, "{\"step\":2,") > eval);
  EXPECT(strstr(in_place, ",\"images\":12,\"left_out\":2,\"scored_set\":"));
  EXPECT(strstr(in_place, ",\"max_dets\":100}\n"));
  free(in_place);
  free(concurrent);
  free(dirs[0]);
  free(dirs[1]);
  dataset_close(&d);
}
