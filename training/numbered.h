// Checkpoints that are kept with their step in the name: checkpoint-00001200.safetensors.
#pragma once
#include <stdint.h>

// The step of a checkpoint; -1: there is none, or it cannot be read or resumed. The first reads the header alone, the
// second compares all values with their digests.
int64_t checkpoint_step(const char *path);
int64_t checkpoint_whole_step(const char *path);

char *numbered_name(const char *folder, int64_t step); // malloc'ed
// Removes all but the `keep` latest up to `step`, the run's current step: later ones are left from before a rollback.
// Files that cannot be removed stay.
void numbered_prune(const char *folder, int64_t step, int keep);
