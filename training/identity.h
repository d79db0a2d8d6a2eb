// A run's identity, from the rows of its options that have a key: what a resumed run and all ranks must share.
#pragma once
#include "training/options.h"

struct Dataset;
// Everything that determines a step's weights except the model's configuration, as JSON: what a resumed run must share.
// `schedule` is the session's, whose rate a rollback changes. malloc'ed.
char *run_identity(const TrainSpec *o, const struct Dataset *train, const Schedule *schedule);
// The keys that --amend may change; NULL at the end.
const char *const *run_amendable(void);
// What all ranks must share: the identity, the model's configuration and the data, as JSON. val NULL: none. malloc'ed.
char *run_agreement(const char *identity, const ModelConfig *c, const struct Dataset *train, const struct Dataset *val);
