// The identity of a run, of the rows of its options that have a key: what a resumed run and all ranks must share.
#pragma once
#include "training/options.h"

struct Dataset;
// What decides the weights of a step but is not in the model's configuration, as JSON: what a resumed run must share.
// `schedule` is that of the session, of which a rollback changes the rate. malloc'ed.
char *run_identity(const TrainSpec *o, const struct Dataset *train, const Schedule *schedule);
// The keys that --amend may change; NULL at the end.
const char *const *run_amendable(void);
// What all ranks must share: the identity, the model's configuration and the data, as JSON. val NULL: none. malloc'ed.
char *run_agreement(const char *identity, const ModelConfig *c, const struct Dataset *train, const struct Dataset *val);
