#include "training/best.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/output.h"
#include "base/record.h"
#include "training/numbered.h"

static int best_count(const Best *b) {
  int n = 0;
  while (n < MAX_TASK_BEST && b->task->best[n].metric) n++;
  return n;
}

int best_keys(const Task *task, const char **key) {
  int n = 0;
  for (; n < MAX_TASK_BEST && task->best[n].metric; n++) key[n] = task->best[n].metric;
  key[n++] = BEST_SET;
  key[n++] = SET_IMAGES;
  key[n++] = SET_LEFT_OUT;
  return n;
}

SetChange scored_set_take(ScoredSet *known, const ScoredSet *of) {
  const bool is_known = known->set && of->set;
  const bool is_more_complete =
      of->images > known->images && of->images + of->left_out == known->images + known->left_out;
  if (is_known && known->set != of->set && !is_more_complete) return SET_OTHER;
  const SetChange change = is_known && known->set != of->set ? SET_MORE_COMPLETE : SET_SAME;
  if (!known->set || change == SET_MORE_COMPLETE) *known = *of;
  return change;
}

static double value_of(const Metrics *m, const char *name) {
  for (int i = 0; i < m->n; i++)
    if (!strcmp(m->metric[i].name, name)) return m->metric[i].value;
  return NAN;
}

// Not NaN or, of pycocotools' kind, -1.
static bool is_defined(double value) { return value >= 0; }

// Takes the values of all metrics of an evaluation after `step`.
static void take_values(Best *b, const double *value, int64_t step) {
  bool defined = false, gain = false;
  for (int k = 0; k < best_count(b); k++) {
    if (!is_defined(value[k])) continue;
    defined = true;
    if (value[k] <= b->of[k].value) continue;
    b->of[k].value = value[k];
    b->of[k].at = step;
    gain = true;
  }
  if (gain)
    b->without_gain = 0;
  else if (defined && step > b->warmup)
    b->without_gain++;
}

static char *file_of(const Best *b, int k) { return xasprintf("%s/%s.safetensors", b->folder, b->task->best[k].name); }

// ---- what was there before --------------------------------------------------------------------------------------

// The curve's value at a step; *at advances with the steps. 0: an older record does not have it.
static double value_at(const Curve *c, int *at, double step) {
  while (*at < c->n && c->x[*at] < step) ++*at;
  return *at < c->n && c->x[*at] == step ? c->y[*at] : 0;
}

// Whether scores on this set are compared. A more complete set resets the best.
static bool take_set(Best *b, const ScoredSet *of) {
  const SetChange change = scored_set_take(&b->set, of);
  for (int k = 0; change == SET_MORE_COMPLETE && k < MAX_TASK_BEST; k++) b->of[k].value = b->of[k].kept = -DBL_MAX;
  if (change == SET_MORE_COMPLETE) b->without_gain = 0;
  return change != SET_OTHER;
}

// Takes the values of the log's evaluations in order.
static void take_log(Best *b, const Curve *curve) {
  const int n = best_count(b);
  int at[3] = {0};
  for (int i = 0; n && i < curve[0].n; i++) {
    const double step = curve[0].x[i];
    const ScoredSet set = {(int64_t)value_at(&curve[n], &at[0], step), (int)value_at(&curve[n + 1], &at[1], step),
                           (int)value_at(&curve[n + 2], &at[2], step)};
    if (!take_set(b, &set)) continue;
    double value[MAX_TASK_BEST];
    for (int k = 0; k < n; k++) value[k] = i < curve[k].n && curve[k].x[i] == curve[0].x[i] ? curve[k].y[i] : NAN;
    take_values(b, value, (int64_t)curve[0].x[i]);
  }
}

// {"best-bbox":{"bbox_AP":0.5,"step":300,"scored_set":…}}
static void read_file(Best *b, Json *j) {
  const char *name, *key;
  if (!json_begin_object(j)) return;
  while ((name = json_key(j))) {
    int k = 0;
    while (k < best_count(b) && strcmp(b->task->best[k].name, name)) k++;
    if (k == best_count(b)) {
      json_skip(j);
      continue;
    }
    int64_t set = 0;
    if (!json_begin_object(j)) return;
    while ((key = json_key(j)))
      if (!strcmp(key, "step"))
        b->of[k].step = json_int(j);
      else if (!strcmp(key, BEST_SET))
        set = json_int(j);
      else
        b->of[k].kept = json_number(j);
    if (!b->set.set) b->set.set = set; // the log is of an older version
    if (set && set != b->set.set) b->of[k].kept = -DBL_MAX;
  }
}

// The value of the evaluation after `step` in the log; -DBL_MAX: there is none, or on another set.
static double logged(const Best *b, const Curve *curve, int k, int64_t step) {
  const Curve *set = &curve[best_count(b)];
  int at = 0;
  const int64_t of = (int64_t)value_at(set, &at, (double)step);
  if (b->set.set && of && of != b->set.set) return -DBL_MAX;
  for (int i = 0; i < curve[k].n; i++)
    if (curve[k].x[i] == (double)step && is_defined(curve[k].y[i])) return curve[k].y[i];
  return -DBL_MAX;
}

// The weights themselves say of which step they are. If a file is missing, the next evaluation writes it.
static void compare_with_files(Best *b, const Curve *curve) {
  for (int k = 0; k < best_count(b); k++) {
    char *path = file_of(b, k);
    const int64_t step = checkpoint_step(path);
    const bool told = b->of[k].kept > -DBL_MAX;
    free(path);
    if (told && step == b->of[k].step) continue;
    b->of[k].kept = step < 0 ? -DBL_MAX : logged(b, curve, k, step);
    b->of[k].step = step;
    b->is_changed |= told || b->of[k].kept > -DBL_MAX;
  }
}

bool best_open(Best *b, const Task *task, const char *folder, const Curve *of_log, int64_t warmup, Err *err) {
  *b = (Best){.task = task, .folder = folder, .warmup = warmup};
  for (int k = 0; k < MAX_TASK_BEST; k++) b->of[k].value = b->of[k].kept = -DBL_MAX;
  take_log(b, of_log);
  char *path = xasprintf("%s/best.json", folder);
  size_t size;
  char *text = path_is_file(path) ? file_read_own(path, &size, err) : NULL;
  const bool ok = text || !path_is_file(path);
  if (text) {
    Json j;
    json_open(&j, path, text, size);
    read_file(b, &j);
    if (!json_done(&j)) {
      line_print(stderr, "note: %s is damaged; rebuilt from the log and the weights in its folder", path);
      for (int k = 0; k < MAX_TASK_BEST; k++) b->of[k].kept = -DBL_MAX;
      b->is_changed = true;
    }
    json_close(&j);
  }
  compare_with_files(b, of_log);
  free(text);
  free(path);
  return ok;
}

// ---- what a kill left undone ------------------------------------------------------------------------------------

static bool is_behind(const Best *b, int k) { return b->of[k].value > b->of[k].kept; }

int64_t best_missing(const Best *b) {
  for (int k = 0; k < best_count(b); k++)
    if (is_behind(b, k) && !b->of[k].is_lost) return b->of[k].at;
  return -1;
}

bool best_repair(Best *b, int64_t step, const char *state, Err *err) {
  bool ok = true;
  for (int k = 0; ok && k < best_count(b); k++) {
    if (!is_behind(b, k) || b->of[k].at != step) continue;
    char *name = file_of(b, k);
    ok = !state || file_link(state, name, err);
    free(name);
    if (ok && (state || b->of[k].step == step)) {
      b->of[k].kept = b->of[k].value;
      b->of[k].step = step;
      b->is_changed = true;
    } else {
      b->of[k].is_lost = true;
    }
  }
  return ok;
}

// ---- what comes -------------------------------------------------------------------------------------------------

static ScoredSet set_of(const Metrics *m) { return (ScoredSet){m->set, m->images, m->left_out}; }

SetChange best_set(const Best *b, const Metrics *m) {
  ScoredSet known = b->set;
  const ScoredSet of = set_of(m);
  return scored_set_take(&known, &of);
}

unsigned best_take(Best *b, const Metrics *m, int64_t step) {
  unsigned which = 0;
  const ScoredSet set = set_of(m);
  if (!take_set(b, &set)) return 0;
  double value[MAX_TASK_BEST];
  for (int k = 0; k < best_count(b); k++) {
    value[k] = value_of(m, b->task->best[k].metric);
    if (!is_defined(value[k]) || value[k] <= b->of[k].kept) continue;
    b->of[k].kept = value[k];
    b->of[k].step = step;
    which |= 1u << k;
  }
  take_values(b, value, step);
  return which;
}

static bool write_file(Best *b, Err *err) {
  Record all = {0}, one = {0};
  char *path = xasprintf("%s/best.json", b->folder);
  record_begin(&all);
  for (int k = 0; k < best_count(b); k++) {
    if (b->of[k].kept == -DBL_MAX) continue;
    record_begin(&one);
    record_num(&one, b->task->best[k].metric, b->of[k].kept);
    record_int(&one, "step", b->of[k].step);
    if (b->set.set) record_int(&one, BEST_SET, b->set.set);
    record_raw(&all, b->task->best[k].name, record_end(&one));
  }
  AtomicFile f;
  bool ok = file_begin(&f, path, err);
  if (ok) {
    fprintf(f.f, "%s\n", record_end(&all));
    ok = file_commit(&f, err);
  }
  const int reason = errno;
  record_free(&one);
  record_free(&all);
  free(path);
  b->is_changed = !ok;
  errno = reason;
  return ok;
}

bool best_write(Best *b, Err *err) { return !b->is_changed || write_file(b, err); }

// Links the files first, then writes best.json: after a kill in between, best.json is the older one.
bool best_keep(Best *b, unsigned which, const char *from, Err *err) {
  bool ok = true;
  for (int k = 0; ok && k < best_count(b); k++) {
    if (!(which >> k & 1)) continue;
    char *name = file_of(b, k);
    ok = file_link(from, name, err);
    const int reason = errno;
    free(name);
    errno = reason;
  }
  return ok && (!which || write_file(b, err));
}

void best_names(const Best *b, unsigned which, char *text, size_t size) {
  *text = '\0';
  for (int k = 0; k < best_count(b); k++)
    if (which >> k & 1)
      snprintf(text + strlen(text), size - strlen(text), "%s%s.safetensors", *text ? ", " : "", b->task->best[k].name);
}
