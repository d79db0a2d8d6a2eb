// A run's folder as what its page shows: log.jsonl and, where they are, run.json, evaluation.json and its pictures.
#pragma once
#include "page/run_data.h"

#define PAGE_FILE "report.html" // the page itself

// `page` zeroed; free it with run_page_free whatever is returned. name NULL: the folder's last part. False, naming the
// file, where there is no log, or a file is not what it should be. The folder of an older run, without a
// record, shows the losses that its log has.
bool page_read(RunPage *page, const char *folder, const char *name, Err *err);
