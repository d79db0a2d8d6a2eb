#include "data/survey/checkup.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/text_table.h"
#include "data/coco/elsewhere.h"
#include "data/coco/layout.h"
#include "data/coco/mask_forms.h"
#include "data/survey/shared_files.h"

// ---- looking --------------------------------------------------------------------------------------------------------

// `train` is the split whose categories must match, if it is open; NULL: this is the training split.
static void split_open(Split *s, const char *name, const CheckupOptions *o, bool keep_empty, const Split *train) {
  *s = (Split){.name = name};
  DatasetOptions options = {.resize = {.size = o->size, .max_size = o->max_size},
                            .exif = o->exif,
                            .upright_otherwise = train && train->open && train->data.upright,
                            .boxes = o->boxes,
                            .areas = o->areas,
                            .max_canvases = o->canvases,
                            .crowd = o->crowd,
                            .train = train && train->open ? &train->data.coco : NULL,
                            .classes = o->classes,
                            .keep_empty = keep_empty,
                            .holdout = {.draw = train ? NULL : o->holdout},
                            .json = train ? o->val_json : o->train_json,
                            .images = train ? o->val_images : o->train_images};
  const bool held_out = train && train->data.holdout && !strcmp(name, "val");
  if (held_out) {
    options.holdout = (HoldoutUse){.held = train->data.holdout, .side = HOLDOUT_VAL};
    options.train = NULL; // sides of one file are treated alike
    options.json = o->train_json;
    options.images = o->train_images;
  }
  s->open = dataset_open(&s->data, o->data, held_out ? o->train_split : name, &options, &s->stop);
  if (!s->open) return;
  mask_forms_check(&s->data.coco, &s->stop);
  const CategoryList known = train && train->open ? dataset_categories(&train->data) : (CategoryList){0};
  // If they do not match, the split is shown with its own.
  if (known.n) dataset_take_categories(&s->data, &known, &s->stop);
  if (!train && s->data.coco.num_categories == 0 && coco_has_categories(&s->data.coco, &s->stop))
    err_set(&s->stop, "%s: no categories to train on; list them in \"categories\"", s->data.coco.path);
  if (o->decode) ranges_measure(&s->ranges, &s->data);
  s->data.range = train && train->open ? train->data.range : s->ranges.range;
  if (o->range) sample_range_parse(&s->data.range, o->range, NULL);
  ranges_note(&s->ranges, &s->data, name, s->data.range, &s->data.notes);
  survey_take(&s->survey, &s->data);
  defects_find(&s->defects, &s->data, o->decode ? DEPTH_FILES : DEPTH_ANNOTATIONS, &s->ranges, o->looked);
}

static void split_close(Split *s) {
  if (!s->open) return;
  defects_free(&s->defects);
  ranges_free(&s->ranges);
  survey_free(&s->survey);
  dataset_close(&s->data);
}

static bool is_split(const CheckupOptions *o, const char *split) {
  CocoLayout layout;
  Err err;
  const bool is = coco_layout_find(&layout, o->data, split, NULL, NULL, &err);
  if (is) coco_layout_free(&layout);
  return is;
}

static bool split_sound(const Split *s) { return !s->name || (!*s->stop.msg && !defects_any(&s->defects)); }

// Suggests options, among them those that hold out images: those given or, without a split to evaluate on, a fifth.
static void suggest_options(Checkup *c, const CheckupOptions *o) {
  enum { FEWEST = 5 }; // images to divide
  char *given = o->holdout && holdout_wanted(o->holdout) ? holdout_option_text(o->holdout) : NULL;
  const bool suggests = !given && !c->val.name && c->train.data.num_images >= FEWEST;
  char *text = given ? xasprintf(" %s", given) : xstrdup(suggests ? " --val-fraction 0.2" : "");
  const SuggestFor how = {.keep_empty = o->keep_empty,
                          .few_classes = o->classes,
                          .canvases = o->canvases,
                          .holdout = text,
                          .is_suggested = suggests,
                          .unscored = !given && !c->val.name && !suggests,
                          .weights = o->weights,
                          .pastes_whole = o->pastes_whole,
                          .gpu = o->gpu};
  suggest(&c->suggestion, &c->train, c->val.open ? &c->val : NULL, &how);
  free(text);
  free(given);
}

void checkup_take(Checkup *c, const CheckupOptions *o) {
  *c = (Checkup){0};
  split_open(&c->train, o->train_split, o, o->keep_empty, NULL);
  if (o->val_json || c->train.data.holdout || is_split(o, o->val_split) || strcmp(o->val_split, "val"))
    split_open(&c->val, o->val_split, o, true, &c->train);
  if (c->train.open && c->val.open) {
    if (!*c->val.stop.msg) shared_files_are_named(&c->val.data, &c->train.data, &c->val.stop);
    defects_find_shared(&c->val.defects, &c->val.data, &c->train.data);
    defects_find_turned(&c->train.defects, &c->train.data, &c->val.defects);
    defects_find_turned(&c->val.defects, &c->val.data, &c->train.defects);
  }
  if (c->train.data.holdout && !o->train_json && is_split(o, o->val_split) && !strcmp(o->val_split, "val"))
    notes_add(&c->train.data.notes, "the images of split val are not used: training images are held out instead");
  char *other = c->val.name || !c->train.open || o->train_json ? NULL : coco_in_subfolder(o->data);
  char *options = other ? coco_layout_options("val", other) : NULL;
  if (other) notes_add(&c->train.data.notes, "%s may be a split to evaluate on: %s", other, options);
  free(options);
  free(other);
  if (c->train.open) {
    advice_write(&c->advice, &c->train, c->val.open ? &c->val : NULL, o->keep_empty, o->canvases, o->sampled,
                 o->weights);
    suggest_options(c, o);
  }
  c->sound = split_sound(&c->train) && split_sound(&c->val);
}

void checkup_free(Checkup *c) {
  advice_free(&c->advice);
  suggestion_free(&c->suggestion);
  split_close(&c->train);
  split_close(&c->val);
}

// ---- saying ---------------------------------------------------------------------------------------------------------

static void say_canvases(DiagnosisSplit *f, const Split *s, int canvases) {
  char text[32 * MAX_CANVASES] = "";
  for (int i = 0, used = 0; i < s->data.num_canvases; i++)
    used += snprintf(text + used, sizeof text - (size_t)used, "%s %d x %d", i ? "," : "", s->data.canvas[i].w,
                     s->data.canvas[i].h);
  diagnosis_add_statistic(f, "input", "resized %.2gx (median), padded to%s; %.0f %% of the pixels are padding",
                          (double)s->survey.scale50, text, 100 * s->survey.padding[canvases - 1]);
}

static void say_objects(DiagnosisSplit *f, const Split *s) {
  const Survey *v = &s->survey;
  char most[64] = "", crowds[64] = "";
  if (v->objects) snprintf(most, sizeof most, "; at most %d per image", s->data.max_objects);
  if (s->data.crowds) snprintf(crowds, sizeof crowds, "; %d crowd annotations left out", s->data.crowds);
  diagnosis_add_statistic(f, "objects", "%d in %d of %d categories%s%s", v->objects, v->used,
                          s->data.coco.num_categories, most, crowds);
  if (v->objects)
    diagnosis_add_statistic(f, "object size", "%.0f / %.0f / %.0f px after resizing (10th, 50th, 90th percentile)",
                            (double)v->size10, (double)v->size50, (double)v->size90);
}

static void say_split(DiagnosisSplit *f, const Split *s, int canvases) {
  const Survey *v = &s->survey;
  char without[96] = "";
  const int empty = s->data.without_objects, left_out = dataset_empty_left_out(&s->data);
  if (empty)
    snprintf(without, sizeof without, ", of which %d without objects%s", empty,
             left_out ? " are left out (--keep-empty uses them)" : "");
  diagnosis_add_statistic(f, "images", "%d%s; median %d x %d px, largest %d x %d px", s->data.num_images + left_out,
                          without, v->image50.w, v->image50.h, v->image100.w, v->image100.h);
  if (s->data.layout) diagnosis_add_statistic(f, "read as", "%s", s->data.layout);
  if (s->ranges.measured) {
    char *range = ranges_text(&s->ranges, s->ranges.range);
    diagnosis_add_statistic(f, "16 bit", "%s", range);
    free(range);
  }
  say_canvases(f, s, canvases);
  say_objects(f, s);
  if (s->defects.decode_ms > 0)
    diagnosis_add_statistic(f, "decoding", "%.1f ms per image (one core)", s->defects.decode_ms);
}

static void say_wrong(Diagnosis *f, int split, const Split *s, Defect defect) {
  char *detail[DEFECT_DETAILS];
  diagnosis_add_defect(f, split, defect_info[defect].what, s->defects.of_type[defect].count,
                       defect_treatment(defect, split > 0));
  for (int i = 0, n = defects_details(&s->defects, defect, detail); i < n; i++) {
    diagnosis_add_detail(f, "%s", detail[i]);
    free(detail[i]);
  }
}

static void find_split(Diagnosis *f, int split, const Split *s, int canvases) {
  DiagnosisSplit *found = &f->split[split];
  if (!s->name) return;
  found->name = xstrdup(s->name);
  if (*s->stop.msg) found->stop = xstrdup(s->stop.msg);
  if (!s->open) return;
  found->data = &s->data;
  found->defects = s->defects.of_image;
  say_split(found, s, canvases);
  for (int k = 0; k < DEFECTS; k++)
    if (s->defects.of_type[k].count) say_wrong(f, split, s, (Defect)k);
  histograms_take(&found->histograms, &s->data, true);
}

static int by_objects(const void *a, const void *b) {
  const DiagnosisCategory *p = a, *q = b;
  if (p->count[0] != q->count[0]) return q->count[0] - p->count[0];
  return (p->id > q->id) - (p->id < q->id);
}

// The number of a category's id and name.
static int number_of(TextTable *numbers, const CocoCategory *c) {
  char *key = xasprintf("%lld %s", (long long)c->id, c->name);
  const int number = text_table_add(numbers, key);
  free(key);
  return number;
}

// The categories of both splits, those with most objects first.
static void find_categories(Diagnosis *f, const Checkup *c) {
  const Split *of[DIAGNOSIS_SPLITS] = {&c->train, &c->val};
  TextTable numbers = {0};
  int known[DIAGNOSIS_SPLITS];
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) known[s] = of[s]->open ? of[s]->data.coco.num_categories : 0;
  f->category = xcalloc((size_t)known[0] + (size_t)known[1], sizeof *f->category);
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) {
    f->split[s].category = xcalloc((size_t)known[s], sizeof *f->split[s].category);
    for (int k = 0; k < known[s]; k++) {
      const CocoCategory *category = &of[s]->data.coco.categories[k];
      const int number = f->split[s].category[k] = number_of(&numbers, category);
      DiagnosisCategory *to = &f->category[number];
      if (number == f->categories) {
        f->categories++;
        *to = (DiagnosisCategory){.name = category->name, .id = category->id, .number = number, .count = {-1, -1}};
      }
      to->count[s] = MAX(to->count[s], 0) + of[s]->survey.category[k].objects; // ids may be repeated
      if (s > 0) continue;
      to->images = of[s]->survey.category[k].images;
      to->size = (double)of[s]->survey.category[k].size;
    }
  }
  text_table_free(&numbers);
  qsort(f->category, (size_t)f->categories, sizeof *f->category, by_objects);
  int *place = xcalloc((size_t)f->categories, sizeof *place);
  for (int i = 0; i < f->categories; i++) place[f->category[i].number] = i;
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++)
    for (int k = 0; k < known[s]; k++) f->split[s].category[k] = place[f->split[s].category[k]];
  free(place);
}

void checkup_diagnosis(Diagnosis *f, const Checkup *c, const CheckupOptions *o) {
  *f = (Diagnosis){.data = xstrdup(o->data), .sound = c->sound};
  char *holdout = o->holdout && holdout_wanted(o->holdout) ? holdout_option_text(o->holdout) : NULL;
  f->read_as = xasprintf("as loaded by train with --size %d --max-size %d --canvases %d%s%s%s%s%s%s", o->size,
                         o->max_size, o->canvases, o->range ? " --range " : "", o->range ? o->range : "",
                         o->exif == EXIF_YES  ? " --exif yes"
                         : o->exif == EXIF_NO ? " --exif no"
                                              : "",
                         o->keep_empty ? " --keep-empty" : "", holdout ? " " : "", holdout ? holdout : "");
  free(holdout);
  if (!o->decode) f->unseen = xstrdup(" in the annotations; image files and masks were not checked");
  if (!c->val.name)
    f->absent = xasprintf("no split %s to evaluate on; --val-fraction 0.2 holds out a fifth of the training images",
                          o->val_split);
  find_split(f, 0, &c->train, o->canvases);
  find_split(f, 1, &c->val, o->canvases);
  find_categories(f, c);
  for (int k = 0; k < DEFECTS; k++) {
    f->defect_types.what[k] = defect_info[k].what;
    f->defect_types.treatment[k] = defect_info[k].treatment;
  }
  f->defect_types.n = DEFECTS;
  for (int i = 0; i < c->advice.num_concerns; i++) diagnosis_add_concern(f, "%s", c->advice.concerns[i]);
  for (int i = 0; i < c->suggestion.reasons; i++) diagnosis_add_reason(f, "%s", c->suggestion.reason[i]);
}
