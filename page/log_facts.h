// A run's log.jsonl as facts for its page. Long logs are thinned, so that the page's size is bounded.
#pragma once
#include "base/error.h"
#include "page/document.h"

// Writes one JSON object.
//   records      of steps, in the log
//   thinned      greatest number of records per point; 1: not thinned
//   x            steps: of each point's last record
//   curves       {key: {"y": [mean …], "lo": [least …], "hi": [greatest …]}}: every number in the records of steps, and
//                "elapsed", the seconds of all sessions. null: no value. lo and hi are shorter than y: the last points,
//                which are one record each, have none, nor do logs that are not thinned
//   evaluations  their records from the log; if more than 2000, every second, or fourth, …, and the last
//   amendments   the records of --amend and of rollbacks
//   unread       number of lines that are not records, or have keys beyond the log's first 256; `cut`: the last line is
//                incomplete, as after a kill
// False if the file cannot be read; then nothing is written. *read, which begins as NULL, keeps what was read, so that
// the next call reads only what is new; log_facts_free releases it. read NULL: nothing is kept.
typedef struct LogFacts LogFacts;
bool log_facts_write(Document *d, const char *path, LogFacts **read, Err *err);
void log_facts_free(LogFacts *l); // may be NULL
