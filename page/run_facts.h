// The contents of a run's folder as facts for its page.
#pragma once
#include "page/log_facts.h"

typedef struct PageRun {
  const char *folder; // NULL: there is only a log
  const char *log;    // NULL: the folder's
  const char *name;   // NULL: the folder's last part
  LogFacts **read;    // what is kept of the log for the next page: page/log_facts.h; NULL: nothing
} PageRun;

// Writes one JSON object:
//   name, folder, path (folder without links, from the root)
//   run          run.json unchanged; null: there is none
//   log          as page/log_facts.h writes it, or null
//   evaluation   evaluation.json unchanged, or null
//   best         best.json unchanged, or null
//   locked       whether a running program holds the folder's lock
//   weights      names of the folder's .safetensors
//   faults       a sentence for each file that exists but cannot be read
//   pictures     the relative path from the folder of `page` to the folder of pictures, ending in a slash
//   embedded     {name: address} of the pictures; only with `single_file`
// A file that cannot be read does not keep the rest from being written. `page`: the page's path.
void run_facts_write(Document *d, const PageRun *run, const char *page, bool single_file);
// The same for ./infer's scores: FOLDER/scores.json as `evaluation`.
void score_facts_write(Document *d, const char *folder, const char *page);
// Whether any of the files exists.
bool run_has_facts(const char *folder);
// Whether version 1.1 or an older one wrote the folder, which is no longer read.
bool run_is_older(const char *folder);
