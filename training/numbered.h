// Checkpoints that stay under the number of their step: checkpoint-00001200.safetensors.
#pragma once
#include <stdint.h>

char *numbered_name(const char *folder, int64_t step); // malloc'ed
// Removes all but the `keep` latest of the steps up to `step`, where the run stands: later ones are of a course that it
// has left. What cannot be removed stays.
void numbered_prune(const char *folder, int64_t step, int keep);
