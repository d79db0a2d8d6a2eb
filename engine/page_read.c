#include "engine/page_read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/record.h"
#include "engine/curves.h"
#include "engine/page_evaluation.h"

// ---- the session ----------------------------------------------------------------------------------------------------

typedef struct Session { // what facts are made of
  char *model, *data, *device;
  double images, val_images, batch, world, steps, per_epoch; // 0: not known
  int metrics;                                               // place of their panel; -1: there is none
} Session;

static void free_session(Session *s) {
  free(s->model);
  free(s->data);
  free(s->device);
}

// Any value that is no list and no object, as people read it; NULL for null. Owned.
static char *read_value(Json *j) {
  char text[NUMBER_TEXT];
  size_t n;
  switch (json_peek(j)) {
  case JSON_STRING: return xstrdup(json_string(j, &n));
  case JSON_NUMBER: return xstrdup(number_text(json_number(j), text));
  case JSON_BOOL: return xstrdup(json_bool(j) ? "yes" : "no");
  default: json_skip(j); return NULL;
  }
}

static double read_number(Json *j) {
  if (json_peek(j) == JSON_NUMBER) return json_number(j);
  json_skip(j);
  return NAN;
}

static void set(char **to, char *value) {
  free(*to);
  *to = value;
}

static void read_pair(Json *j, const char *key, PagePairs *to) {
  char *name = xstrdup(key), *value = read_value(j);
  if (value) page_pair_add(to, name, value);
  free(name);
  free(value);
}

static void read_pairs(Json *j, PagePairs *to) {
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) read_pair(j, key, to);
}

static void add_warning(RunPage *p, char *text) {
  p->warning = xrealloc(p->warning, ((size_t)p->warnings + 1) * sizeof *p->warning);
  p->warning[p->warnings++] = text;
}

static void read_warnings(Json *j, RunPage *p) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j))
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char *text = read_value(j);
          if (text) add_warning(p, text);
        }
}

static void read_memory(Json *j, RunPage *p) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      p->memory = xrealloc(p->memory, ((size_t)p->memories + 1) * sizeof *p->memory);
      PageMemory *m = &p->memory[p->memories++];
      *m = (PageMemory){.bytes = NAN};
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          if (!strcmp(key, "name"))
            set(&m->name, read_value(j));
          else if (!strcmp(key, "place"))
            set(&m->place, read_value(j));
          else if (!strcmp(key, "bytes"))
            m->bytes = read_number(j);
          else
            json_skip(j);
        }
    }
}

static void read_parts(Json *j, RunPage *p) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      p->part = xrealloc(p->part, ((size_t)p->parts + 1) * sizeof *p->part);
      PagePart *part = &p->part[p->parts++];
      *part = (PagePart){.backward = NAN};
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          if (!strcmp(key, "name"))
            set(&part->name, read_value(j));
          else if (!strcmp(key, "forward"))
            part->forward = read_number(j);
          else if (!strcmp(key, "backward"))
            part->backward = read_number(j);
          else
            json_skip(j);
        }
      if (!isfinite(part->forward)) part->forward = 0;
    }
}

static void read_curves(Json *j, PagePanel *panel) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      char *name = NULL, *label = NULL;
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char **to = !strcmp(key, "key") ? &name : !strcmp(key, "label") ? &label : NULL;
          if (to)
            set(to, read_value(j));
          else
            json_skip(j);
        }
      if (name) page_panel_curve(panel, name, label ? label : name);
      free(name);
      free(label);
    }
}

static void read_panels(Json *j, RunPage *p, Session *s) {
  const char *key;
  if (json_begin_array(j))
    while (json_next(j)) {
      PagePanel *panel = page_panel_add(&p->panels, "", "step", "");
      if (json_begin_object(j))
        while ((key = json_key(j))) {
          char **text = !strcmp(key, "title") ? &panel->title : !strcmp(key, "unit") ? &panel->unit : NULL;
          bool *flag = !strcmp(key, "log") ? &panel->log_y : !strcmp(key, "noisy") ? &panel->noisy : NULL;
          if (text) {
            char *value = read_value(j);
            set(text, value ? value : xstrdup(""));
          } else if (flag) {
            *flag = json_bool(j);
          } else if (!strcmp(key, "metrics")) {
            if (json_bool(j)) s->metrics = p->panels.n - 1;
          } else if (!strcmp(key, "curves")) {
            read_curves(j, panel);
          } else {
            json_skip(j);
          }
        }
    }
}

// One member of the file.
static void read_member(Json *j, const char *key, RunPage *p, Session *s) {
  static const char *const of_origin[] = {"date", "commit", "clean"};
  const struct {
    const char *key;
    char **to;
  } texts[] = {{"state", &p->state}, {"data_text", &p->data}, {"command", &p->command},
               {"model", &s->model}, {"data", &s->data},      {"device", &s->device}};
  const struct {
    const char *key;
    double *to;
  } numbers[] = {{"images", &s->images}, {"val_images", &s->val_images}, {"batch", &s->batch},
                 {"world", &s->world},   {"steps", &s->steps},           {"per_epoch", &s->per_epoch}};
  for (int i = 0; i < COUNT(texts); i++)
    if (!strcmp(key, texts[i].key)) {
      set(texts[i].to, read_value(j));
      return;
    }
  for (int i = 0; i < COUNT(numbers); i++)
    if (!strcmp(key, numbers[i].key)) {
      *numbers[i].to = read_number(j);
      return;
    }
  for (int i = 0; i < COUNT(of_origin); i++)
    if (!strcmp(key, of_origin[i])) {
      read_pair(j, of_origin[i], &p->machine);
      return;
    }
  if (!strcmp(key, "machine"))
    read_pairs(j, &p->machine);
  else if (!strcmp(key, "settings"))
    read_pairs(j, &p->settings);
  else if (!strcmp(key, "warnings"))
    read_warnings(j, p);
  else if (!strcmp(key, "panels"))
    read_panels(j, p, s);
  else if (!strcmp(key, "timed_steps"))
    p->timed_steps = (int)json_int(j);
  else if (!strcmp(key, "parts"))
    read_parts(j, p);
  else if (!strcmp(key, "memory"))
    read_memory(j, p);
  else
    json_skip(j);
}

// Of a run that has no session's file: what its log may hold.
static void default_panels(RunPage *p, Session *s) {
  static const struct {
    const char *title, *unit, *key[5];
    bool log_y, noisy;
  } all[] = {{"Losses", "loss", {"loss", "loss_mask"}, true, true},
             {"Average precision", "AP", {"bbox_AP", "bbox_AP50", "segm_AP", "segm_AP50"}, false, false},
             {"Accuracy", "share of images", {"val_top1", "val_top5"}, false, false},
             {"Gradient norm", "L2 norm", {"grad_norm"}, true, true},
             {"Learning rate", "per step", {"lr"}, false, false},
             {"Speed", "images per second", {"img_s"}, false, false},
             {"Wait for data", "seconds a step", {"wait"}, false, true}};
  for (int i = 0; i < COUNT(all); i++) {
    PagePanel *panel = page_panel_add(&p->panels, all[i].title, "step", all[i].unit);
    panel->log_y = all[i].log_y;
    panel->noisy = all[i].noisy;
    for (int k = 0; all[i].key[k]; k++) page_panel_curve(panel, all[i].key[k], all[i].key[k]);
  }
  s->metrics = 1;
}

static bool read_session(const char *path, RunPage *p, Session *s, Err *err) {
  Json j;
  const char *key;
  size_t size;
  if (!path_is_file(path)) {
    default_panels(p, s);
    return true;
  }
  char *text = file_read(path, &size, err);
  if (!text) return false;
  json_open(&j, path, text, size);
  if (json_begin_object(&j))
    while ((key = json_key(&j))) {
      char *name = xstrdup(key); // what follows may read strings
      read_member(&j, name, p, s);
      free(name);
    }
  const bool ok = json_done(&j) || err_set(err, "%s", j.err.msg);
  json_close(&j);
  free(text);
  return ok;
}

// ---- the log --------------------------------------------------------------------------------------------------------

enum { SECONDS, SKIPPED, OWN_CURVES }; // beside those that are drawn

// What has changed on the way, of records of kind "amend".
static void read_amendments(const char *path, RunPage *p) {
  char *line = NULL;
  size_t cap = 0;
  FILE *f = fopen(path, "r");
  while (f && getline(&line, &cap, f) > 0) {
    long long step;
    int at = 0;
    const char *changes = strstr(line, "\"changes\":");
    if (sscanf(line, "{\"step\":%lld,\"kind\":\"amend\"%n", &step, &at) < 1 || !at || !changes) continue;
    line[strcspn(line, "\n")] = '\0';
    changes += strlen("\"changes\":");
    const size_t n = strlen(changes);
    add_warning(p, xasprintf("amended at step %lld: %.*s", step, (int)(n ? n - 1 : 0), changes));
  }
  free(line);
  if (f) fclose(f);
}

// A session's clock begins anew.
static double training_seconds(const Curve *c) {
  double sum = 0;
  for (int i = 0; i < c->n; i++)
    if (i + 1 == c->n || c->y[i + 1] < c->y[i]) sum += c->y[i];
  return sum;
}

static bool read_log(const char *path, RunPage *p, Curve own[OWN_CURVES], Err *err) {
  int n = OWN_CURVES;
  for (int i = 0; i < p->panels.n; i++) n += p->panels.item[i].n;
  const char **key = xcalloc((size_t)n, sizeof *key);
  Curve *curve = xcalloc((size_t)n, sizeof *curve);
  key[SECONDS] = "seconds";
  key[SKIPPED] = "skipped";
  n = OWN_CURVES;
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++) key[n++] = p->panels.item[i].curve[k].key;
  const bool ok = curves_read(path, key, n, curve, err);
  memcpy(own, curve, OWN_CURVES * sizeof *own);
  n = OWN_CURVES;
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++, n++) {
      PageCurve *c = &p->panels.item[i].curve[k];
      c->x = curve[n].x;
      c->y = curve[n].y;
      c->n = curve[n].n;
      c->cap_x = curve[n].cap_x;
      c->cap_y = curve[n].cap_y;
    }
  free(key);
  free(curve);
  return ok;
}

// An evaluation whose record waits behind its page.
static void add_latest(RunPage *p) {
  const PageEvaluation *e = &p->evaluation;
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++) {
      PageCurve *c = &p->panels.item[i].curve[k];
      for (int m = 0; m < e->metrics.n; m++)
        if (!strcmp(e->metrics.item[m].name, c->key) && (!c->n || c->x[c->n - 1] < (double)e->step))
          page_curve_add(c, (double)e->step, strtod(e->metrics.item[m].value, NULL));
    }
}

// ---- facts ----------------------------------------------------------------------------------------------------------

static const PageCurve *curve_of(const RunPage *p, const char *key) {
  for (int i = 0; i < p->panels.n; i++)
    for (int k = 0; k < p->panels.item[i].n; k++)
      if (!strcmp(p->panels.item[i].curve[k].key, key)) return &p->panels.item[i].curve[k];
  return NULL;
}

static void add_fact(RunPage *p, const char *name, char *value) {
  page_pair_add(&p->facts, name, value);
  free(value);
}

static void add_metric_facts(RunPage *p, const PagePanel *panel) {
  for (int i = 0; i < panel->n; i++) {
    const PageCurve *c = &panel->curve[i];
    int best = 0;
    if (!c->n) continue;
    for (int k = 1; k < c->n; k++)
      if (c->y[k] > c->y[best]) best = k;
    add_fact(p, c->label,
             c->y[best] > c->y[c->n - 1] ? xasprintf("%.3f (%.3f at step %.0f)", c->y[c->n - 1], c->y[best], c->x[best])
                                         : xasprintf("%.3f", c->y[c->n - 1]));
  }
}

static double mean_of_last(const PageCurve *c, int n) {
  double sum = 0;
  const int first = MAX(c->n - n, 0);
  for (int i = first; i < c->n; i++) sum += c->y[i];
  return sum / (c->n - first);
}

static void add_data_facts(RunPage *p, const Session *s) {
  if (s->model) add_fact(p, "model", xstrdup(s->model));
  if (s->data) add_fact(p, "data", xstrdup(s->data));
  if (s->images > 0) add_fact(p, "images", xasprintf("%.0f, and %.0f to evaluate on", s->images, s->val_images));
  if (s->batch > 0)
    add_fact(p, "images a step",
             s->world > 1 ? xasprintf("%.0f, of %.0f ranks", s->batch * s->world, s->world)
                          : xasprintf("%.0f", s->batch));
}

static void add_facts(RunPage *p, const Session *s, double seconds) {
  enum { LATELY = 50 }; // steps
  const PageCurve *loss = curve_of(p, "loss"), *speed = curve_of(p, "img_s");
  const double step = loss && loss->n ? loss->x[loss->n - 1] : 0;
  add_data_facts(p, s);
  add_fact(p, "step", s->steps > 0 ? xasprintf("%.0f of %.0f", step, s->steps) : xasprintf("%.0f", step));
  if (s->per_epoch > 0) add_fact(p, "epoch", xasprintf("%.1f", step / s->per_epoch));
  if (loss && loss->n) add_fact(p, "loss, last 50 steps", xasprintf("%.4f", mean_of_last(loss, LATELY)));
  if (s->metrics >= 0) add_metric_facts(p, &p->panels.item[s->metrics]);
  if (speed && speed->n) add_fact(p, "images per second", xasprintf("%.1f", speed->y[speed->n - 1]));
  if (seconds > 0) {
    const long long whole = llround(seconds);
    add_fact(p, "time", xasprintf("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60));
  }
  if (s->device) add_fact(p, "device", xstrdup(s->device));
}

// ---- all ------------------------------------------------------------------------------------------------------------

// Of a path, with or without a slash at its end. Owned.
static char *last_part(const char *folder) {
  size_t end = strlen(folder);
  while (end > 1 && folder[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && folder[begin - 1] != '/') begin--;
  return xasprintf("%.*s", (int)(end - begin), folder + begin);
}

bool page_read(RunPage *p, const char *folder, const char *name, Err *err) {
  char *log = xasprintf("%s/log.jsonl", folder), *session = xasprintf("%s/" PAGE_SESSION, folder),
       *evaluation = xasprintf("%s/" PAGE_EVALUATION, folder);
  Session s = {.metrics = -1};
  Curve own[OWN_CURVES] = {0};
  p->name = name ? xstrdup(name) : last_part(folder);
  p->evaluation.step = -1;
  bool ok = path_is_file(log) || err_set(err, "%s: no such file: expected the folder of a run of ./train", log);
  ok = ok && read_session(session, p, &s, err) && read_log(log, p, own, err) &&
       (!path_is_file(evaluation) || page_evaluation_read(evaluation, &p->evaluation, err));
  if (ok) {
    if (p->evaluation.step >= 0) add_latest(p);
    if (own[SKIPPED].n && own[SKIPPED].y[own[SKIPPED].n - 1] > 0)
      add_warning(p, xasprintf("%.0f steps were skipped while fp16's loss scale was found: their gradients overflowed",
                               own[SKIPPED].y[own[SKIPPED].n - 1]));
    read_amendments(log, p);
    add_facts(p, &s, training_seconds(&own[SECONDS]));
  }
  curves_free(own, OWN_CURVES);
  free_session(&s);
  free(log);
  free(session);
  free(evaluation);
  return ok;
}

bool page_of_folder(const char *folder, Err *err) {
  RunPage page = {0};
  char *path = xasprintf("%s/" PAGE_FILE, folder);
  const bool ok = page_read(&page, folder, NULL, err) && run_page_write(path, &page, 1, err);
  run_page_free(&page);
  free(path);
  return ok;
}
