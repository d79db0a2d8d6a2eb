#include "training/run_record.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/batches/data_identity.h"
#include "training/run_facts.h"
#include "training/run_results.h"
#include "training/settings.h"

bool run_record_phase_ends(const TrainingRun *r, int64_t step) {
  const Schedule *s = &r->schedule;
  for (int i = 0; i < s->phases; i++)
    if (step == s->phase_end[i]) return true;
  return step == r->steps;
}

static int64_t count_parameters(const Params *p) {
  int64_t n = 0;
  for (int i = 0; i < p->n; i++)
    if (!p->list[i]->buffer) n += (int64_t)param_elements(p->list[i]);
  return n;
}

static void record_run(Record *j, const TrainingRun *r, const RunStanding *s) {
  const TrainSpec *o = &r->o;
  record_str(j, "state", s->state); // first, so that readers recognise this form
  record_str(j, "model", o->model);
  record_str(j, "data", o->data);
  record_str(j, "device", r->engine.dev->description);
  record_int(j, "classes", r->engine.config.classes);
  record_int(j, "images", r->train->num_images);
  record_int(j, "val_images", r->val ? r->val->num_images : 0);
  const DataIdentity trained = data_identity(r->train, NULL);
  data_identity_record(j, "trained_on", &trained);
  if (r->val) {
    const DataIdentity scored = data_identity(r->val, NULL);
    data_identity_record(j, "scored_on", &scored);
  }
  record_int(j, "step", s->step);
  record_int(j, "steps", r->steps);
  record_bool(j, "complete", !strcmp(s->state, RUN_IS_COMPLETE));
  record_int(j, "batch", o->batch);
  record_int(j, "world", o->gpus);
  record_int(j, "per_epoch", r->per_epoch);
  record_int(j, "rollbacks", r->rollbacks);
  record_int(j, "parameters", count_parameters(&r->engine.params));
  record_num(j, "build_seconds", r->build_seconds);
  device_origin(r->engine.dev, j);
  settings_record(j, o, r->engine.dev);
  run_facts_record(j, r, s->warning, s->repair);
}

bool run_record_read(TrainingRun *r, int64_t step, Err *err) {
  record_begin(&r->results);
  const bool ok = run_results_record(&r->results, r, step, err);
  record_end(&r->results);
  return ok;
}

bool run_record_write(const TrainingRun *r, const RunStanding *s, Err *err) {
  AtomicFile f;
  Record j = {0};
  char *path = xasprintf("%s/" RUN_RECORD, r->o.out);
  record_begin(&j);
  record_run(&j, r, s);
  const bool ok = file_begin(&f, path, err);
  if (ok) fprintf(f.f, "%s,%s\n", j.text, r->results.text + 1); // one object with the members of both
  record_free(&j);
  free(path);
  return ok && file_commit(&f, err);
}
