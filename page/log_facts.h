// A run's log.jsonl as facts for its page: short logs as they are, long ones thinned, so that a page stays small
// however long the run was.
#pragma once
#include "base/error.h"
#include "page/document.h"

// Writes one JSON object.
//   records      of steps, in the log
//   thinned      how many records a point stands for; 1: none is thinned
//   x            steps, at the end of what a point stands for
//   curves       {key: {"y": [mean …], "lo": [least …], "hi": [greatest …]}}: every number of a step's record, and
//                "elapsed", the seconds of all sessions. null: there is none. lo and hi are shorter than y: of the last
//                points, which stand for one record each, and of logs that are not thinned, there are none
//   evaluations  their records as they stand in the log; of more than 2000 every other, or fourth, …, and the last
//   amendments   the records of --amend and of rollbacks
//   unread       lines that are no records; `cut`: the last line is not whole, as of a run that was killed
// False where the file cannot be read; then nothing is written.
bool log_facts_write(Document *d, const char *path, Err *err);
