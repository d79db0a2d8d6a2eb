// Checkpoints that are kept with their step in the name: checkpoint-00001200.safetensors.
#pragma once
#include <stdint.h>

char *numbered_name(const char *folder, int64_t step); // malloc'ed
// Removes all but the `keep` latest up to `step`, the run's current step: later ones are left from before a rollback.
// Files that cannot be removed stay.
void numbered_prune(const char *folder, int64_t step, int keep);
