#include "training/run_facts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/run_folder.h"
#include "base/text.h"
#include "evaluation/task.h"

// ---- curves ---------------------------------------------------------------------------------------------------------

typedef struct PanelText {
  const char *title, *unit;
  bool log_y, noisy, metrics;
} PanelText;

static void add_panel(RecordList *panels, const PanelText *p, const char *const *key, const char *const *label, int n) {
  RecordList curves = {0};
  for (int i = 0; i < n; i++) {
    record_begin(&curves.item);
    record_str(&curves.item, "key", key[i]);
    record_str(&curves.item, "label", label[i]);
    record_list_add(&curves);
  }
  record_begin(&panels->item);
  record_str(&panels->item, "title", p->title);
  record_str(&panels->item, "unit", p->unit);
  record_bool(&panels->item, "log", p->log_y);
  record_bool(&panels->item, "noisy", p->noisy);
  record_bool(&panels->item, "metrics", p->metrics);
  record_list_end(&curves, &panels->item, "curves");
  record_list_add(panels);
}

static void add_one(RecordList *panels, const char *title, const char *unit, bool log_y, bool noisy, const char *key) {
  add_panel(panels, &(PanelText){title, unit, log_y, noisy, false}, &key, &title, 1);
}

static void record_panels(Record *j, const Model *m) {
  const Task *task = m->task;
  const char *key[1 + MAX_LOSSES + MAX_TASK_CURVES] = {"loss"}, *label[1 + MAX_LOSSES + MAX_TASK_CURVES] = {"total"};
  const int losses = model_losses(m);
  int n = 1;
  RecordList panels = {0};
  for (int position = 0; position < losses; position++)
    for (int i = 0; i < losses; i++)
      if (m->loss[i].drawn == position) {
        key[n] = m->loss[i].name;
        label[n++] = m->loss[i].label;
      }
  add_panel(&panels, &(PanelText){"Losses", "loss", true, true, false}, key, label, n);
  for (n = 0; n < MAX_TASK_CURVES && task->curve[n].metric; n++) {
    key[n] = task->curve[n].metric;
    label[n] = task->curve[n].label;
  }
  add_panel(&panels, &(PanelText){task->curve_title, task->curve_unit, false, false, true}, key, label, n);
  add_one(&panels, "Validation loss", "loss", true, false, "val_loss");
  add_one(&panels, "Gradient norm", "L2 norm", true, true, "grad_norm");
  add_one(&panels, "Learning rate", "learning rate", false, false, "lr");
  add_one(&panels, "Speed", "images per second", false, false, "img_s");
  add_one(&panels, "Data-loading wait", "seconds per step", false, true, "wait");
  record_list_end(&panels, j, "panels");
}

// ---- time and memory ------------------------------------------------------------------------------------------------

static void add_part(RecordList *parts, const char *name, double forward, double backward) {
  record_begin(&parts->item);
  record_str(&parts->item, "name", name);
  record_num(&parts->item, "forward", forward);
  record_num(&parts->item, "backward", backward);
  record_list_add(parts);
}

static void record_parts(Record *j, const StepParts *p) {
  RecordList parts = {0};
  for (int i = 0; i < p->parts; i++) add_part(&parts, p->part[i].name, p->part[i].forward, p->part[i].backward);
  if (p->results) {
    add_part(&parts, "optimizer step", p->update / p->results, NAN);
    add_part(&parts, "host-to-device copy", p->transfer / p->results, NAN);
  }
  record_int(j, "timed_steps", p->steps);
  record_list_end(&parts, j, "parts");
}

// Copies the members with these names from the file unchanged. False: one is missing.
static bool record_kept(Record *j, const char *path, const char *const *names, int n) {
  size_t size;
  int kept = 0;
  const char *key;
  char *text = path_is_file(path) ? file_read_own(path, &size, NULL) : NULL;
  if (!text) return false;
  Json in;
  json_open(&in, path, text, size);
  if (json_begin_object(&in))
    while ((key = json_key(&in))) {
      int k = 0;
      while (k < n && strcmp(key, names[k])) k++;
      json_peek(&in); // after white space
      const char *begin = in.at;
      json_skip(&in);
      if (k == n || in.failed) continue;
      char *value = xasprintf("%.*s", (int)(in.at - begin), begin);
      record_raw(j, names[k], value);
      free(value);
      kept++;
    }
  json_close(&in);
  free(text);
  return kept == n;
}

// The previous session's measurements stay until this one has its own.
static void record_time(Record *j, const TrainingRun *r) {
  static const char *const names[] = {"timed_steps", "parts"};
  char *path = xasprintf("%s/" RUN_RECORD, r->o.out);
  const bool kept = !r->step_parts.steps && r->first && record_kept(j, path, names, COUNT(names));
  if (!kept) record_parts(j, &r->step_parts);
  free(path);
}

static void record_memory(Record *j, const Engine *e) {
  static const char *const space[MEMORY_SPACES] = {[ON_DEVICE] = "device",
                                                   [ON_HOST] = "host",
                                                   [ON_HOST_LOCKED] = "host, page-locked",
                                                   [ON_HOST_LATER] = "host, later (estimate)"};
  RecordList rows = {0};
  for (int i = 0; i < e->memory.rows; i++) {
    record_begin(&rows.item);
    record_str(&rows.item, "name", e->memory.row[i].name);
    record_str(&rows.item, "place", space[e->memory.row[i].space]);
    record_int(&rows.item, "bytes", (int64_t)e->memory.row[i].bytes);
    record_list_add(&rows);
  }
  record_list_end(&rows, j, "memory");
}

// ---- data -----------------------------------------------------------------------------------------------------------

static void add_warning(RecordList *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void add_warning(RecordList *l, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  record_begin(&l->item);
  record_str(&l->item, "text", text);
  record_list_add(l);
}

// Adds a split's defects: those reported when the run began, and those that appeared since.
static void warn_of_data(RecordList *l, const char *use, const Examination *e, const Dataset *d) {
  const int bad = dataset_bad_images(d);
  for (int k = 0; e && k < DEFECTS; k++) {
    if (!e->defects.of_type[k].count) continue;
    char *line = defects_line(&e->defects, (Defect)k, e->scored);
    add_warning(l, "%s: %s", use, line);
    free(line);
  }
  if (bad) add_warning(l, "%s: %d unusable images: %s", use, bad, e && e->scored ? "left out" : "replaced");
  if (d->others) add_warning(l, "%s: %d files ignored because they are not named .jpg, .jpeg or .png", use, d->others);
  for (int i = 0; i < d->notes.n; i++) add_warning(l, "%s", d->notes.line[i]);
}

static void record_warnings(Record *j, const TrainingRun *r, const char *warning, const char *repair) {
  RecordList l = {0};
  if (warning) {
    record_begin(&l.item);
    record_str(&l.item, "text", warning);
    if (repair) record_str(&l.item, "command", repair);
    record_list_add(&l);
  }
  const TrainExamined *e = r->examined;
  warn_of_data(&l, "training", e->n ? &e->split[0] : NULL, r->train);
  if (r->val) warn_of_data(&l, "evaluation", e->n ? &e->split[1] : NULL, r->val);
  if (!r->val && r->o.eval_every >= 0) add_warning(&l, "nothing to evaluate on");
  record_list_end(&l, j, "warnings");
}

static void record_data(Record *j, const TrainingRun *r) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  dataset_print(r->train, f);
  if (r->val) fprintf(f, "evaluation: %d images\n", r->val->num_images);
  text_close(f);
  record_str(j, "data_text", text);
  free(text);
}

// ---- all ------------------------------------------------------------------------------------------------------------

void run_facts_record(Record *j, const TrainingRun *r, const char *warning, const char *repair) {
  record_data(j, r);
  record_warnings(j, r, warning, repair);
  record_panels(j, r->model);
  run_time_record(j, &r->time);
  record_time(j, r);
  record_memory(j, &r->engine);
}
