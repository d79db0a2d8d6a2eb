#include "classification/data/class_report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/output.h"
#include "base/record.h"
#include "base/text.h"
#include "classification/data/class_advice.h"
#include "classification/data/class_survey.h"

// In the table; a class with so many times fewer images than the largest is rare; few images of all classes together.
enum { MOST_CLASSES = 40, RARE = 10, FEW = 1000 };

typedef struct ClassSplit {
  const char *name; // NULL: there is none
  Dataset data;
  bool open;
  Err stop; // why it could not be
  ClassSurvey survey;
} ClassSplit;

typedef struct ClassCheckup {
  ClassSplit train, val;
  int shared, first_shared[2]; // images of val that are in train, too
  char *flags;                 // of ./train; NULL: it would not start
  bool sound;
} ClassCheckup;

static void split_open(ClassSplit *s, const char *name, const SourceSurvey *r, const Dataset *like) {
  *s = (ClassSplit){.name = name};
  const ClassOptions options = {.size = r->canvas, .like = like};
  s->open = classes_open(&s->data, r->dir, name, &options, &s->stop);
  if (s->open) class_survey_take(&s->survey, &s->data, r->decode, r->tick);
}

static void split_close(ClassSplit *s) {
  if (!s->open) return;
  class_survey_free(&s->survey);
  dataset_close(&s->data);
}

static bool split_sound(const ClassSplit *s) {
  if (!s->name) return true;
  return s->open && !s->data.bad_images && !s->survey.unreadable && !s->survey.conflicts;
}

static void check(ClassCheckup *c, const SourceSurvey *r) {
  *c = (ClassCheckup){.first_shared = {-1, -1}};
  split_open(&c->train, "train", r, NULL);
  // Classes of val are those of train: where that does not open, there is nothing to hold them against.
  if (c->train.open && classes_has(r->dir, "val")) split_open(&c->val, "val", r, &c->train.data);
  if (c->train.open && c->val.open)
    c->shared = class_survey_shared(&c->train.survey, &c->train.data, &c->val.survey, &c->val.data, c->first_shared);
  if (c->train.open) c->flags = class_advice(&c->train.data, &c->train.survey, r->canvas.h, c->val.name);
  c->sound = split_sound(&c->train) && split_sound(&c->val) && c->shared == 0;
}

static const char *file_of(const ClassSplit *s, int i) { return s->data.coco.images[s->data.image[i]].file_name; }

// ---- for people -----------------------------------------------------------------------------------------------------

static void print_split(const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  const Canvas *canvas = &s->data.canvas[0];
  line_print(stdout, "  %s", s->name);
  printf("    images      %d of %d classes; ", s->data.num_images, s->data.classes);
  if (v->least.h == v->most.h && v->least.w == v->most.w)
    printf("all of %d x %d pixels\n", v->most.w, v->most.h);
  else
    printf("the median one %d x %d pixels, the smallest %d x %d, the largest %d x %d\n", v->median.w, v->median.h,
           v->least.w, v->least.h, v->most.w, v->most.h);
  printf("    canvas      %d x %d\n", canvas->w, canvas->h);
  if (v->decode_ms > 0) printf("    decoding    %.1f ms an image on one core\n", v->decode_ms);
}

static void print_classes(const ClassCheckup *c) {
  const Dataset *d = &c->train.data;
  printf("\n  %-32s %10s %10s\n", "class", c->train.name, c->val.open ? c->val.name : "");
  for (int i = 0; i < MIN(d->classes, MOST_CLASSES); i++) {
    text_print(stdout, "  %-32.32s %10d", d->coco.categories[i].name, c->train.survey.count[i]);
    if (c->val.open) printf(" %10d", c->val.survey.count[i]);
    printf("\n");
  }
  if (d->classes > MOST_CLASSES) printf("  and %d more; --json has all\n", d->classes - MOST_CLASSES);
}

static void print_pair(const ClassSplit *s, int image, const ClassSplit *of, int other) {
  line_print(stdout, "    first: %s (%s), as %s (%s)", file_of(s, image),
             s->data.coco.categories[s->data.object[image].label].name, file_of(of, other),
             of->data.coco.categories[of->data.object[other].label].name);
}

static void print_wrong(const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  if (!s->name) return;
  if (*s->stop.msg) line_print(stdout, "  %s: training stops: %s", s->name, s->stop.msg);
  if (!s->open) return;
  if (s->data.bad_images)
    printf("  %s: image files of unknown size: %d; left out, named above\n", s->name, s->data.bad_images);
  if (v->unreadable) {
    printf("  %s: image files that cannot be decoded: %d; replaced by another in training, left out in evaluation\n",
           s->name, v->unreadable);
    line_print(stdout, "    first: %s", v->reason);
  }
  if (v->conflicts) {
    printf("  %s: images that are there again under another class: %d; both are taken as they are\n", s->name,
           v->conflicts);
    print_pair(s, v->conflict[0], s, v->conflict[1]);
  }
}

static bool print_rare(const ClassSplit *train) {
  const int *count = train->survey.count;
  int most = 0, rare = 0, first = -1;
  for (int i = 0; i < train->data.classes; i++) most = MAX(most, count[i]);
  for (int i = train->data.classes - 1; i >= 0; i--) {
    if ((int64_t)RARE * count[i] > most) continue;
    rare++;
    first = i;
  }
  if (rare)
    line_print(stdout, "  classes with a tenth of the largest's images or less: %d, the first %s with %d of %d", rare,
               train->data.coco.categories[first].name, count[first], most);
  return rare > 0;
}

static bool print_hurts_of(const ClassSplit *s) {
  const ClassSurvey *v = &s->survey;
  const int same = v->copies - v->conflicts;
  if (!s->open) return false;
  if (same > 0) printf("  images of %s that are copies of another one there: %d\n", s->name, same);
  if (v->small)
    printf("  %d images of %s are smaller than half the input size and will be upscaled more than 2x\n", v->small,
           s->name);
  if (s->data.others)
    printf("  files of %s that are not called .jpg, .jpeg or .png, and are not read: %d\n", s->name, s->data.others);
  return same > 0 || v->small || s->data.others;
}

static void print_hurts(const ClassCheckup *c) {
  const bool train = print_hurts_of(&c->train), val = print_hurts_of(&c->val); // both speak
  bool any = train || val;
  int missing = 0;
  if (c->train.open) any |= print_rare(&c->train);
  if (c->train.open && !c->train.data.gray && c->train.data.num_images < FEW) { // there are none of gray pictures
    printf("  few images, %d: start from weights of another data set (--weights FILE --reset-heads)\n",
           c->train.data.num_images);
    any = true;
  }
  for (int i = 0; c->val.open && i < c->val.data.classes; i++) missing += c->val.survey.count[i] == 0;
  if (missing) printf("  classes without an image in %s: %d\n", c->val.name, missing);
  if (!c->val.name) printf("  no split val to evaluate on; --val-fraction 0.2 holds out a fifth of train\n");
  if (!any && !missing && c->val.name) printf("  nothing\n");
}

static void print_text(const ClassCheckup *c, const SourceSurvey *r) {
  line_print(stdout, "%s, %s", r->dir,
             classes_layout(r->dir) == CLASSES_IDX ? "IDX files" : "folders of images by class");
  printf("\nwhat there is\n");
  if (c->train.open) print_split(&c->train);
  if (c->val.open) print_split(&c->val);
  if (c->train.open) print_classes(c);
  printf("\nwhat is wrong\n");
  print_wrong(&c->train);
  print_wrong(&c->val);
  if (c->shared) {
    printf("  images of val that are in train, too: %d; scores are higher than they should be\n", c->shared);
    print_pair(&c->val, c->first_shared[0], &c->train, c->first_shared[1]);
  }
  if (c->sound) printf("  nothing%s\n", r->decode ? "" : " in names and sizes; image files were not looked at");
  if (!c->train.open) return;
  printf("\nwhat will hurt\n");
  print_hurts(c);
  printf("\nsuggested\n");
  char *dir = cli_word(r->dir);
  line_print(stdout, "  ./train --data %s %s", dir, c->flags);
  free(dir);
}

// ---- for machines ---------------------------------------------------------------------------------------------------

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
    record_num(&r, "decode_ms", v->decode_ms > 0 ? v->decode_ms : NAN);
    record_classes(&r, s);
  }
  record_raw(out, s->name, record_end(&r));
  record_free(&r);
}

static void print_json(const ClassCheckup *c, const SourceSurvey *report) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "data", report->dir);
  record_str(&r, "layout", classes_layout(report->dir) == CLASSES_IDX ? "idx" : "folders");
  record_bool(&r, "sound", c->sound);
  record_split(&r, &c->train);
  if (c->val.name) record_split(&r, &c->val);
  record_int(&r, "shared", c->shared);
  record_str(&r, "flags", c->flags);
  printf("%s\n", record_end(&r));
  record_free(&r);
}

bool class_report(const SourceSurvey *r) {
  ClassCheckup c;
  check(&c, r);
  (r->json ? print_json : print_text)(&c, r);
  free(c.flags);
  split_close(&c.val);
  split_close(&c.train);
  return c.sound;
}
