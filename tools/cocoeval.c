// cocoeval: computes COCO's 12 metrics from an annotation file and a result file, equal to pycocotools'; also curves
// and a confusion matrix.
#include "data/coco/cocoeval.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/file_set.h"
#include "base/mapped.h"
#include "base/output.h"
#include "base/own_files.h"
#include "base/record.h"
#include "base/threads.h"
#include "data/coco/categories_match.h"
#include "data/coco/cocoeval_confusion.h"
#include "data/coco/confusion.h"
#include "data/coco/from_masks.h"
#include "data/coco/precision_recall.h"
#include "data/survey/examination.h"

// Notes on the files that matter when the metrics are compared with other tools'.
static void print_notes(const EvalSummary *s) {
  if (s->unknown_image)
    fprintf(stderr, "note: detections left out because their image is not in --gt: %d\n", s->unknown_image);
  if (s->unknown_category)
    fprintf(stderr, "note: detections left out because their category is not in --gt: %d\n", s->unknown_category);
  if (s->duplicate_ids)
    fprintf(stderr, "note: annotations replaced by a later one with the same id, as in pycocotools: %d\n",
            s->duplicate_ids);
  if (s->zero_ids)
    fprintf(stderr, "note: an annotation has id 0: as in pycocotools, a detection that matches it counts as a false "
                    "positive; number annotations from 1\n");
  if (s->other_size)
    fprintf(stderr,
            "note: detections that match nothing, as in pycocotools, because their mask's size differs from the "
            "image's: %d; the first is detection %d\n",
            s->other_size, s->first_other_size + 1);
  if (s->box_masks)
    fprintf(stderr, "note: annotations without a valid mask: %d; %s; the first has id %lld\n", s->box_masks,
            s->all_box_masks ? "none has one, so their boxes are used as masks"
                             : "not scored, and detections in their boxes are ignored",
            (long long)s->first_box_mask);
  if (s->maskless)
    fprintf(stderr,
            "note: detections without a mask, scored with their box as mask, as in pycocotools: %d; the first is "
            "detection %d\n",
            s->maskless, s->first_maskless + 1);
}

// pycocotools fails with a KeyError if boxes are compared and an annotation has none.
static void note_boxless(const Coco *gt) {
  int masks = 0, nothing = 0;
  for (int i = 0; i < gt->num_anns; i++) {
    const CocoAnn *a = &gt->anns[i];
    if (a->has_bbox) continue;
    *(a->bbox[2] > 0 ? &masks : &nothing) += 1;
  }
  if (masks)
    fprintf(stderr, "note: annotations without a box, scored with their mask's box (pycocotools fails on them): %d\n",
            masks);
  if (nothing)
    fprintf(stderr,
            "note: annotations without box or mask, which no detection can match (pycocotools fails on them): %d\n",
            nothing);
}

// clang-format off
#define COCOEVAL_OPTIONS(X)                                                                                            \
  X(STRING, gt, NULL, "FILE", "annotations, in COCO's format")                                                         \
  X(STRING, dt, NULL, "FILE", "detections, in COCO's result format")                                                   \
  X(CHOICE, iou, EVAL_BBOX, iou_types, "what is compared: boxes, masks, or masks and their boundaries")                \
  X(CHOICE, areas, MEASURE_FILE, measure_choices, "areas of objects that have a mask: as in --gt, or of the masks")    \
  X(CHOICE, boxes, MEASURE_FILE, measure_choices, "boxes of objects that have a mask: as in --gt, or around the "      \
    "masks")                                                                                                           \
  X(STRING, max_dets, "1,10,100", "A,B,C", "limits on the detections per image and category; AP needs 100")            \
  X(FLAG, per_category, false, "also print a row per category")                                                        \
  X(FLAG, json, false, "print one JSON object instead of text, with the scores of each category")                      \
  X(FLAG, strict, false, "stop at a defect of --gt")                                                                   \
  X(STRING, defects, NULL, "FILE", "write the defects of --gt to FILE, one per line")                                  \
  X(FLAG, force, false, "overwrite files that this program did not write")                                             \
  X(HEADING, "Curves and confusion matrix (PATH: FILE.json or a folder)")                                              \
  X(STRING, curves, NULL, "PATH", "precision-recall curves, for each category and for all")                            \
  X(STRING, confusion, NULL, "PATH", "confusion matrix of categories and background; also as FILE.txt")                \
  X(FLOAT, confusion_score, 0.5f, -INFINITY, INFINITY, "S", "minimum score of a detection in the confusion matrix")    \
  X(FLOAT, confusion_iou, 0.5f, 0.01, 1, "IOU", "minimum IoU of a match in the confusion matrix")
// clang-format on

typedef struct CocoevalOptions {
  OPTION_FIELDS(COCOEVAL_OPTIONS)
} CocoevalOptions;

// Parses three ascending limits, the first at least 1.
static void read_limits(const char *text, int limits[EVAL_LIMITS]) {
  const char *p = text;
  bool ok = true;
  for (int i = 0; i < EVAL_LIMITS && ok; i++) {
    char *end;
    errno = 0;
    const long value = strtol(p, &end, 10);
    ok = isdigit((unsigned char)*p) && errno == 0 && value >= 1 && value <= INT_MAX &&
         *end == (i + 1 < EVAL_LIMITS ? ',' : '\0') && (i == 0 || value > limits[i - 1]);
    limits[i] = (int)value;
    p = end + 1;
  }
  if (!ok)
    die(EXIT_USAGE, "--max-dets %s: expected three increasing whole numbers of at least 1, such as 1,10,100", text);
}

static bool ends_in(const char *path, const char *ending) {
  const size_t n = strlen(path), m = strlen(ending);
  return n > m && strcmp(path + n - m, ending) == 0;
}

// Refuses a name to which nothing can be written, before any work; creates the folder.
static void prepare(const char *option, const char *path, bool text) {
  struct stat there;
  Err err;
  if (ends_in(path, ".json") || (text && ends_in(path, ".txt"))) return;
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
  if (dot && dot > name && dot[1] && dot[1] != '.' && stat(path, &there) != 0)
    die(EXIT_USAGE, "--%s %s: expected FILE.json%s or a folder", option, path, text ? ", FILE.txt," : "");
  if (!dirs_make(path, &err)) die(EXIT_USAGE, "--%s: %s", option, err.msg);
}

// Refuses an output path, or a file to be written into it as a folder, that is one of the input files.
static void spare(FileSet *files, const char *option, const char *path, const char *name) {
  static const char *const endings[] = {"", ".json", ".txt"};
  Err err;
  for (int i = 0; i < COUNT(endings); i++) {
    char *file = i ? xasprintf("%s/%s%s", path, name, endings[i]) : xstrdup(path);
    if (!file_set_spares(files, file, &err)) die(EXIT_USAGE, "--%s %s", option, err.msg);
    free(file);
  }
}

// Refuses to replace what another program wrote: FILE, or `name` in a folder.
static void spare_others(const CocoevalOptions *o, const char *option, const char *path, const char *name,
                         OwnFile what) {
  Err err;
  char *file = path_is_dir(path) ? xasprintf("%s/%s", path, name) : xstrdup(path);
  if (!output_is_own(file, what, o->force, &err)) die(EXIT_USAGE, "--%s: %s", option, err.msg);
  free(file);
}

static void spare_all_others(const CocoevalOptions *o) {
  if (o->curves) spare_others(o, "curves", o->curves, "precision_recall.json", OWN_CURVES);
  if (o->defects) spare_others(o, "defects", o->defects, "", OWN_DEFECTS);
  if (!o->confusion) return;
  const bool is_text = ends_in(o->confusion, ".txt");
  spare_others(o, "confusion", o->confusion, "confusion.json", is_text ? OWN_CONFUSION_TEXT : OWN_CONFUSION);
  if (path_is_dir(o->confusion)) spare_others(o, "confusion", o->confusion, "confusion.txt", OWN_CONFUSION_TEXT);
}

static bool write_curves(const char *path, const EvalSummary *s, Err *err) {
  char *file = ends_in(path, ".json") ? xstrdup(path) : xasprintf("%s/precision_recall.json", path);
  const bool ok = precision_recall_json(file, s, err);
  free(file);
  return ok;
}

static bool write_confusion(const CocoevalOptions *o, const Coco *gt, const CocoResults *dt, Err *err) {
  const double score = float_decimal(o->confusion_score), iou = float_decimal(o->confusion_iou);
  const char *path = o->confusion;
  const int n = gt->num_categories;
  ConfusionCounts counts;
  if (!eval_confusion(&counts, gt, dt, (IouType)o->iou, &score, 1, iou, err)) return false;
  const char **names = xmalloc((size_t)n * sizeof *names);
  char(*ids)[24] = xmalloc((size_t)n * sizeof *ids); // for categories without a name
  for (int k = 0; k < n; k++) {
    const char *name = gt->categories[k].name;
    snprintf(ids[k], sizeof ids[k], "%lld", (long long)gt->categories[k].id);
    names[k] = name && *name ? name : ids[k];
  }
  char rule[128], s[NUMBER_TEXT], t[NUMBER_TEXT];
  snprintf(rule, sizeof rule, "score ≥ %s, IoU (%s) ≥ %s", number_text(score, s), iou_types[o->iou],
           number_text(iou, t));
  const Confusion c = {.classes = n + 1,
                       .count = counts.count,
                       .cell = counts.cell,
                       .cells = counts.cells,
                       .name = names,
                       .background = true,
                       .rule = rule};
  const bool ok = ends_in(path, ".json")  ? confusion_json(path, &c, err)
                  : ends_in(path, ".txt") ? confusion_text(path, &c, err)
                                          : confusion_write(path, &c, err);
  free(names);
  free(ids);
  confusion_counts_free(&counts);
  return ok;
}

static void write_outputs(const CocoevalOptions *o, const EvalSummary *s, const Coco *gt, const CocoResults *dt) {
  FileSet written = {0};
  Err err;
  if (o->curves && !write_curves(o->curves, s, &err)) die(EXIT_RUN, "%s", err.msg);
  if (o->curves) file_set_add(&written, o->curves);
  if (o->confusion && !file_set_spares(&written, o->confusion, &err))
    die(EXIT_USAGE, "--confusion %s: --curves writes the same file; give another name", o->confusion);
  if (o->confusion && !write_confusion(o, gt, dt, &err)) die(EXIT_RUN, "%s", err.msg);
  file_set_free(&written);
}

// Reports defects of the ground truth, except those that the notes on metrics cover; of masks only if masks are
// compared.
static void note_defects(const CocoevalOptions *o, const Examination *e) {
  bool any = false;
  for (int k = 0; k < DEFECTS; k++) {
    if (!e->defects.of_type[k].count) continue;
    any = true;
    const bool of_masks = k >= DEFECT_MASK_NONE && k <= DEFECT_MASK_UNIT;
    if (k == DEFECT_ANN_ID || k == DEFECT_MASK_NONE || (of_masks && o->iou == EVAL_BBOX)) continue;
    char *line = defects_line(&e->defects, (Defect)k, true);
    line_print(stderr, "note: --gt: %s", line);
    free(line);
  }
  if (any && o->defects) line_print(stderr, "note: defects in --gt are listed in %s", o->defects);
}

static void take_from_masks(const CocoevalOptions *o, Coco *gt) {
  int of_boxes, compared;
  if (o->areas == MEASURE_FILE && coco_areas_are_of_boxes(gt, &of_boxes, &compared))
    fprintf(stderr,
            "note: the areas in --gt are those of the boxes, not of the masks (%d of %d compared); scores of small, "
            "medium and large objects depend on them; --areas mask recomputes them\n",
            of_boxes, compared);
  if (o->areas == MEASURE_MASK || o->boxes == MEASURE_MASK)
    coco_take_all_from_masks(gt, o->boxes == MEASURE_MASK, o->areas == MEASURE_MASK);
}

static void examine(const CocoevalOptions *o, const Coco *gt) {
  Err err;
  Examination e = {.split = "--gt", .scored = true};
  defects_find_annotations(&e.defects, gt);
  if (o->strict && !examination_passes(&e, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o->defects && !examination_write(&e, 1, o->defects, &err)) die(EXIT_RUN, "--defects %s", err.msg);
  note_defects(o, &e);
  examination_free(&e);
}

static void print_summary(const CocoevalOptions *o, const Coco *gt, const EvalSummary *s) {
  const int last = s->max_dets[EVAL_LIMITS - 1];
  print_notes(s);
  if (o->iou == EVAL_BBOX) note_boxless(gt);
  if (s->ap_last < 0)
    fprintf(stderr, "note: --gt has no objects to score, so metrics are -1 (undefined), as in pycocotools\n");
  if (s->stats[0] < 0 && s->ap_last >= 0)
    fprintf(stderr,
            "note: AP is -1, as in pycocotools, because --max-dets does not include 100; at %d detections it is %.3f\n",
            last, s->ap_last);
  if (o->json) {
    cocoeval_print_json(stdout, s);
  } else {
    cocoeval_print(stdout, s, NULL);
    if (o->per_category) cocoeval_print_categories(stdout, s);
  }
}

int main(int argc, char **argv) {
  mapped_guard();
  threads_limit();
  CocoevalOptions o = {OPTION_DEFAULTS(COCOEVAL_OPTIONS)};
  OPTION_TABLE(table, CocoevalOptions, COCOEVAL_OPTIONS);
  Cli cli = {
      .usage = "--gt FILE --dt FILE [options]",
      .about =
          "Computes COCO detection metrics, identical to pycocotools'; with --iou boundary, to boundary-iou-api's.",
      .options = table,
      .num_options = COUNT(table),
      .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.gt || !o.dt) die(EXIT_USAGE, "--%s FILE is missing; --help shows the usage", o.gt ? "dt" : "gt");

  int limits[EVAL_LIMITS];
  read_limits(o.max_dets, limits);
  if (o.curves) prepare("curves", o.curves, false);
  if (o.confusion) prepare("confusion", o.confusion, true);

  Err err;
  FileSet read = {0};
  file_set_add(&read, o.gt);
  file_set_add(&read, o.dt);
  if (o.curves) spare(&read, "curves", o.curves, "precision_recall");
  if (o.confusion) spare(&read, "confusion", o.confusion, "confusion");
  if (o.defects && !file_set_spares(&read, o.defects, &err)) die(EXIT_USAGE, "--defects %s", err.msg);
  spare_all_others(&o);
  file_set_free(&read);

  Coco gt;
  CocoResults dt;
  EvalSummary summary;
  if (!coco_load(&gt, o.gt, &err) || !coco_has_categories(&gt, &err) || !coco_results_load(&dt, o.dt, &gt, &err))
    die(EXIT_USAGE, "%s", err.msg);
  take_from_masks(&o, &gt);
  examine(&o, &gt);
  if (!cocoeval_run_at(&summary, &gt, &dt, (IouType)o.iou, limits, &err)) die(EXIT_USAGE, "%s: %s", o.dt, err.msg);
  print_summary(&o, &gt, &summary);
  write_outputs(&o, &summary, &gt, &dt);
  cocoeval_free(&summary);
  coco_results_free(&dt);
  coco_free(&gt);
  stdout_close();
  return 0;
}
