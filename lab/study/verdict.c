#include "lab/study/verdict.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "lab/study/found.h"

enum { LONGEST = 400, LAST_LINES = 12 };

// ---- records --------------------------------------------------------------------------------------------------------

typedef struct PrintedRecords {
  char **records;
  int n;
  size_t cap;
  char *unread; // what is wrong with the last that begins as one; NULL: nothing
} PrintedRecords;

// The record that begins here, on one line; its end in *end. False: none does.
static bool take_record(PrintedRecords *all, const char *text, const char *end_of_text, const char **end) {
  Json j;
  json_open(&j, "record", text, (size_t)(end_of_text - text));
  json_skip(&j);
  const bool ok = !j.failed;
  *end = j.at;
  if (!ok) {
    free(all->unread);
    all->unread = xstrdup(j.err.msg);
  }
  json_close(&j);
  if (!ok) return false;
  array_reserve((void **)&all->records, &all->cap, (size_t)all->n + 1, sizeof *all->records);
  char *record = xasprintf("%.*s", (int)(*end - text), text);
  for (char *at = record; *at; at++)
    if (*at == '\n' || *at == '\r') *at = ' '; // between values: strings have none
  all->records[all->n++] = record;
  return true;
}

static PrintedRecords read_records(const char *path) {
  PrintedRecords all = {0};
  size_t size;
  char *text = file_read(path, &size, NULL);
  const char *end = text + (text ? size : 0), *behind;
  for (const char *at = text; at && at < end;) {
    const bool taken = *at == '{' && take_record(&all, at, end, &behind);
    const char *line = memchr(taken ? behind : at, '\n', (size_t)(end - (taken ? behind : at)));
    at = line ? line + 1 : end;
  }
  free(text);
  return all;
}

static bool has_machine(const char *record) {
  StudyFound f = study_find(record, strlen(record), "machine");
  free(f.text);
  return f.there;
}

// Moves what is worth keeping to the verdict, in its order.
static void keep_records(const StudyPlan *p, const StudyCell *cell, int repeat, PrintedRecords *all, StudyVerdict *v) {
  bool *kept = xcalloc((size_t)all->n + 1, sizeof *kept), any = false, machine = false;
  for (int m = 0; m < p->num_measures; m++) {
    if (p->measures[m].computed) continue;
    const int i = study_measure_record(p, m, cell, repeat, all->records, all->n);
    if (i >= 0) kept[i] = true;
    any |= i >= 0;
  }
  for (int i = all->n - 1; i >= 0 && !any; i--) kept[i] = any = study_record_is_of(p, cell, all->records[i]);
  if (!any && all->n) kept[all->n - 1] = true;
  for (int i = 0; i < all->n; i++) machine |= kept[i] && has_machine(all->records[i]);
  for (int i = all->n - 1; i >= 0 && !machine; i--) kept[i] |= machine = has_machine(all->records[i]);
  v->records = xcalloc((size_t)all->n, sizeof *v->records);
  for (int i = 0; i < all->n; i++) {
    if (kept[i])
      v->records[v->num_records++] = all->records[i];
    else
      free(all->records[i]);
  }
  free(all->records);
  free(kept);
}

// ---- what was said --------------------------------------------------------------------------------------------------

// The last lines that have something in them, newest first, cleaned; how many.
static int last_lines(const char *path, char lines[LAST_LINES][LONGEST + 1]) {
  size_t size;
  int n = 0;
  char *text = file_read(path, &size, NULL);
  const char *end = text + (text ? size : 0);
  while (text && n < LAST_LINES && end > text) {
    const char *begin = end;
    while (begin > text && begin[-1] != '\n' && begin[-1] != '\r') begin--;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    snprintf(lines[n], LONGEST + 1, "%.*s", (int)MIN(end - begin, LONGEST), begin);
    text_clean(lines[n]);
    n += *lines[n] != '\0';
    end = begin - (begin > text);
  }
  free(text);
  return n;
}

char *study_last_line(const char *out, const char *errors) {
  char lines[LAST_LINES][LONGEST + 1];
  if (last_lines(errors, lines) || last_lines(out, lines)) return xstrdup(lines[0]);
  return xstrdup("it printed nothing");
}

// The line by which ours and others' programs say that memory was out; NULL: none does. malloc'ed.
static char *memory_line(const char *path) {
  static const char *const phrases[] = {"out of memory", "too little memory"};
  char lines[LAST_LINES][LONGEST + 1], lower[LONGEST + 1];
  const int n = last_lines(path, lines);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k <= LONGEST; k++) lower[k] = (char)tolower((unsigned char)lines[i][k]);
    for (int k = 0; k < COUNT(phrases); k++)
      if (strstr(lower, phrases[k])) return xstrdup(lines[i]);
  }
  return NULL;
}

// Of a record that says so and has not what a measure reads.
static char *memory_record(const StudyPlan *p, const StudyCell *cell, const StudyVerdict *v) {
  for (int i = v->num_records - 1; i >= 0; i--) {
    if (!study_record_is_of(p, cell, v->records[i])) continue;
    const size_t size = strlen(v->records[i]);
    StudyFound said = study_find(v->records[i], size, "out_of_memory"), why = study_find(v->records[i], size, "why");
    free(said.text);
    if (said.number > 0) return why.text ? why.text : xstrdup("the record says so");
    free(why.text);
  }
  return NULL;
}

// ---- the verdict ----------------------------------------------------------------------------------------------------

static char *why_no_value(const StudyPlan *p, const StudyCell *cell, int repeat, const StudyVerdict *v, double seconds,
                          const char *unread) {
  Err why;
  for (int m = 0; m < p->num_measures; m++) {
    const StudyMeasure *measure = &p->measures[m];
    if (measure->computed || !(measure->of >> cell->value[STUDY_COMMAND] & 1)) continue;
    if (isnan(study_measure_value(p, m, cell, repeat, v->records, v->num_records, seconds, &why)))
      return !v->num_records && unread ? xasprintf("no JSON is printed: %s", unread) : xstrdup(why.msg);
  }
  return NULL;
}

char *study_why_failed(const StudyOutcome *o, const char *out, const char *errors) {
  char *line = study_last_line(out, errors), *why;
  if (o->late)
    why = xasprintf("ended after %.3g s, as timeout says: %s", o->seconds, line);
  else if (o->signal)
    why = xasprintf("signal %d (%s)%s: %s", o->signal, strsignal(o->signal),
                    o->signal == 9 ? ", by which the system ends what takes too much memory" : "", line);
  else
    why = xasprintf("exit status %d: %s", o->exit, line);
  free(line);
  return why;
}

StudyVerdict study_verdict(const StudyPlan *p, const StudyCell *cell, int repeat, const StudyOutcome *o,
                           bool sweep_failed, const char *out, const char *errors) {
  StudyVerdict v = {.state = STUDY_OK};
  PrintedRecords all = read_records(out);
  keep_records(p, cell, repeat, &all, &v);
  const bool ended_well = !o->exit && !o->signal && !o->late;
  char *missing = why_no_value(p, cell, repeat, &v, sweep_failed ? NAN : o->seconds, all.unread), *memory = NULL;
  free(all.unread);
  if ((ended_well || sweep_failed) && !missing) return v;
  memory = memory_record(p, cell, &v);
  if (!memory && !ended_well && !o->late && !sweep_failed) memory = memory_line(errors);
  v.state = memory ? STUDY_OUT_OF_MEMORY : ended_well ? STUDY_NO_VALUE : STUDY_FAILED;
  v.why = memory ? memory : ended_well ? xstrdup(missing) : study_why_failed(o, out, errors);
  free(missing);
  return v;
}

void study_verdict_free(StudyVerdict *v) {
  for (int i = 0; i < v->num_records; i++) free(v->records[i]);
  free(v->records);
  free(v->why);
  *v = (StudyVerdict){0};
}
