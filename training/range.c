#include "training/range.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/survey/ranges.h"
#include "engine/state.h"
#include "training/run_files.h"

static SampleRange range_of(const ModelConfig *c) { return (SampleRange){c->range_low, c->range_high}; }

// Of the run that goes on; false if none does.
static bool resumed(const TrainSpec *o, const Job *job, SampleRange *range) {
  RunFiles f = {0};
  Checkpoint c;
  ModelConfig config;
  const int resume = job->attempt ? RESUME_LAST : o->resume;
  files_name(&f, o->out);
  const char *path = resume == RESUME_PREVIOUS ? f.previous : f.checkpoint;
  bool is = resume && path_is_file(path) && state_open(&c, path, NULL);
  if (is) {
    is = state_config(&c, &config, NULL, NULL);
    if (is) *range = range_of(&config);
    ckpt_close(&c);
  }
  files_free(&f);
  return is;
}

// The weights' own range is not kept where the data have another.
static void note_weights(const TrainSpec *o, SampleRange range, Notes *notes) {
  const SampleRange own = range_of(&o->config);
  char was[SAMPLE_RANGE_TEXT], is[SAMPLE_RANGE_TEXT];
  if (!o->weights || sample_range_same(own, (SampleRange){0}) || sample_range_same(own, range)) return;
  sample_range_text(own, was);
  sample_range_text(range, is);
  notes_add(notes, "%s was trained with --range %s, but this run uses %s; --range %s keeps the range of the weights",
            o->weights, was, is, was);
}

typedef struct ChosenRange {
  SampleRange range;
  OptionSource from;
} ChosenRange;

static ChosenRange choose(const TrainSpec *o, const Job *job, Dataset *train, Dataset *val) {
  ChosenRange c = {range_of(&o->config), o->from.range == FROM_GIVEN ? FROM_GIVEN : FROM_NOTHING};
  Ranges of_train, of_val = {0};
  Err err;
  ranges_measure(&of_train, train);
  if (c.from == FROM_GIVEN) {
    if (!sample_range_parse(&c.range, o->range, &err)) die(EXIT_USAGE, "--range %s", err.msg);
  } else if (resumed(o, job, &c.range)) {
    c.from = of_train.deep ? FROM_MODEL : FROM_NOTHING;
  } else if (of_train.measured) {
    c = (ChosenRange){of_train.range, FROM_DATA};
    char *text = ranges_text(&of_train, c.range);
    notes_add(&train->notes, "%s: %s", o->train_split, text);
    free(text);
  }
  if (of_train.deep && c.from != FROM_MODEL) note_weights(o, c.range, &train->notes);
  ranges_note(&of_train, train, o->train_split, c.range, &train->notes);
  if (val) ranges_measure(&of_val, val);
  if (val) ranges_note(&of_val, val, o->val_split, c.range, &val->notes);
  ranges_free(&of_train);
  ranges_free(&of_val);
  return c;
}

void train_choose_range(TrainSpec *o, const Job *job, Dataset *train, Dataset *val, char *text) {
  ChosenRange c = {0};
  if (job->launch.rank == 0) c = choose(o, job, train, val);
  comm_broadcast_bytes(job->comm, &c, sizeof c);
  o->config.range_low = c.range.low;
  o->config.range_high = sample_range_high(c.range);
  train->range = c.range;
  if (val) val->range = c.range;
  o->upright = train->upright;
  o->range_from = c.from;
  if (c.from == FROM_GIVEN) return;
  sample_range_text(c.range, text);
  o->range = text;
}
