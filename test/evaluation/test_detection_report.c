// Catches wrong per-image quality in the evaluation's report.
#include "base/alloc.h"
#include "evaluation/detection_report.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// A detection of object k of image i, shifted to the right, as that category.
static CocoResult detect(const Dataset *d, int i, int k, double shift, double score, int category) {
  const Object *o = &d->object[d->first_object[i] + k];
  CocoResult r = {.image_id = d->coco.images[d->image[i]].id,
                  .category_id = d->coco.categories[category].id,
                  .score = score,
                  .has_bbox = true,
                  .has_segm = true,
                  .rle = dataset_mask(d, i, o)};
  r.bbox[0] = o->box[0] + shift;
  r.bbox[1] = o->box[1];
  r.bbox[2] = o->box[2] - o->box[0];
  r.bbox[3] = o->box[3] - o->box[1];
  return r;
}

static int objects_of(const Dataset *d, int i) { return d->first_object[i + 1] - d->first_object[i]; }
static int category_of(const Dataset *d, int i, int k) { return d->object[d->first_object[i] + k].label - 1; }

// The first image with so many objects.
static int image_with(const Dataset *d, int objects) {
  for (int i = 0; i < d->num_images; i++)
    if (objects_of(d, i) >= objects) return i;
  CHECK(false);
}

TEST(detection_report_quality_of_an_image) {
  Dataset d;
  if (!open_set(&d, small_set("quality"), &small_options)) return;
  const int i = image_with(&d, 2), n = objects_of(&d, i);
  // Boxes are OBJECT_W = 9 wide: a shift by 3 leaves an IoU of 6 / 12 = 0.5, which is enough; by 4 of 5 / 13.
  CocoResult all[] = {detect(&d, i, 0, 0, 0.9, category_of(&d, i, 0)), detect(&d, i, 1, 3, 0.8, category_of(&d, i, 1)),
                      detect(&d, i, 0, 0, 0.7, category_of(&d, i, 0)), detect(&d, i, 1, 4, 0.6, category_of(&d, i, 1)),
                      detect(&d, i, 1, 0, 0.5, !category_of(&d, i, 1))};
  const CocoResult *found[COUNT(all)];
  for (int k = 0; k < COUNT(all); k++) found[k] = &all[k];
  ImageQuality q = image_quality(&d, i, found, 0);
  EXPECT(q.pairs == 0 && q.fp == 0 && q.fn == n && q.quality == 0);
  q = image_quality(&d, i, found, 2);
  EXPECT(q.pairs == 2 && q.fp == 0 && q.fn == n - 2);
  EXPECT_NEAR(q.quality, 1.5 / (2 + 0.5 * (n - 2)), 1e-6); // boxes are floats
  q = image_quality(&d, i, found, COUNT(all));             // twice the same, too far beside it, another category
  EXPECT(q.pairs == 2 && q.fp == 3 && q.fn == n - 2);
  EXPECT_NEAR(q.quality, 1.5 / (2 + 1.5 + 0.5 * (n - 2)), 1e-6);
  for (int k = 0; k < COUNT(all); k++) rle_free(&all[k].rle);
  dataset_close(&d);
}

// What lies in a crowd of its category is no mistake.
TEST(detection_report_crowds_forgive) {
  CocoAnn crowd = {.category = 0, .bbox = {0, 0, 100, 100}, .crowd = true, .has_bbox = true};
  CocoImage image = {.id = 5, .h = 100, .w = 100, .anns = 1};
  CocoCategory categories[] = {{.id = 1, .name = "a"}, {.id = 2, .name = "b"}};
  int coco_image = 0, first[] = {0, 0};
  Dataset d = {.coco = {.images = &image,
                        .categories = categories,
                        .anns = &crowd,
                        .num_images = 1,
                        .num_anns = 1,
                        .num_categories = 2},
               .num_images = 1,
               .image = &coco_image,
               .first_object = first};
  const CocoResult in = {.category_id = 1, .bbox = {95, 10, 10, 10}},
                   out = {.category_id = 1, .bbox = {96, 10, 10, 10}},
                   other = {.category_id = 2, .bbox = {0, 0, 10, 10}};
  EXPECT_INT(image_quality(&d, 0, (const CocoResult *[]){&in}, 1).fp, 0);
  EXPECT_INT(image_quality(&d, 0, (const CocoResult *[]){&out}, 1).fp, 1);
  EXPECT_INT(image_quality(&d, 0, (const CocoResult *[]){&other}, 1).fp, 1);
  EXPECT(isnan(image_quality(&d, 0, (const CocoResult *[]){&in}, 1).quality));
}

// All is found but the objects of the first image, and what is below the score is as if it were not there.
TEST(detection_report_of_an_evaluation) {
  Dataset d;
  Err err;
  if (!open_set(&d, small_set("page"), &small_options)) return;
  const int objects = d.first_object[d.num_images], missed = objects_of(&d, 0);
  Evaluation v = {.found = {.items = xcalloc((size_t)objects + 1, sizeof *v.found.items)},
                  .read = xcalloc((size_t)d.num_images, sizeof *v.read),
                  .images = d.num_images};
  for (int i = 0; i < d.num_images; i++) {
    v.read[i] = true;
    for (int k = 0; i && k < objects_of(&d, i); k++)
      v.found.items[v.found.n++] = detect(&d, i, k, 0, 0.9, category_of(&d, i, k));
  }
  v.found.items[v.found.n++] = detect(&d, 1, 0, 30, 0.4, 0);
  EXPECT(missed > 0 && evaluate_score(&d, &v, &v.scores, &err));
  for (int low = 0; low < 2; low++) {
    EvaluationReport report = {0};
    const EvaluationReport *e = &report;
    detection_report(&d, &v, low ? 0.4 : 0.5, &report);
    EXPECT(e->confusion.background && e->confusion.classes == d.classes);
    EXPECT_INT(confusion_right(&e->confusion), objects - missed);
    EXPECT_INT(confusion_detections(&e->confusion), objects - missed + low);
    EXPECT_INT(e->categories, d.classes - 1);
    double sum = 0;
    for (int k = 0; k < e->categories; k++) sum += e->category[k].value[0];
    EXPECT_STR(e->column[6], low ? "precision @0.4" : "precision @0.5");
    EXPECT(sum == objects && e->category[0].value[3] <= e->category[1].value[3]); // by mask AP
    EXPECT(e->pictures > 2 && e->picture[0].truth.bytes && e->picture[0].found.bytes);
    char *caption =
        xasprintf("quality 0.00: 0 correct, %d missed, 0 false positives (score ≥ %g)", missed, low ? 0.4 : 0.5);
    EXPECT_STR(e->picture[0].caption, caption);
    EXPECT(strstr(e->picture[0].group, "Worst images (quality: ") == e->picture[0].group);
    EXPECT_STR(e->picture[e->pictures - 1].group, "Best images");
    EXPECT(strstr(e->picture[e->pictures - 1].caption, "quality 1.00"));
    free(caption);
    report_free(&report);
  }
  // Above all scores: what was found is drawn all the same, and the caption says from which score on.
  EvaluationReport report = {0};
  detection_report(&d, &v, 0.95, &report);
  if (EXPECT(report.scores.opens_at == 0.45 && report.pictures > 1 && report.picture[1].found.bytes)) {
    EXPECT(!strstr(report.picture[report.pictures - 1].group, "Best")); // at 0.95 none is
    for (int i = 0, drawn = 0, empty = 0; i < report.pictures; i++) {
      const bool says =
          strstr(report.picture[i].caption, " (score ≥ 0.95); none reaches 0.95, so those ≥ 0.45 are drawn") != NULL;
      drawn += says;
      empty += !says;
      EXPECT(strstr(report.picture[i].caption, "quality 0.00: 0 correct, ") && empty <= 1);
      EXPECT(i + 1 < report.pictures || drawn > 0);
    }
  }
  report_free(&report);
  evaluation_free(&v);
  dataset_close(&d);
}
