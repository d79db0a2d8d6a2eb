// Which lines of a log stay when its run goes on.
#pragma once
#include <stdint.h>
#include "base/error.h"

// Keeps in the file at `path`, if there is one, the records of steps ≤ resume; none if `resume` is negative. The last
// line goes if it was cut short, and so do the records of later steps at the end. What else is no record, or has a
// later step than records behind it, is moved to log-set-aside.jsonl beside it, and a line on stderr counts it.
// *evaluated: the last step that is kept with an "eval" record, or -1. False, and the log is as it was, if it cannot be
// read or written.
bool log_keep(const char *path, int64_t resume, int64_t *evaluated, Err *err);
