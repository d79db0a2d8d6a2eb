// OUT/report/evaluation.json: what the last evaluation of a run found, kept so that its page can be made again, alone
// or with other runs'.
#pragma once
#include "page/run_page.h"

// The file, as a whole. Numbers that are not finite are null.
//   step, images, left_out; rule: what the confusion counts
//   metrics     {name: value as text}
//   columns     names of the values of a category: a count, then shares
//   categories  [[name, value, …]]
//   panels, category_panels  [{title, x, unit, curves: [[label, [x …], [y …]]]}]
//   confusion   {background, names, cells: [[truth, found, how often]]}, those that are not 0; null: there is none
//   pictures    [[group, file, caption, truth, found]]: data: addresses, found null where there is one picture
bool page_evaluation_write(const char *path, const PageEvaluation *e, Err *err);
// `e` zeroed. False when the file cannot be read or is none of ours; what was read is the caller's to free all the same
// (run_page_free).
bool page_evaluation_read(const char *path, PageEvaluation *e, Err *err);
// The step alone; -1: no file, or none that can be read.
int64_t page_evaluation_step(const char *path);
