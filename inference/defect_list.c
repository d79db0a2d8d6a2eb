#include "inference/defect_list.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/run_folder.h"

static char *list_path(const InferOptions *o) { return xasprintf("%s/" RUN_DEFECTS, o->out); }

bool defect_list_spares(const InferOptions *o, FileSet *inputs, Err *err) {
  char *path = list_path(o);
  const bool ok = file_set_spares(inputs, path, err);
  free(path);
  return ok;
}

void defect_list_open(const InferOptions *o, const Dataset *d, const Examination *e) {
  char *path = list_path(o);
  examination_list(e, 1, path);
  bad_images_list_in(d->bad, o->split, path);
  free(path);
}
