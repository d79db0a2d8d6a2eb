#include "classification/data/class_report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/command.h"
#include "base/record.h"
#include "base/text.h"
#include "classification/data/class_advice.h"
#include "classification/data/class_survey.h"
#include "data/survey/diagnosis.h"
#include "data/survey/ranges.h"

// A class with so many times fewer images than the largest is rare; the whole set is small below FEW images.
enum { RARE = 10, FEW = 1000 };

typedef struct ClassSplit {
  const char *name; // NULL: there is no such split
  Dataset data;
  bool open;
  Err stop;      // why it could not be opened
  Ranges ranges; // of 16-bit images
  ClassSurvey survey;
} ClassSplit;

typedef struct ClassCheckup {
  ClassSplit train, val;
  int shared, first_shared[2]; // images of val that are also in train
  char *flags;                 // options for ./train; NULL: it would not start
  bool sound;
} ClassCheckup;

// val: the other side of what was held out of `like`, if anything was.
static void split_open(ClassSplit *s, const char *name, const SourceSurvey *r, const Dataset *like) {
  *s = (ClassSplit){.name = name};
  const CategoryList known = like ? dataset_categories(like) : (CategoryList){0};
  ClassOptions options = {.size = r->canvas, .like = like ? &known : NULL};
  if (!like)
    options.holdout.draw = r->holdout;
  else if (like->holdout)
    options.holdout = (HoldoutUse){.held = like->holdout, .side = HOLDOUT_VAL};
  s->open = classes_open(&s->data, r->dir, like && like->holdout ? like->holdout->split : name, &options, &s->stop);
  if (!s->open) return;
  if (r->decode) ranges_measure(&s->ranges, &s->data);
  s->data.range = like ? like->range : s->ranges.range;
  if (r->range) sample_range_parse(&s->data.range, r->range, NULL);
  ranges_note(&s->ranges, &s->data, name, s->data.range, &s->data.notes);
  class_survey_take(&s->survey, &s->data, r->decode, &s->ranges, r->tick);
}

static void split_close(ClassSplit *s) {
  if (!s->open) return;
  class_survey_free(&s->survey);
  ranges_free(&s->ranges);
  dataset_close(&s->data);
}

static bool split_sound(const ClassSplit *s) {
  if (!s->name) return true;
  return s->open && !s->data.bad_images && !s->survey.unreadable && !s->survey.conflicts;
}

// With the range of 16-bit images, so that the run does not depend on a measurement.
static char *suit_flags(const ClassCheckup *c, const SourceSurvey *r) {
  char *holdout = c->train.data.holdout ? xasprintf(" %s", c->train.data.holdout->by)
                                        : xstrdup(c->val.name ? "" : " --val-fraction 0.2");
  char *flags = class_advice(&c->train.data, &c->train.survey, r->canvas.h, holdout);
  free(holdout);
  if (!c->train.ranges.deep) return flags;
  char range[SAMPLE_RANGE_TEXT];
  sample_range_text(c->train.data.range, range);
  char *both = xasprintf("%s --range %s", flags, range);
  free(flags);
  return both;
}

static void check(ClassCheckup *c, const SourceSurvey *r) {
  *c = (ClassCheckup){.first_shared = {-1, -1}};
  split_open(&c->train, "train", r, NULL);
  // val's classes must match train's: if train does not open, there is nothing to compare them with.
  if (c->train.open && (c->train.data.holdout || classes_has(r->dir, "val")))
    split_open(&c->val, "val", r, &c->train.data);
  if (c->train.open && c->val.open)
    c->shared = class_survey_shared(&c->train.survey, &c->train.data, &c->val.survey, &c->val.data, c->first_shared);
  if (c->train.open) c->flags = suit_flags(c, r);
  c->sound = split_sound(&c->train) && split_sound(&c->val) && c->shared == 0;
}

static const char *file_of(const ClassSplit *s, int i) { return s->data.coco.images[s->data.image[i]].file_name; }

// ---- the page -----------------------------------------------------------------------------------------------------

static void say_split(DiagnosisSplit *f, const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  const Canvas *canvas = &s->data.canvas[0];
  const int images = s->data.num_images, classes = s->data.classes;
  if (v->least.h == v->most.h && v->least.w == v->most.w)
    diagnosis_add_statistic(f, "images", "%d of %d classes; all %d x %d px", images, classes, v->most.w, v->most.h);
  else
    diagnosis_add_statistic(f, "images", "%d of %d classes; median %d x %d px, smallest %d x %d px, largest %d x %d px",
                            images, classes, v->median.w, v->median.h, v->least.w, v->least.h, v->most.w, v->most.h);
  if (s->ranges.measured) {
    char *range = ranges_text(&s->ranges, s->ranges.range);
    diagnosis_add_statistic(f, "16 bit", "%s", range);
    free(range);
  }
  diagnosis_add_statistic(f, "canvas", "%d x %d", canvas->w, canvas->h);
  if (v->decode_ms > 0) diagnosis_add_statistic(f, "decoding", "%.1f ms per image (one core)", v->decode_ms);
}

static void say_pair(Diagnosis *f, const ClassSplit *s, int image, const ClassSplit *of, int other) {
  diagnosis_add_detail(f, "first: %s (%s), identical to %s (%s)", file_of(s, image),
                       s->data.coco.categories[s->data.object[image].label].name, file_of(of, other),
                       of->data.coco.categories[of->data.object[other].label].name);
}

static void say_wrong(Diagnosis *f, int split, const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  if (s->data.bad_images)
    diagnosis_add_defect(f, split, "image files whose size cannot be read", s->data.bad_images,
                         "left out; listed on standard error");
  if (v->unreadable) {
    diagnosis_add_defect(f, split, class_defects[CLASS_UNREADABLE].what, v->unreadable,
                         class_defects[CLASS_UNREADABLE].treatment);
    diagnosis_add_detail(f, "first: %s", v->reason);
  }
  if (v->conflicts) {
    diagnosis_add_defect(f, split, class_defects[CLASS_CONFLICT].what, v->conflicts,
                         class_defects[CLASS_CONFLICT].treatment);
    say_pair(f, s, v->conflict[0], s, v->conflict[1]);
  }
}

static void hurt_by_rare(Diagnosis *f, const ClassSplit *train) {
  const int *count = train->survey.count;
  int most = 0, rare = 0, first = -1;
  for (int i = 0; i < train->data.classes; i++) most = MAX(most, count[i]);
  for (int i = train->data.classes - 1; i >= 0; i--) {
    if ((int64_t)RARE * count[i] > most) continue;
    rare++;
    first = i;
  }
  if (rare)
    diagnosis_add_concern(
        f, "classes with at most a tenth of the largest class's images: %d; the first is %s, with %d compared with %d",
        rare, train->data.coco.categories[first].name, count[first], most);
}

static void hurt_by_split(Diagnosis *f, const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  const int same = v->copies - v->conflicts;
  if (!s->open) return;
  for (int i = 0; i < s->data.notes.n; i++) diagnosis_add_concern(f, "%s", s->data.notes.line[i]);
  if (same > 0) diagnosis_add_concern(f, "duplicate images in %s: %d", s->name, same);
  if (v->small)
    diagnosis_add_concern(f, "%d images in %s are smaller than half the input size and will be upscaled more than 2x",
                          v->small, s->name);
  if (s->data.others)
    diagnosis_add_concern(f, "files in %s that are ignored because they are not named .jpg, .jpeg or .png: %d", s->name,
                          s->data.others);
}

static void say_hurts(Diagnosis *f, const ClassCheckup *c) {
  int missing = 0;
  hurt_by_split(f, &c->train);
  hurt_by_split(f, &c->val);
  hurt_by_rare(f, &c->train);
  if (!c->train.data.gray && c->train.data.num_images < FEW) // there are no pretrained weights for grey images
    diagnosis_add_concern(f, "only %d training images: start from pretrained weights (--weights FILE --reset-heads)",
                          c->train.data.num_images);
  for (int i = 0; c->val.open && i < c->val.data.classes; i++) missing += c->val.survey.count[i] == 0;
  if (missing) diagnosis_add_concern(f, "classes without an image in %s: %d", c->val.name, missing);
  if (!c->val.name)
    diagnosis_add_concern(f, "no split val to evaluate on; --val-fraction 0.2 holds out a fifth of train");
}

static void find_split(Diagnosis *f, int split, const ClassSplit *s) {
  DiagnosisSplit *found = &f->split[split];
  if (!s->name) return;
  found->name = xstrdup(s->name);
  if (*s->stop.msg) found->stop = xstrdup(s->stop.msg);
  if (!s->open) return;
  found->data = &s->data;
  found->defects = s->survey.wrong;
  found->category = xcalloc((size_t)s->data.classes, sizeof *found->category);
  for (int k = 0; k < s->data.classes; k++) found->category[k] = k; // val has training's classes
  say_split(found, s);
  say_wrong(f, split, s);
  histograms_take(&found->histograms, &s->data, false);
}

static void find_classes(Diagnosis *f, const ClassCheckup *c) {
  const Dataset *d = &c->train.data;
  if (!c->train.open) return;
  f->category = xcalloc((size_t)d->classes, sizeof *f->category);
  f->categories = d->classes;
  for (int i = 0; i < d->classes; i++)
    f->category[i] = (DiagnosisCategory){.name = d->coco.categories[i].name,
                                         .id = i,
                                         .count = {c->train.survey.count[i], c->val.open ? c->val.survey.count[i] : -1},
                                         .images = c->train.survey.count[i]};
}

static void find(Diagnosis *f, const ClassCheckup *c, const SourceSurvey *r) {
  *f = (Diagnosis){.classes = true, .data = xstrdup(r->dir), .sound = c->sound};
  f->read_as = xstrdup(classes_layout(r->dir) == CLASSES_IDX ? "IDX files" : "a folder of images per class");
  if (!r->decode) f->unseen = xstrdup(" in names and sizes; image files were not decoded");
  find_split(f, 0, &c->train);
  find_split(f, 1, &c->val);
  find_classes(f, c);
  if (c->shared) {
    diagnosis_add_defect(f, -1, class_defects[CLASS_SHARED].what, c->shared, class_defects[CLASS_SHARED].treatment);
    say_pair(f, &c->val, c->first_shared[0], &c->train, c->first_shared[1]);
  }
  for (int k = 0; k < CLASS_DEFECTS; k++) {
    f->defect_types.what[k] = class_defects[k].what;
    f->defect_types.treatment[k] = class_defects[k].treatment;
  }
  f->defect_types.n = CLASS_DEFECTS;
  if (!c->train.open) return;
  say_hurts(f, c);
  char *dir = cli_word(r->dir);
  f->command = xasprintf("%s --data %s %s", command_name("train"), dir, c->flags);
  free(dir);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------

static void record_size(Record *r, const char *key, Size s) {
  char text[64];
  snprintf(text, sizeof text, "[%d,%d]", s.h, s.w);
  record_raw(r, key, text);
}

static void record_classes(Record *out, const ClassSplit *s) {
  char *text = NULL;
  size_t size;
  FILE *f = text_open(&text, &size);
  Record r = {0};
  for (int i = 0; i < s->data.classes; i++) {
    record_begin(&r);
    record_int(&r, "label", i);
    record_str(&r, "name", s->data.coco.categories[i].name);
    record_int(&r, "images", s->survey.count[i]);
    fprintf(f, "%s%s", i ? "," : "[", record_end(&r));
  }
  fputc(']', f);
  text_close(f);
  record_raw(out, "classes", text);
  record_free(&r);
  free(text);
}

static void record_split(Record *out, const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  Record r = {0};
  record_begin(&r);
  record_str(&r, "stop", *s->stop.msg ? s->stop.msg : NULL);
  if (s->open) {
    record_int(&r, "images", s->data.num_images);
    record_size(&r, "canvas", (Size){s->data.canvas[0].h, s->data.canvas[0].w});
    record_size(&r, "smallest_image", v->least);
    record_size(&r, "median_image", v->median);
    record_size(&r, "largest_image", v->most);
    record_int(&r, "small", v->small);
    record_int(&r, "left_out", s->data.bad_images);
    record_int(&r, "unreadable", v->unreadable);
    record_str(&r, "first_unreadable", v->reason);
    record_int(&r, "copies", v->copies);
    record_int(&r, "conflicts", v->conflicts);
    record_int(&r, "other_files", s->data.others);
    ranges_record(&r, &s->ranges);
    record_num(&r, "decode_ms", v->decode_ms > 0 ? v->decode_ms : NAN);
    record_classes(&r, s);
  }
  record_raw(out, s->name, record_end(&r));
  record_free(&r);
}

static char *as_json(const ClassCheckup *c, const SourceSurvey *report) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "data", report->dir);
  record_str(&r, "layout", classes_layout(report->dir) == CLASSES_IDX ? "idx" : "folders");
  record_bool(&r, "sound", c->sound);
  record_split(&r, &c->train);
  if (c->val.name) record_split(&r, &c->val);
  record_int(&r, "shared", c->shared);
  record_str(&r, "flags", c->flags);
  char *json = xstrdup(record_end(&r));
  record_free(&r);
  return json;
}

bool class_report(const SourceSurvey *r) {
  ClassCheckup c;
  Diagnosis f;
  check(&c, r);
  find(&f, &c, r);
  char *json = as_json(&c, r);
  r->report(&f, json, r->context);
  free(json);
  diagnosis_free(&f);
  free(c.flags);
  split_close(&c.val);
  split_close(&c.train);
  return c.sound;
}
