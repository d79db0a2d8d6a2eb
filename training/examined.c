#include "training/examined.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/run_folder.h"
#include "data/survey/shared_files.h"

void train_examine(const TrainSpec *o, const Dataset *train, const Dataset *val, TrainExamined *e) {
  Err err;
  *e = (TrainExamined){.n = val ? 2 : 1};
  examination_take(&e->split[0], o->train_split, false, train, NULL);
  if (val) examination_take(&e->split[1], o->val_split, true, val, train);
  if (val && !shared_files_are_named(val, train, &err)) die(EXIT_USAGE, "evaluation: %s", err.msg);
  if (val) examination_compare_orientations(&e->split[0], train, &e->split[1], val);
  if (val && o->strict && !examination_passes(&e->split[1], &err)) die(EXIT_USAGE, "evaluation: %s", err.msg);
}

void train_examined_free(TrainExamined *e) {
  for (int i = 0; i < e->n; i++) examination_free(&e->split[i]);
}

void train_examined_report(const TrainSpec *o, const TrainExamined *e, const Dataset *train, const Dataset *val) {
  char *path = xasprintf("%s/" RUN_DEFECTS, o->out);
  for (int i = 0; i < e->n; i++) examination_print(&e->split[i], stderr);
  examination_list(e->split, e->n, path);
  bad_images_list_in(train->bad, o->train_split, path);
  if (val) bad_images_list_in(val->bad, o->val_split, path);
  free(path);
}
