#include "inference/held_out.h"
#include <string.h>
#include "base/output.h"
#include "engine/identity.h"

// Versions before 1.3 did not store what they held out.
static void note_older(const InferRun *run) {
  const char *identity = ckpt_find_meta(run->weights, "run");
  double fraction;
  if (run->job->launch.rank > 0 || strcmp(run->o->split, "val") || !identity ||
      !identity_number(identity, "val_fraction", &fraction) || fraction <= 0)
    return;
  line_print(stderr,
             "note: %s was trained with --val-fraction by an older version, which did not store what it held out",
             run->o->weights);
}

void held_out_find(HeldOut *h, const InferRun *run) {
  Err err;
  const InferOptions *o = run->o;
  const char *text = ckpt_find_meta(run->weights, "held_out");
  const bool val = !strcmp(o->split, "val"), named = o->val_json && o->from.split != FROM_GIVEN;
  *h = (HeldOut){.split = o->split};
  if (!text) note_older(run);
  if (!text || named || (!val && strcmp(o->split, "train"))) return;
  if (!holdout_read(&h->holdout, text, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  h->used = true;
  h->use = (HoldoutUse){.held = &h->holdout, .side = val ? HOLDOUT_VAL : HOLDOUT_TRAIN};
  h->split = h->holdout.split;
}

void held_out_print(const HeldOut *h, const InferRun *run, int images) {
  if (!h->used || run->job->launch.rank > 0) return;
  line_print(stderr, "%s: %d images that training %s (%s)", run->o->split, images,
             h->use.side == HOLDOUT_VAL ? "held out" : "did not hold out", h->holdout.by);
}

void held_out_die(const HeldOut *h, const InferRun *run, const char *why) {
  if (!h->used) die(EXIT_USAGE, "%s", why);
  die(EXIT_USAGE, "%s (--split %s is the part of split %s that %s %s)", why, run->o->split, h->split, run->o->weights,
      h->use.side == HOLDOUT_VAL ? "was not trained on" : "was trained on");
}

void held_out_die_absent(const HeldOut *h, const InferRun *run, const char *why) {
  const InferOptions *o = run->o;
  if (!h->used || o->val_json) held_out_die(h, run, why);
  die(EXIT_USAGE,
      "%s has no annotations of split %s, a part of which %s was trained on; name them by --val-json FILE --val-images "
      "DIR --split %s, or without --split to use all images of a file",
      o->data, h->split, o->weights, o->split);
}

void held_out_free(HeldOut *h) {
  holdout_free(&h->holdout);
  *h = (HeldOut){0};
}
