#include "training/targets.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/output.h"

Targets targets_of(const TrainSpec *o) {
  const struct {
    const char *option, *metric;
    float value;
  } all[MAX_TARGETS] = {{"--target-bbox", "bbox_AP", o->target_bbox},
                        {"--target-segm", "segm_AP", o->target_segm},
                        {"--target-top1", "val_top1", o->target_top1}};
  Targets t = {0};
  for (int i = 0; i < COUNT(all); i++) {
    if (all[i].value < 0) continue;
    t.of[t.n].option = all[i].option;
    t.of[t.n].metric = all[i].metric;
    t.of[t.n++].value = float_decimal(all[i].value);
  }
  return t;
}

// ---- the log ----------------------------------------------------------------------------------------------------

typedef struct LogRecord { // the members that matter
  ClockRecord clock;
  ScoredSet set;
  double value[MAX_TARGETS];
} LogRecord;

static void read_record(Json *j, const Targets *t, LogRecord *r) {
  const char *key;
  *r = (LogRecord){.clock = CLOCK_RECORD_NONE};
  for (int k = 0; k < MAX_TARGETS; k++) r->value[k] = NAN;
  if (!json_begin_object(j)) return;
  while ((key = json_key(j))) {
    int k = 0;
    while (k < t->n && strcmp(t->of[k].metric, key)) k++;
    if (k < t->n && json_peek(j) == JSON_NUMBER)
      r->value[k] = json_number(j);
    else if (!strcmp(key, BEST_SET))
      r->set.set = json_int(j);
    else if (!strcmp(key, SET_IMAGES))
      r->set.images = (int)json_int(j);
    else if (!strcmp(key, SET_LEFT_OUT))
      r->set.left_out = (int)json_int(j);
    else if (!clock_record_member(&r->clock, j, key))
      json_skip(j);
  }
}

static void take_evaluation(const Targets *t, const LogRecord *r, bool is_compared, double now, TimeToTarget *out) {
  out->evaluations++;
  out->evaluating += r->clock.took;
  out->seconds = now;
  if (!is_compared) return;
  out->reached = true;
  out->step = r->clock.step;
  for (int k = 0; k < t->n; k++) {
    out->value[k] = r->value[k];
    out->reached = out->reached && r->value[k] >= t->of[k].value;
  }
}

typedef struct TargetsReader {
  const Targets *targets;
  TargetsOfLog *log;
} TargetsReader;

static bool take_line(Json *line, void *context) {
  const TargetsReader *read = context;
  TargetsOfLog *l = read->log;
  LogRecord r;
  read_record(line, read->targets, &r);
  run_clock_take(&l->clock, &r.clock);
  if (r.clock.eval)
    take_evaluation(read->targets, &r, scored_set_take(&l->set, &r.set) != SET_OTHER, run_clock_now(&l->clock),
                    &l->time);
  return !l->time.reached;
}

static void summarise(const Targets *t, TimeToTarget *out) {
  *out->summary = '\0';
  for (int k = 0; k < t->n; k++) {
    char target[NUMBER_TEXT];
    const size_t n = strlen(out->summary);
    int digits = 4; // or as many as are needed to show a difference
    const double apart = fabs(out->value[k] - t->of[k].value);
    while (digits < 9 && apart > 0 && apart < pow(10, -digits)) digits++;
    const char *comma = k ? ", " : "", *metric = t->of[k].metric;
    number_text(t->of[k].value, target);
    if (out->value[k] >= 0)
      snprintf(out->summary + n, sizeof out->summary - n, "%s%s %.*f of %s", comma, metric, digits, out->value[k],
               target);
    else
      snprintf(out->summary + n, sizeof out->summary - n, "%s%s undefined, target %s", comma, metric, target);
  }
}

bool targets_read(const Targets *t, const char *folder, TargetsOfLog *l, Err *err) {
  char *path = xasprintf("%s/log.jsonl", folder);
  if (file_length(path) < l->at.bytes) *l = (TargetsOfLog){0}; // another program has cut it short
  if (!l->at.bytes)
    for (int k = 0; k < MAX_TARGETS; k++) l->time.value[k] = NAN;
  const bool ok = json_lines_from(&l->at, path, take_line, &(TargetsReader){t, l}, err);
  summarise(t, &l->time);
  free(path);
  return ok;
}

// ---- the record -------------------------------------------------------------------------------------------------

static void record_time(Record *j, const TrainingRun *r, const Targets *t, const TimeToTarget *time) {
  const TrainSpec *o = &r->o;
  record_begin(j);
  record_str(j, "bench", "time-to-target");
  record_str(j, "model", o->model ? o->model : r->model->name);
  record_str(j, "data", o->data);
  record_int(j, "seed", o->seed);
  record_int(j, "batch", o->batch);
  record_int(j, "world", o->gpus);
  record_bool(j, "reached", time->reached);
  for (int k = 0; k < t->n; k++) {
    char key[2 * METRIC_NAME];
    snprintf(key, sizeof key, "target_%s", t->of[k].metric);
    record_num(j, key, t->of[k].value);
    record_num(j, t->of[k].metric, time->value[k]);
  }
  record_int(j, "step", time->step);
  record_num(j, "epochs", (double)time->step / (double)r->per_epoch);
  record_int(j, "images", time->step * o->batch * o->gpus);
  record_int(j, "evaluations", time->evaluations);
  record_num(j, "seconds", time->seconds);
  record_num(j, "training_seconds", time->seconds - time->evaluating);
  record_num(j, "evaluation_seconds", time->evaluating);
  record_num(j, "build_seconds", r->build_seconds);
  device_origin(r->engine.dev, j);
}

static bool write_text(const char *path, const char *line, Err *err) {
  AtomicFile f;
  if (!file_begin(&f, path, err)) return false;
  fprintf(f.f, "%s\n", line);
  return file_commit(&f, err);
}

bool targets_report(TrainingRun *r, Err *err) {
  const TimeToTarget *time = &r->targets.time;
  Record j = {0};
  const Targets t = targets_of(&r->o);
  if (!t.n) return true;
  if (!targets_read(&t, r->o.out, &r->targets, err)) return false;
  if (!time->reached) line_print(stderr, "the targets were not reached: %s", time->summary);
  record_time(&j, r, &t, time);
  const char *line = record_end(&j);
  char *path = xasprintf("%s/time-to-target.json", r->o.out);
  const bool ok = write_text(path, line, err);
  puts(line);
  free(path);
  record_free(&j);
  return ok;
}
