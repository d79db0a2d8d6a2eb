// COCO's 12 figures from an annotation file and a result file, as pycocotools gives them.
#include "data/formats/cocoeval.h"
#include "base/cli.h"
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
}

int main(int argc, char **argv) {
  static const char *const kinds[] = {[EVAL_BBOX] = "bbox", [EVAL_SEGM] = "segm", NULL};
  const char *gt_path = NULL, *dt_path = NULL;
  int kind = EVAL_BBOX;
  bool json = false, per_category = false;
  Option options[] = {
      {.name = "gt", .kind = OPT_STRING, .target = &gt_path, .arg = "FILE", .help = "annotations in COCO's format"},
      {.name = "dt",
       .kind = OPT_STRING,
       .target = &dt_path,
       .arg = "FILE",
       .help = "detections in COCO's result format"},
      {.name = "iou", .kind = OPT_CHOICE, .target = &kind, .choices = kinds, .help = "what overlaps: boxes or masks"},
      {.name = "per-category", .kind = OPT_FLAG, .target = &per_category, .help = "a row for each category, too"},
      {.name = "json", .kind = OPT_FLAG, .target = &json, .help = "one JSON object, categories included, instead"},
  };
  Cli cli = {.usage = "--gt FILE --dt FILE [options]",
             .about = "COCO detection metrics, equal to pycocotools'.",
             .options = options,
             .num_options = COUNT(options)};
  cli_parse_or_exit(&cli, argc, argv);
  if (!gt_path || !dt_path) die(EXIT_USAGE, "--%s FILE is missing; --help shows the usage", gt_path ? "dt" : "gt");

  Coco gt;
  CocoResults dt;
  EvalSummary summary;
  Err err;
  if (!coco_load(&gt, gt_path, &err) || !coco_results_load(&dt, dt_path, &gt, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!cocoeval_run(&summary, &gt, &dt, (EvalKind)kind, &err)) die(EXIT_USAGE, "%s: %s", dt_path, err.msg);
  print_notes(&summary);
  if (json) {
    cocoeval_print_json(stdout, &summary);
  } else {
    cocoeval_print(stdout, &summary);
    if (per_category) cocoeval_print_categories(stdout, &summary);
  }
  if (fflush(stdout) != 0 || ferror(stdout)) die(EXIT_RUN, "cannot write the result to standard output");
  cocoeval_free(&summary);
  coco_results_free(&dt);
  coco_free(&gt);
  return 0;
}
