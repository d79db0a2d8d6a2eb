#include "lab/study/expression.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { NAME = 64, MAX_NESTED = 64 };

typedef struct ExpressionReader {
  const StudyPlan *plan;
  StudyExpression *out;
  int measure;    // whose value this is
  const char *at; // the next character
  int nested, held;
  Err *err;
} ExpressionReader;

static bool read_sum(ExpressionReader *r);

static void skip_blanks(ExpressionReader *r) {
  while (isspace((unsigned char)*r->at)) r->at++;
}

static bool take(ExpressionReader *r, char c) {
  skip_blanks(r);
  if (*r->at != c) return false;
  r->at++;
  return true;
}

// `change`: of how many values the stack holds.
static void add(ExpressionReader *r, StudyTerm term, int change) {
  StudyExpression *e = r->out;
  array_reserve((void **)&e->terms, &e->cap, (size_t)e->num_terms + 1, sizeof *e->terms);
  e->terms[e->num_terms++] = term;
  r->held += change;
  e->depth = MAX(e->depth, r->held);
}

static bool read_name(ExpressionReader *r, char name[NAME]) {
  skip_blanks(r);
  size_t n = 0;
  while (isalnum((unsigned char)r->at[n]) || r->at[n] == '_') n++;
  if (n == 0 || n >= NAME || !isalpha((unsigned char)*r->at))
    return err_set(r->err, "expected a name at \"%.40s\"", r->at);
  snprintf(name, NAME, "%.*s", (int)n, r->at);
  r->at += n;
  return true;
}

// "[gpus=1]" behind a measure.
static bool read_place(ExpressionReader *r, StudyTerm *term) {
  if (!take(r, '[')) return true;
  const char *end = strchr(r->at, ']');
  if (!end) return err_set(r->err, "a [ that is not closed");
  char *text = xasprintf("%.*s", (int)(end - r->at), r->at);
  r->at = end + 1;
  term->at = xcalloc(1, sizeof *term->at);
  bool ok = study_conditions_read_one(term->at, r->plan, text, r->err);
  free(text);
  return ok;
}

// A measure that is computed may only use what stands above it, so that none is its own part.
static bool find_measure(ExpressionReader *r, const char *name, bool read_alone, int *index) {
  *index = study_measure_find(r->plan, name);
  if (*index < 0) return err_set(r->err, "there is no measure %s", name);
  if (*index >= r->measure) return err_set(r->err, "the measure %s has to stand above", name);
  if (read_alone && r->plan->measures[*index].computed)
    return err_set(r->err, "%s is computed; min, max and runs are of measures that are read", name);
  return true;
}

static bool read_function(ExpressionReader *r, StudyTermKind kind) {
  char name[NAME];
  StudyTerm term = {.kind = kind};
  if (!read_name(r, name) || !find_measure(r, name, true, &term.index)) return false;
  bool ok = read_place(r, &term);
  add(r, term, 1);
  return ok && (take(r, ')') || err_set(r->err, "a ( that is not closed"));
}

static bool read_published(ExpressionReader *r, const char *block) {
  char name[NAME];
  StudyTerm term = {.kind = TERM_PUBLISHED, .block = study_published_find(r->plan, block)};
  if (term.block < 0) return err_set(r->err, "there is no [published %s]", block);
  if (!read_name(r, name)) return false;
  term.index = study_measure_find(r->plan, name);
  if (term.index < 0) return err_set(r->err, "there is no measure %s", name);
  add(r, term, 1);
  return true;
}

static bool read_given(ExpressionReader *r, const StudyGiven *given) {
  char *end;
  double number = strtod(given->value, &end);
  if (end == given->value || *end)
    return err_set(r->err, "%s is \"%s\", which is no number", given->name, given->value);
  add(r, (StudyTerm){.kind = TERM_NUMBER, .number = number}, 1);
  return true;
}

static bool read_setting(ExpressionReader *r, int index) {
  const StudySetting *s = &r->plan->settings[index];
  for (int i = 0; i < s->num_values; i++)
    if (!(s->values[i].number == s->values[i].number))
      return err_set(r->err, "the setting %s has the value %s, which is no number", s->name, s->values[i].name);
  add(r, (StudyTerm){.kind = TERM_SETTING, .index = index}, 1);
  return true;
}

static bool read_named(ExpressionReader *r) {
  static const struct {
    const char *name;
    StudyTermKind kind;
  } functions[] = {{"min", TERM_LEAST}, {"max", TERM_MOST}, {"runs", TERM_RUNS}};
  char name[NAME];
  if (!read_name(r, name)) return false;
  if (take(r, '(')) {
    for (int i = 0; i < COUNT(functions); i++)
      if (!strcmp(functions[i].name, name)) return read_function(r, functions[i].kind);
    return err_set(r->err, "there is no %s(…); there are min, max and runs", name);
  }
  if (take(r, '.')) return read_published(r, name);
  const int setting = study_setting_find(r->plan, name);
  if (setting >= 0) return read_setting(r, setting);
  const StudyGiven *given = study_given_find(r->plan, name);
  if (given) return read_given(r, given);
  StudyTerm term = {.kind = TERM_MEASURE};
  if (!find_measure(r, name, false, &term.index)) return false;
  bool ok = read_place(r, &term);
  add(r, term, 1);
  return ok;
}

static bool read_factor(ExpressionReader *r) {
  if (++r->nested > MAX_NESTED) return err_set(r->err, "more than %d brackets and signs within each other", MAX_NESTED);
  bool ok;
  if (take(r, '-')) {
    ok = read_factor(r);
    add(r, (StudyTerm){.kind = TERM_NEGATE}, 0);
  } else if (take(r, '(')) {
    ok = read_sum(r) && (take(r, ')') || err_set(r->err, "a ( that is not closed"));
  } else if (isdigit((unsigned char)*r->at) || *r->at == '.') {
    char *end;
    double number = strtod(r->at, &end);
    ok = end > r->at || err_set(r->err, "expected a number at \"%.40s\"", r->at);
    r->at = end;
    add(r, (StudyTerm){.kind = TERM_NUMBER, .number = number}, 1);
  } else {
    ok = read_named(r);
  }
  r->nested--;
  return ok;
}

static bool read_product(ExpressionReader *r) {
  if (!read_factor(r)) return false;
  for (;;) {
    StudyTermKind kind = take(r, '*') ? TERM_MULTIPLY : take(r, '/') ? TERM_DIVIDE : TERM_NUMBER;
    if (kind == TERM_NUMBER) return true;
    if (!read_factor(r)) return false;
    add(r, (StudyTerm){.kind = kind}, -1);
  }
}

static bool read_sum(ExpressionReader *r) {
  if (!read_product(r)) return false;
  for (;;) {
    StudyTermKind kind = take(r, '+') ? TERM_ADD : take(r, '-') ? TERM_SUBTRACT : TERM_NUMBER;
    if (kind == TERM_NUMBER) return true;
    if (!read_product(r)) return false;
    add(r, (StudyTerm){.kind = kind}, -1);
  }
}

bool study_expression_read(StudyExpression *e, const StudyPlan *p, int measure, const char *text, Err *err) {
  ExpressionReader r = {.plan = p, .out = e, .measure = measure, .at = text, .err = err};
  if (!read_sum(&r)) return false;
  skip_blanks(&r);
  return !*r.at || err_set(err, "expected + - * / or the end at \"%.40s\"", r.at);
}

void study_expression_free(StudyExpression *e) {
  for (int i = 0; i < e->num_terms; i++) free(e->terms[i].at);
  free(e->terms);
  *e = (StudyExpression){0};
}
