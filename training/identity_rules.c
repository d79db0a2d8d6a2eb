#include "training/identity_rules.h"
#include <stdlib.h>
#include <string.h>

void identify_holdout(Record *j, const Option *row, const void *values, const void *basis) {
  const TrainSpec *o = values;
  const OptionSource from = option_source(row, o);
  (void)basis;
  if (holdout_wanted(&o->holdout) && (from == FROM_GIVEN || row->settle)) option_record(j, row->key, row, o);
}

void identify_exif(Record *j, const Option *row, const void *values, const void *basis) {
  (void)basis;
  record_bool(j, row->key, ((const TrainSpec *)values)->upright);
}

// The defaults are not stored.
void identify_annotations(Record *j, const Option *row, const void *values, const void *basis) {
  const TrainSpec *o = values;
  const int value = !strcmp(row->key, "crowd") ? o->crowd : !strcmp(row->key, "areas") ? o->areas : o->boxes;
  (void)basis;
  if (value) option_record(j, row->key, row, o);
}

// The sizes from which training draws, separated by spaces.
void identify_sizes(Record *j, const Option *row, const void *values, const void *basis) {
  const Sizes *s = &((const TrainSpec *)values)->shorter_sides;
  char text[MAX_SIZES * 5 + 1] = ""; // four digits and a space each
  (void)basis;
  for (int i = 0, n = 0; i < s->n; i++) n += sprintf(text + n, i ? " %d" : "%d", s->side[i]);
  record_str(j, row->key, text);
}

// Nothing of a number that is 0.
void identify_positive(Record *j, const Option *row, const void *values, const void *basis) {
  const float value = *(const float *)((const char *)values + row->offset);
  (void)basis;
  if (value > 0) record_num(j, row->key, float_decimal(value));
}

// The default, SGD, is not stored in checkpoints.
void identify_optimizer(Record *j, const Option *row, const void *values, const void *basis) {
  (void)basis;
  if (((const TrainSpec *)values)->optimizer != OPTIMIZER_SGD) option_record(j, row->key, row, values);
}

void identify_adam(Record *j, const Option *row, const void *values, const void *basis) {
  identify_optimizer(j, row, values, basis);
}

// The learning rate with all its digits.
void identify_lr(Record *j, const Option *row, const void *values, const void *basis) {
  (void)values;
  record_num(j, row->key, ((const Schedule *)basis)->base);
}

// Phases, if there are any, scaled to the session's rate. Classifier runs of older versions have a cosine that falls
// from the first step; they continue with another schedule only with --amend.
void identify_schedule(Record *j, const Option *row, const void *values, const void *basis) {
  const TrainSpec *o = values;
  const Schedule *s = basis;
  const Phases *p = &o->phase_list;
  char *phases = p->n ? phases_text(p, s->base / p->phase[0].rate) : NULL;
  const bool after_warmup = s->decay == DECAY_COSINE && s->cosine_start > 0;
  record_str(j, row->key, phases ? phases : after_warmup ? "cosine after warmup" : schedule_names[o->schedule]);
  free(phases);
}

// Nothing of an option that was not given, or follows from others then.
void identify_given(Record *j, const Option *row, const void *values, const void *basis) {
  (void)basis;
  if (option_source(row, values) == FROM_GIVEN) option_record(j, row->key, row, values);
}

// What determines the order of sums over ranks: NCCL's thread blocks, and for how many multiprocessors wgrad splits its
// sums in which node. Options with words are stored as numbers.
void identify_reduction(Record *j, const Option *row, const void *values, const void *basis) {
  const TrainSpec *o = values;
  (void)basis;
  if (o->gpus == 1) return;
  Option plain = *row;
  plain.words = NULL;
  if (row->type == OPT_FLOAT)
    record_num(j, row->key, (double)o->bucket);
  else
    option_record(j, row->key, &plain, o);
}
