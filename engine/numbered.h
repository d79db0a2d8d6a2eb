// Checkpoints that stay under the number of their step: checkpoint-00001200.safetensors.
#pragma once
#include <stdint.h>

char *numbered_name(const char *folder, int64_t step); // malloc'ed
// Removes all but the `keep` of the latest steps; what cannot be removed stays.
void numbered_prune(const char *folder, int keep);
