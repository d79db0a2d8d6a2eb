// A run's folder as what its page shows: log.jsonl, and what of OUT/report/ there is.
#pragma once
#include "page/run_page.h"

// Below a run's folder. PAGE_FILE is the page itself.
#define PAGE_FOLDER "report"
#define PAGE_EVALUATION PAGE_FOLDER "/evaluation.json"
#define PAGE_FILE "report.html"

// `page` zeroed; free it with run_page_free whatever is returned. name NULL: the folder's last part. False, naming the
// file, where there is no log, or a file is not what it should be. A folder without report/, such as that of an older
// run, shows the losses that its log has.
bool page_read(RunPage *page, const char *folder, const char *name, Err *err);
// The page of the run in the folder, made of its files: folder/report.html.
bool page_of_folder(const char *folder, Err *err);
