#include "training/anchors.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include "base/output.h"
#include "data/survey/anchor_fit.h"

static_assert((int)FIT_LEVELS == (int)MAX_LEVELS, "a size for each level");

enum { LIST_TEXT = 96 };
#define LEAST_GAIN 0.01 // of the mean IoU, for which anchors are changed
#define TOO_SMALL 0.2   // below this mean IoU a warning is printed; nuclei have 0.68 at the size of tiny

static bool is_auto(const TrainSpec *o) { return o->anchors && !strcmp(o->anchors, "auto"); }

static void list(const float size[MAX_LEVELS], char text[LIST_TEXT]) {
  size_t used = 0;
  for (int l = 0; l < MAX_LEVELS && used < LIST_TEXT; l++)
    used += (size_t)snprintf(text + used, LIST_TEXT - used, "%s%g", l ? "," : "", (double)size[l]);
}

static bool in_range(const ModelConfig *c) {
  for (int l = 0; l < MAX_LEVELS; l++)
    if (!(c->anchor_size[l] >= 1 && c->anchor_size[l] <= 65536)) return false;
  return true;
}

void train_set_anchors(const TrainSpec *o, ModelConfig *c) {
  Err err;
  if (!o->anchors || is_auto(o)) return;
  if (!config_set(c, "anchor_size", o->anchors, &err) || !in_range(c))
    die(EXIT_USAGE,
        "--anchors %s: expected %d sizes from 1 to 65536 pixels, one each for P2 to P6, such as "
        "16,32,64,128,256; or auto",
        o->anchors, MAX_LEVELS);
}

// Given anchors that no object overlaps enough to count would teach the RPN nothing.
static void refuse_apart(const ModelConfig *c, const AnchorFit *fit, const Dataset *train) {
  char given[LIST_TEXT], suit[LIST_TEXT];
  if (fit->most_before >= (double)c->rpn_low || fit->iou < fit->iou_before + LEAST_GAIN) return;
  list(c->anchor_size, given);
  list(fit->size, suit);
  die(EXIT_USAGE, "anchors %s overlap no object of %s by an IoU of %g; these suit it: --anchors %s, or --anchors auto",
      given, train->coco.path, (double)c->rpn_low, suit);
}

void train_fit_anchors(TrainSpec *o, const Dataset *train) {
  AnchorFit fit;
  char is[LIST_TEXT], was[LIST_TEXT];
  const bool is_given = o->anchors || config_list_sets(o->set, "anchor_size");
  if (!is_given || !anchor_fit(&fit, train, o->config.anchor_size, o->config.anchor_ratio)) return;
  if (fmax(fit.iou, fit.iou_before) < TOO_SMALL)
    line_print(
        stderr,
        "warning: no anchors suit the objects of %s, whose mean IoU with the best is %.2f: they are very small at "
        "--size %d; a larger one helps",
        train->coco.path, fmax(fit.iou, fit.iou_before), o->config.size);
  if (!is_auto(o)) {
    refuse_apart(&o->config, &fit, train);
    return;
  }
  list(fit.size, is);
  list(o->config.anchor_size, was);
  const bool better = fit.iou >= fit.iou_before + LEAST_GAIN;
  if (better) memcpy(o->config.anchor_size, fit.size, sizeof fit.size);
  if (better)
    line_print(stderr, "note: --anchors auto chose %s: their mean IoU with the objects is %.2f, that of %s is %.2f", is,
               fit.iou, was, fit.iou_before);
  else
    line_print(stderr,
               "note: --anchors auto kept %s: their mean IoU with the objects is %.2f, and others gain less than %.2f",
               was, fit.iou_before, LEAST_GAIN);
}
