// What stands in a run's folder, as facts for its page.
#pragma once
#include "page/document.h"

typedef struct PageRun {
  const char *folder; // NULL: there is a log alone
  const char *log;    // NULL: the folder's
  const char *name;   // NULL: the folder's last part
} PageRun;

// Writes one JSON object:
//   name, folder
//   run          run.json as it stands, or of older versions report/session.json; null: there is none
//   log          as page/log_facts.h has it, or null
//   evaluation   evaluation.json as it stands, or of older versions report/evaluation.json, or null
//   best         best.json as it stands, or null
//   older        an older version has written it
//   locked       a program has the folder
//   weights      names of the folder's .safetensors
//   faults       a sentence for each file that is there and cannot be read
//   pictures     the folder of its pictures, as seen from that of `page`, with a slash at its end
//   embedded     {name: address} of the pictures; with `single_file` alone
// Nothing that is wrong with a file keeps it from writing the rest. `page`: where the page goes.
void run_facts_write(Document *d, const PageRun *run, const char *page, bool single_file);
// The same of what ./infer has scored: FOLDER/scores.json as `evaluation`.
void score_facts_write(Document *d, const char *folder, const char *page);
// Whether there is any of the files.
bool run_has_facts(const char *folder);
