#define _GNU_SOURCE // strverscmp
#include "lab/study/rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "lab/study/found.h"
#include "lab/study/template.h"

const char *const study_states[] = {"ok", "no value", "out of memory", "failed", NULL};

// ---- values ---------------------------------------------------------------------------------------------------------

static bool is_seconds(const StudyMeasure *m) { return !strcmp(m->paths[0], "@seconds"); }

static bool member_is(const char *record, const char *path, const char *value) {
  StudyFound f = study_find(record, strlen(record), path);
  const bool same = f.text && study_same_value(f.text, value);
  free(f.text);
  return same;
}

bool study_record_is_of(const StudyPlan *p, const StudyCell *cell, const char *record) {
  const int sweep = study_swept(p, cell);
  if (sweep == STUDY_COMMAND) return true;
  const StudyValue *value = &p->settings[sweep].values[cell->value[sweep]];
  const char *member = p->settings[sweep].name;
  return member_is(record, member, value->text) || member_is(record, member, value->name);
}

static bool where_holds(const StudyPlan *p, const StudyMeasure *m, const StudyCell *cell, int repeat,
                        const char *record) {
  bool ok = true;
  for (int i = 0; ok && i < m->num_where; i++) {
    char *value = study_template_expand(p, m->where[i].value, (StudyFill){cell, repeat, "{out}", "{study}", NULL});
    ok = member_is(record, m->where[i].path, value);
    free(value);
  }
  return ok;
}

static StudyFound find_any(const StudyMeasure *m, const char *record) {
  StudyFound f = {.number = NAN};
  for (int i = 0; !f.there && i < m->num_paths; i++) f = study_find(record, strlen(record), m->paths[i]);
  return f;
}

int study_measure_record(const StudyPlan *p, int measure, const StudyCell *cell, int repeat, char *const *records,
                         int num_records) {
  const StudyMeasure *m = &p->measures[measure];
  int i = num_records;
  while (--i >= 0) {
    StudyFound f = find_any(m, records[i]);
    free(f.text);
    if (f.there && study_record_is_of(p, cell, records[i]) && where_holds(p, m, cell, repeat, records[i])) break;
  }
  return i;
}

static bool has_own(const StudyPlan *p, const StudyCell *cell, char *const *records, int n) {
  bool own = false;
  for (int i = 0; i < n; i++) own |= study_record_is_of(p, cell, records[i]);
  return own;
}

static void say_none_is_its_own(const StudyPlan *p, const StudyCell *cell, Err *err) {
  const int sweep = study_swept(p, cell);
  err_set(err, "no record has the %s %s", p->settings[sweep].name, study_value_name(p, cell, sweep));
}

// Why none of the records will do.
static void explain(const StudyPlan *p, const StudyCell *cell, const StudyMeasure *m, char *const *records, int n,
                    Err *err) {
  char members[600];
  if (n == 0) {
    err_set(err, "no record was printed");
    return;
  }
  if (!has_own(p, cell, records, n)) {
    say_none_is_its_own(p, cell, err);
    return;
  }
  int last = n - 1;
  while (!study_record_is_of(p, cell, records[last])) last--;
  for (int i = last; i >= 0; i--) {
    StudyFound f = find_any(m, records[i]);
    free(f.text);
    if (!f.there || !study_record_is_of(p, cell, records[i])) continue;
    err_set(err, "no record that has %s is as where says", m->paths[0]);
    return;
  }
  study_members(records[last], strlen(records[last]), members, sizeof members);
  err_set(err, "no record has %s; the last has %s", m->paths[0], members);
}

double study_measure_value(const StudyPlan *p, int measure, const StudyCell *cell, int repeat, char *const *records,
                           int num_records, double seconds, Err *err) {
  const StudyMeasure *m = &p->measures[measure];
  if (is_seconds(m) && study_swept(p, cell) != STUDY_COMMAND && !has_own(p, cell, records, num_records)) {
    say_none_is_its_own(p, cell, err);
    return NAN;
  }
  if (is_seconds(m) && isnan(seconds)) err_set(err, "its sweep failed, of which nobody knows its share of the seconds");
  if (is_seconds(m)) return seconds;
  const int i = study_measure_record(p, measure, cell, repeat, records, num_records);
  if (i < 0) {
    explain(p, cell, m, records, num_records, err);
    return NAN;
  }
  StudyFound f = find_any(m, records[i]);
  if (!isfinite(f.number)) err_set(err, "%s is %s, which is no number", m->paths[0], f.text ? f.text : "null");
  free(f.text);
  return isfinite(f.number) ? f.number : NAN;
}

// From the last record that has it, or else from the line, which has what the study itself knows.
static char *text_at(const StudyRow *row, const char *path) {
  StudyFound f = {0};
  for (int i = row->num_records - 1; i >= 0 && !f.text; i--)
    f = study_find(row->records[i], strlen(row->records[i]), path);
  if (!f.text) f = study_find(row->line, strlen(row->line), path);
  return f.text;
}

// What makes two machines another one for a measurement: "8 × H200, driver 580, 16 cores of Xeon". malloc'ed.
static char *machine_of(const StudyRow *row) {
  static const struct {
    const char *path, *before, *behind; // behind: joins it to the next, if that is there
  } parts[] = {{"machine.gpus", "", " × "},
               {"machine.gpu", "", ""},
               {"machine.driver", "driver ", ""},
               {"machine.cuda_toolkit", "CUDA toolkit ", ""},
               {"machine.cuda_runtime", "runtime ", ""},
               {"machine.cores", "", " cores of "},
               {"machine.cpu", "", ""}};
  char *text;
  size_t size;
  const char *joint = "";
  FILE *f = text_open(&text, &size);
  for (int i = 0; i < COUNT(parts); i++) {
    char *value = text_at(row, parts[i].path);
    if (!value) continue;
    fprintf(f, "%s%s%s", joint, parts[i].before, value);
    joint = *parts[i].behind ? parts[i].behind : ", ";
    free(value);
  }
  text_close(f);
  return text;
}

static void find_values(StudyRow *row, StudyPlan *p) {
  Err why;
  for (int s = 1; s < p->num_settings; s++) {
    StudySetting *setting = &p->settings[s];
    if (!setting->path) continue;
    char *text = text_at(row, setting->path);
    if (!text) continue;
    int v = study_value_find(setting, text);
    row->cell.value[s] = v >= 0 || setting->num_values == STUDY_MAX_VALUES ? v : study_value_add(setting, text, text);
    free(text);
  }
  row->values = xmalloc((size_t)p->num_measures * sizeof *row->values);
  const bool whole = row->state == STUDY_OK || row->state == STUDY_NO_VALUE;
  if (whole) row->state = STUDY_OK; // what the measures of this plan say
  for (int m = 0; m < p->num_measures; m++) {
    const bool has = !p->measures[m].computed && p->measures[m].of >> row->cell.value[STUDY_COMMAND] & 1;
    row->values[m] = NAN;
    if (!has || !whole) continue;
    row->values[m] =
        study_measure_value(p, m, &row->cell, row->repeat, row->records, row->num_records, row->seconds, &why);
    if (!isnan(row->values[m]) || row->state != STUDY_OK) continue;
    row->state = STUDY_NO_VALUE;
    if (row->why && !row->num_records) continue; // only the run itself knew why there is none
    free(row->why);
    row->why = xstrdup(why.msg);
  }
  if (row->state == STUDY_OK) {
    free(row->why);
    row->why = NULL;
  }
  row->machine = machine_of(row);
  row->commit = text_at(row, "commit");
}

// ---- lines ----------------------------------------------------------------------------------------------------------

static void row_free(StudyRow *row) {
  for (int i = 0; i < row->num_records; i++) free(row->records[i]);
  free(row->records);
  free(row->why);
  free(row->ran);
  free(row->swept);
  free(row->line);
  free(row->values);
  free(row->machine);
  free(row->commit);
}

// The settings of the line are the plan's; every other setting that the command uses is there.
static bool read_cell(Json *j, const StudyPlan *p, StudyCell *cell) {
  const char *key;
  bool fits = true;
  if (!json_begin_object(j)) return false;
  while ((key = json_key(j))) {
    const int s = study_setting_find(p, key);
    const char *name = json_string(j, NULL);
    if (s <= 0)
      fits = false;
    else if (!p->settings[s].path)
      cell->value[s] = study_value_find(&p->settings[s], name);
    fits = fits && (s <= 0 || p->settings[s].path || cell->value[s] >= 0);
  }
  return fits;
}

static void read_records(Json *j, StudyRow *row) {
  size_t cap = 0;
  if (!json_begin_array(j)) return;
  while (json_next(j)) {
    json_peek(j); // behind blanks
    const char *begin = j->at;
    json_skip(j);
    array_reserve((void **)&row->records, &cap, (size_t)row->num_records + 1, sizeof *row->records);
    row->records[row->num_records++] = xasprintf("%.*s", (int)(j->at - begin), begin);
  }
}

static int state_of(const char *name) {
  int i = STUDY_FAILED;
  while (i > 0 && strcmp(study_states[i], name)) i--;
  return i;
}

typedef enum LineKind { LINE_OF_OTHER_KIND, LINE_RUN, LINE_LEFT, LINE_OF_OTHERS } LineKind;

static LineKind kind_of(const char *name) {
  return !strcmp(name, "run") ? LINE_RUN : !strcmp(name, "left") ? LINE_LEFT : LINE_OF_OTHER_KIND;
}

// What the line is; of others: of a setting that the plan does not have. j.failed tells when it is no record at all.
static LineKind read_row(Json *j, const StudyPlan *p, StudyRow *row) {
  const char *key;
  LineKind kind = LINE_OF_OTHER_KIND;
  bool fits = true;
  memset(&row->cell, 0xff, sizeof row->cell);
  if (!json_begin_object(j)) return kind;
  while ((key = json_key(j))) {
    const bool text = json_peek(j) == JSON_STRING;
    if (!strcmp(key, "kind") && text)
      kind = kind_of(json_string(j, NULL));
    else if (!strcmp(key, "command") && text)
      row->cell.value[STUDY_COMMAND] = study_value_find(&p->settings[STUDY_COMMAND], json_string(j, NULL));
    else if (!strcmp(key, "settings"))
      fits = read_cell(j, p, &row->cell);
    else if (!strcmp(key, "repeat"))
      row->repeat = (int)json_int(j);
    else if (!strcmp(key, "state") && text)
      row->state = (StudyState)state_of(json_string(j, NULL));
    else if (!strcmp(key, "why") && text && !row->why)
      row->why = xstrdup(json_string(j, NULL));
    else if (!strcmp(key, "ran") && text && !row->ran)
      row->ran = xstrdup(json_string(j, NULL));
    else if (!strcmp(key, "swept") && text && !row->swept)
      row->swept = xstrdup(json_string(j, NULL));
    else if (!strcmp(key, "seconds") && json_peek(j) == JSON_NUMBER)
      row->seconds = json_number(j);
    else if (!strcmp(key, "records"))
      read_records(j, row);
    else
      json_skip(j);
  }
  const int command = row->cell.value[STUDY_COMMAND];
  fits = fits && command >= 0;
  for (int s = 1; fits && s < p->num_settings; s++)
    fits = p->settings[s].path || (row->cell.value[s] >= 0) == p->commands[command].uses[s];
  if (kind == LINE_RUN && !fits) return LINE_OF_OTHERS;
  return fits && (kind != LINE_RUN || row->ran) ? kind : LINE_OF_OTHER_KIND;
}

// Its place: that of the row which it repeats, or a new one. NULL: the very line is there.
static StudyRow *place_of(StudyRows *r, const StudyPlan *p, const StudyRow *row) {
  for (int i = 0; i < r->num_rows; i++) {
    StudyRow *other = &r->rows[i];
    if (!strcmp(other->line, row->line)) return NULL;
    if (other->file == row->file && other->repeat == row->repeat && study_cell_same_run(p, &other->cell, &row->cell)) {
      row_free(other);
      return other;
    }
  }
  array_reserve((void **)&r->rows, &r->cap, (size_t)r->num_rows + 1, sizeof *r->rows);
  return &r->rows[r->num_rows++];
}

static void add_left(StudyRows *r, const StudyRow *row) {
  array_reserve((void **)&r->left, &r->cap_left, (size_t)r->num_left + 1, sizeof *r->left);
  r->left[r->num_left++] = (StudyLeft){row->cell, row->repeat};
}

static bool read_line(StudyRows *r, StudyPlan *p, const char *path, int number, const char *text, size_t size,
                      Err *err) {
  Json j;
  StudyRow row = {.file = path, .number = number, .seconds = NAN};
  json_open(&j, path, text, size);
  const LineKind kind = read_row(&j, p, &row);
  const bool ok = json_done(&j);
  if (!ok) err_set(err, "%s:%d: no record of a study: %s", path, number, strchr(j.err.msg, ' ') + 1);
  json_close(&j);
  r->of_others += ok && kind == LINE_OF_OTHERS;
  if (ok && kind == LINE_LEFT) add_left(r, &row);
  if (!ok || kind != LINE_RUN) {
    row_free(&row);
    return ok;
  }
  row.line = xasprintf("%.*s", (int)size, text);
  find_values(&row, p);
  StudyRow *place = place_of(r, p, &row);
  if (place)
    *place = row;
  else
    row_free(&row);
  return true;
}

bool study_rows_read(StudyRows *r, StudyPlan *p, const char *path, Err *err) {
  size_t size;
  char *text = file_read(path, &size, err);
  bool ok = text;
  const char *at = text;
  for (int number = 1; ok && at < text + size; number++) {
    const char *end = memchr(at, '\n', (size_t)(text + size - at));
    if (!end) break; // a kill has cut it
    if (end > at) ok = read_line(r, p, path, number, at, (size_t)(end - at), err);
    at = end + 1;
  }
  free(text);
  return ok;
}

void study_rows_sort_values(StudyRows *r, StudyPlan *p) {
  for (int s = 1; s < p->num_settings; s++) {
    StudySetting *setting = &p->settings[s];
    for (int v = 1; setting->path && v < setting->num_values; v++) {
      for (int at = v; at > 0 && strverscmp(setting->values[at - 1].name, setting->values[at].name) > 0; at--) {
        const StudyValue moved = setting->values[at];
        setting->values[at] = setting->values[at - 1];
        setting->values[at - 1] = moved;
        for (int i = 0; i < r->num_rows; i++) {
          int *value = &r->rows[i].cell.value[s];
          *value = *value == at ? at - 1 : *value == at - 1 ? at : *value;
        }
      }
    }
  }
}

bool study_row_changed(const StudyPlan *p, const StudyRow *row) {
  char *now = study_template_kept(p, &row->cell, row->repeat);
  const int sweep = study_swept(p, &row->cell);
  const char *text = sweep == STUDY_COMMAND ? NULL : p->settings[sweep].values[row->cell.value[sweep]].text;
  const bool changed = strcmp(now, row->ran) || (row->swept && text && strcmp(text, row->swept));
  free(now);
  return changed;
}

void study_rows_drop(StudyRows *r, const StudyPlan *p, bool (*drop)(const StudyPlan *p, const StudyRow *row)) {
  int n = 0;
  for (int i = 0; i < r->num_rows; i++) {
    if (drop(p, &r->rows[i]))
      row_free(&r->rows[i]);
    else
      r->rows[n++] = r->rows[i];
  }
  r->num_rows = n;
}

void study_rows_free(StudyRows *r) {
  for (int i = 0; i < r->num_rows; i++) row_free(&r->rows[i]);
  free(r->rows);
  free(r->left);
  *r = (StudyRows){0};
}
