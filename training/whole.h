// Finds a checkpoint from which a run can go on when its last one is damaged.
#pragma once
#include <stdint.h>
#include "training/run_files.h"

// The latest checkpoint in the run's folder that is whole and not the file `damaged` under another name: the last, the
// one before it, one kept by number or of a best evaluation. Its path, malloc'ed, and its step; NULL: there is none.
char *whole_checkpoint(const RunFiles *f, const char *damaged, int64_t *step);
// The command that goes on from it: `command` is the run's. malloc'ed.
char *whole_command(const RunFiles *f, const char *whole, const char *command);
