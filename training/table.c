#include "training/table.h"
#include "engine/engine.h"
#include "training/identity_rules.h"

const char *const schedule_names[] = {
    [DECAY_STEP] = "step", [DECAY_COSINE] = "cosine", [DECAY_CONSTANT] = "constant", NULL};
const char *const resume_names[] = {[RESUME_NO] = "no", [RESUME_LAST] = "last", [RESUME_PREVIOUS] = "previous", NULL};
const char *const divergence_names[] = {[DIVERGENCE_STOP] = "stop", [DIVERGENCE_ROLLBACK] = "rollback", NULL};
static const OptionWord word_all[] = {{"all", 0}, {0}}, word_none[] = {{"none", 0}, {0}},
                        word_no_target[] = {{"none", -1}, {0}}, word_never[] = {{"never", 0}, {0}},
                        word_evals[] = {{"end", EVAL_AT_END}, {"never", EVAL_NEVER}, {0}},
                        word_nccl_ctas[] = {{"nccl", 0}, {0}}, word_nccl_reserve[] = {{"nccl", -1}, {0}},
                        word_timed[] = {{"timed", -1}, {0}};

OPTION_TABLE(table, TrainSpec, TRAIN_OPTIONS);

const Option *train_rows(int *n) {
  *n = COUNT(table);
  return table;
}

void train_settle(TrainSpec *o, const Basis *b) {
  for (int i = 0; i < COUNT(table); i++) {
    const OptionSource from = option_source(&table[i], o);
    if ((table[i].needs & ~model_of(&o->config)->traits) != 0) {
      ((unsigned char *)o)[table[i].from] = FROM_NOTHING;
      continue;
    }
    if (!table[i].settle || from == FROM_GIVEN) continue;
    if (!b->help && b->per_epoch && from != FROM_LATER) continue; // settled before the data was open
    ((unsigned char *)o)[table[i].from] = (unsigned char)table[i].settle(o, b);
  }
  if (o->from.lr == FROM_GIVEN) o->rate = float_decimal(o->lr);
}
