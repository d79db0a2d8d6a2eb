// Checkpoints that are kept under the number of their step: checkpoint-00001200.safetensors.
#pragma once
#include <stdint.h>

char *numbered_name(const char *folder, int64_t step); // malloc'ed
// Removes all but the `keep` latest up to `step`, the run's current step: later ones belong to an abandoned course.
// Files that cannot be removed stay.
void numbered_prune(const char *folder, int64_t step, int keep);
