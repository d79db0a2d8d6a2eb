// COCO's 12 figures from an annotation file and a result file, as pycocotools gives them.
#include "data/formats/cocoeval.h"
#include "base/cli.h"
#include "base/output.h"
#include "data/formats/coco.h"

// What people should know about their files before they compare the figures with others'.
static void print_notes(const EvalSummary *s) {
  if (s->unknown_image)
    fprintf(stderr, "note: detections left out, their image is not in --gt: %d\n", s->unknown_image);
  if (s->unknown_category)
    fprintf(stderr, "note: detections left out, their category is not in --gt: %d\n", s->unknown_category);
  if (s->duplicate_ids)
    fprintf(stderr, "note: annotations replaced by a later one with the same id, as in pycocotools: %d\n",
            s->duplicate_ids);
  if (s->zero_ids)
    fprintf(stderr,
            "note: an annotation has id 0: as in pycocotools, what matches it counts as false; number from 1\n");
  if (s->other_size)
    fprintf(stderr,
            "note: detections whose mask has another size than their image, so that, as in pycocotools, they match "
            "nothing: %d; the first is detection %d\n",
            s->other_size, s->first_other_size + 1);
  if (s->box_masks)
    fprintf(stderr, "note: annotations without a usable mask, whose box stands in: %d; the first has id %lld\n",
            s->box_masks, (long long)s->first_box_mask);
  if (s->maskless)
    fprintf(stderr,
            "note: detections without a mask, whose box stands in, as in pycocotools: %d; the first is detection %d\n",
            s->maskless, s->first_maskless + 1);
}

static const char *const kinds[] = {[EVAL_BBOX] = "bbox", [EVAL_SEGM] = "segm", NULL};

// clang-format off
#define COCOEVAL_OPTIONS(X)                                                                                            \
  X(STRING, gt,           NULL, "FILE",     "annotations in COCO's format")                                            \
  X(STRING, dt,           NULL, "FILE",     "detections in COCO's result format")                                      \
  X(CHOICE, iou,          EVAL_BBOX, kinds, "what overlaps: boxes or masks")                                           \
  X(FLAG,   per_category, false,            "a row for each category, too")                                            \
  X(FLAG,   json,         false,            "one JSON object, categories included, instead")
// clang-format on

typedef struct CocoevalOptions {
  OPTION_FIELDS(COCOEVAL_OPTIONS)
} CocoevalOptions;

int main(int argc, char **argv) {
  CocoevalOptions o = {OPTION_DEFAULTS(COCOEVAL_OPTIONS)};
  OPTION_TABLE(table, CocoevalOptions, COCOEVAL_OPTIONS);
  Cli cli = {.usage = "--gt FILE --dt FILE [options]",
             .about = "COCO detection metrics, equal to pycocotools'.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.gt || !o.dt) die(EXIT_USAGE, "--%s FILE is missing; --help shows the usage", o.gt ? "dt" : "gt");

  Coco gt;
  CocoResults dt;
  EvalSummary summary;
  Err err;
  if (!coco_load(&gt, o.gt, &err) || !coco_results_load(&dt, o.dt, &gt, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!cocoeval_run(&summary, &gt, &dt, (EvalKind)o.iou, &err)) die(EXIT_USAGE, "%s: %s", o.dt, err.msg);
  print_notes(&summary);
  if (o.json) {
    cocoeval_print_json(stdout, &summary);
  } else {
    cocoeval_print(stdout, &summary);
    if (o.per_category) cocoeval_print_categories(stdout, &summary);
  }
  cocoeval_free(&summary);
  coco_results_free(&dt);
  coco_free(&gt);
  stdout_close();
  return 0;
}
