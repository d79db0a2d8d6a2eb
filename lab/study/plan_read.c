// A plan from its file: head, settings, commands, measures; views are lab/study/views.c's.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "lab/study/expression.h"
#include "lab/study/plan.h"
#include "lab/study/template.h"

// A name for one thing: expressions and placeholders know it alone.
static bool name_is_free(StudyPlan *p, const char *name, int line, Err *err) {
  static const char *const kept[] = {"command", "repeat", "out", "study"};
  for (int i = 0; i < COUNT(kept); i++)
    if (!strcmp(kept[i], name)) return study_fail(&p->text, line, err, "%s has a meaning already; another name", name);
  bool taken = study_setting_find(p, name) >= 0 || study_given_find(p, name) || study_measure_find(p, name) >= 0;
  return !taken || study_fail(&p->text, line, err, "%s is the name of something else already", name);
}

// ---- lines ----------------------------------------------------------------------------------------------------------

static const char *text_of(const StudySection *s, const char *key, const char *otherwise) {
  const StudyLine *l = study_line(s, key);
  return l && *l->value ? l->value : otherwise;
}

static bool read_number(StudyPlan *p, const StudySection *s, const char *key, double least, double *value, Err *err) {
  const StudyLine *l = study_line(s, key);
  if (!l) return true;
  char *end;
  double number = strtod(l->value, &end);
  if (end == l->value || *end || !(number >= least) || !isfinite(number))
    return study_fail(&p->text, l->line, err, "%s takes a number of at least %g, not \"%.100s\"", key, least, l->value);
  *value = number;
  return true;
}

static bool read_whole(StudyPlan *p, const StudySection *s, const char *key, double least, double most, double *value,
                       Err *err) {
  if (!read_number(p, s, key, least, value, err)) return false;
  if (*value == floor(*value) && *value <= most) return true;
  return study_fail(&p->text, study_line(s, key)->line, err, "%s takes a whole number of at most %.0f", key, most);
}

static bool read_head(StudyPlan *p, const StudySection *s, Err *err) {
  double repeats = 3, fewest = 3, seed = 1;
  p->title = text_of(s, "title", NULL);
  p->about = text_of(s, "about", NULL);
  p->timeout = 86400;
  if (!p->title) return study_fail(&p->text, 1, err, "a plan begins with a line \"title: …\"");
  if (!read_whole(p, s, "fewest", 1, 1000, &fewest, err) || !read_whole(p, s, "repeats", 1, 1000, &repeats, err) ||
      !read_whole(p, s, "seed", 0, 1e15, &seed, err) || !read_number(p, s, "timeout", 0.001, &p->timeout, err))
    return false;
  const StudyLine *few = study_line(s, "repeats") ? study_line(s, "repeats") : study_line(s, "fewest");
  if (repeats < fewest)
    return study_fail(&p->text, few->line, err,
                      "%g repeats are too few to tell an error by; at least %g, or a line \"fewest: %g\"", repeats,
                      fewest, repeats);
  p->repeats = (int)repeats;
  p->seed = (int64_t)seed;
  return true;
}

static bool read_givens(StudyPlan *p, const StudySection *s, Err *err) {
  for (int i = 0; i < s->num_lines; i++) {
    if (!name_is_free(p, s->lines[i].key, s->lines[i].line, err)) return false;
    p->givens[p->num_givens++] = (StudyGiven){s->lines[i].key, xstrdup(s->lines[i].value)};
  }
  return true;
}

// Without the "…" around it, in place. False: it is not closed.
static bool unquote(char **text) {
  const size_t n = strlen(*text);
  if (**text != '"') return true;
  if (n < 2 || (*text)[n - 1] != '"') return false;
  (*text)[n - 1] = '\0';
  (*text)++;
  return true;
}

static bool replace_givens(StudyPlan *p, const char *set, Err *err) {
  if (!set) return true;
  char *copy = xstrdup(set), *rest = copy, *piece;
  bool ok = true;
  while (ok && (piece = study_split(&rest, ' '))) {
    char *value = strchr(piece, '=');
    if (!*piece) continue;
    if (value) *value++ = '\0';
    const StudyGiven *given = value ? study_given_find(p, piece) : NULL;
    if (!value) {
      ok = err_set(err, "--set takes NAME=VALUE, not \"%.100s\"", piece);
    } else if (!given) {
      const char *names[STUDY_MAX_SETTINGS + 1] = {0};
      for (int i = 0; i < MIN(p->num_givens, STUDY_MAX_SETTINGS); i++) names[i] = p->givens[i].name;
      ok = err_set(err, "--set %.100s: %s has no [given] of that name%s", piece, p->text.path,
                   study_meant(piece, names));
    } else if (!unquote(&value)) {
      ok = err_set(err, "--set %.100s: a \" that is not closed in %.100s", piece, value);
    } else {
      StudyGiven *g = &p->givens[given - p->givens];
      free(g->value);
      g->value = xstrdup(value);
    }
  }
  free(copy);
  return ok;
}

// "AMP = --amp", or a name that is its own text.
static bool read_value(StudyPlan *p, StudySetting *s, char *piece, int line, Err *err) {
  char *text = strchr(piece, '='), *name = study_split(&(char *){piece}, '=');
  if (text) text = study_split(&(char *){text + 1}, '\0');
  if (!text) text = name;
  if (!unquote(&text)) return study_fail(&p->text, line, err, "a \" that is not closed in %s", text);
  if (!*name) return study_fail(&p->text, line, err, "a value is missing; they are separated by commas");
  if (strpbrk(name, " \t\"[]=")) // conditions could not name it
    return study_fail(&p->text, line, err,
                      "\"%.100s\": the name of a value has no blanks, quotes or brackets; NAME = TEXT gives it a text",
                      name);
  if (study_value_find(s, name) >= 0) return study_fail(&p->text, line, err, "the value %s is there twice", name);
  if (s->num_values == STUDY_MAX_VALUES)
    return study_fail(&p->text, line, err, "more than %d values", STUDY_MAX_VALUES);
  study_value_add(s, name, text);
  return true;
}

static bool read_setting(StudyPlan *p, const StudySection *s, Err *err) {
  if (!name_is_free(p, s->name, s->line, err)) return false;
  if (p->num_settings == STUDY_MAX_SETTINGS)
    return study_fail(&p->text, s->line, err, "more than %d settings", STUDY_MAX_SETTINGS - 1);
  StudySetting *out = &p->settings[p->num_settings++];
  *out = (StudySetting){s->name, text_of(s, "label", s->name), text_of(s, "unit", NULL), .line = s->line};
  const StudyLine *values = study_line(s, "values");
  out->path = text_of(s, "read", NULL);
  if (!values == !out->path)
    return study_fail(&p->text, s->line, err, "the setting %s needs a line \"values: …\"%s", s->name,
                      values ? " or one \"read: PATH\", not both" : ", or \"read: PATH\" where it is found in records");
  if (!values) return true;
  char *copy = xstrdup(values->value), *rest = copy, *piece;
  bool ok = true;
  while (ok && (piece = study_split(&rest, ','))) ok = read_value(p, out, piece, values->line, err);
  free(copy);
  return ok;
}

static bool read_command(StudyPlan *p, const StudySection *s, Err *err) {
  if (p->num_commands == STUDY_MAX_COMMANDS)
    return study_fail(&p->text, s->line, err, "more than %d commands", STUDY_MAX_COMMANDS);
  StudyCommand *c = &p->commands[p->num_commands++];
  *c = (StudyCommand){s->name, text_of(s, "label", s->name), text_of(s, "run", NULL), text_of(s, "prepare", NULL),
                      .timeout = p->timeout};
  c->line = study_line(s, "run") ? study_line(s, "run")->line : s->line;
  if (!c->run) return study_fail(&p->text, s->line, err, "the command %s needs a line \"run: …\"", s->name);
  study_value_add(&p->settings[STUDY_COMMAND], s->name, c->label);
  return read_number(p, s, "timeout", 0.001, &c->timeout, err);
}

// Which settings a command has; every placeholder is something's name.
static bool check_templates(StudyPlan *p, Err *err) {
  Err why;
  for (int i = 0; i < p->num_commands; i++) {
    StudyCommand *c = &p->commands[i];
    c->uses[STUDY_COMMAND] = true;
    if (!study_template_check(p, c->run, c->uses, &why)) return study_fail(&p->text, c->line, err, "%s", why.msg);
    bool more[STUDY_MAX_SETTINGS];
    memcpy(more, c->uses, sizeof more);
    if (c->prepare && !study_template_check(p, c->prepare, more, &why))
      return study_fail(&p->text, c->line, err, "prepare: %s", why.msg);
    if (memcmp(more, c->uses, sizeof more))
      return study_fail(&p->text, c->line, err, "prepare has a setting that does not stand in run");
    for (int s = 1; s < p->num_settings; s++) c->uses[s] |= p->settings[s].path != NULL; // found of all
  }
  for (int s = 1; s < p->num_settings; s++) {
    bool used = false;
    for (int i = 0; i < p->num_commands; i++) used |= p->commands[i].uses[s];
    if (!used)
      return study_fail(&p->text, p->settings[s].line, err, "no command has {%s} in its run", p->settings[s].name);
  }
  return true;
}

// The command finds the values between commas, and a record tells which of them it is of.
static bool check_swept(const StudyPlan *p, const StudySetting *s, int line, Err *err) {
  for (int i = 0; i < s->num_values; i++) {
    const StudyValue *a = &s->values[i];
    if (!*a->text || strchr(a->text, ','))
      return study_fail(&p->text, line, err, "sweep: the text of %s is %s, where values stand between commas", a->name,
                        *a->text ? "several" : "empty");
    for (int k = 0; k < s->num_values; k++) {
      const StudyValue *b = &s->values[k];
      if (k != i && (study_same_value(a->text, b->text) || study_same_value(a->name, b->text) ||
                     study_same_value(a->name, b->name)))
        return study_fail(&p->text, line, err,
                          "sweep: a record of %s could be of %s, too; the text of that is \"%.100s\"", a->name, b->name,
                          b->text);
    }
  }
  return true;
}

static bool read_sweep(StudyPlan *p, const StudySection *s, Err *err) {
  StudyCommand *c = &p->commands[study_value_find(&p->settings[STUDY_COMMAND], s->name)];
  const StudyLine *l = study_line(s, "sweep");
  if (!l) return true;
  const int setting = study_setting_find(p, l->value);
  if (setting < 1 || !c->uses[setting] || p->settings[setting].path)
    return study_fail(&p->text, l->line, err, "sweep takes a setting that stands in run, not \"%.100s\"", l->value);
  c->sweep = setting;
  return check_swept(p, &p->settings[setting], l->line, err);
}

// A product of settings that nobody means to run would take all memory before anything else could refuse it.
static bool check_cells(const StudyPlan *p, Err *err) {
  for (int i = 0; i < p->num_commands; i++) {
    double cells = 1;
    for (int s = 1; s < p->num_settings; s++)
      if (p->commands[i].uses[s] && !p->settings[s].path) cells *= p->settings[s].num_values;
    if (cells > STUDY_MOST_CELLS)
      return study_fail(&p->text, p->commands[i].line, err, "%.0f combinations of settings; at most %d", cells,
                        STUDY_MOST_CELLS);
  }
  return true;
}

static bool read_skips(StudyPlan *p, const StudySection *s, Err *err) {
  Err why;
  for (int i = 0; i < s->num_lines; i++)
    if (!study_conditions_read(&p->skips[p->num_skips++], p, s->lines[i].value, &why))
      return study_fail(&p->text, s->lines[i].line, err, "%s", why.msg);
  return true;
}

// ---- measures -------------------------------------------------------------------------------------------------------

static bool read_where(StudyPlan *p, StudyMeasure *m, const StudyLine *l, Err *err) {
  Err why;
  bool uses[STUDY_MAX_SETTINGS] = {0};
  if (!l) return true;
  if (!study_template_check(p, l->value, uses, &why)) return study_fail(&p->text, l->line, err, "%s", why.msg);
  char *rest = l->value, *piece;
  while ((piece = study_split(&rest, ' '))) {
    char *value = strchr(piece, '=');
    if (!*piece) continue;
    if (!value) return study_fail(&p->text, l->line, err, "where takes MEMBER=VALUE, not \"%.100s\"", piece);
    *value++ = '\0';
    array_reserve((void **)&m->where, &m->cap, (size_t)m->num_where + 1, sizeof *m->where);
    m->where[m->num_where++] = (StudyMember){piece, value};
  }
  return true;
}

static bool read_of(StudyPlan *p, StudyMeasure *m, const StudyLine *l, Err *err) {
  m->of = ~0ull;
  if (!l) return true;
  m->of = 0;
  char *rest = l->value, *piece;
  while ((piece = study_split(&rest, ','))) {
    int i = study_value_find(&p->settings[STUDY_COMMAND], piece);
    if (i < 0) return study_fail(&p->text, l->line, err, "there is no command \"%.100s\"", piece);
    m->of |= 1ull << i;
  }
  return true;
}

static bool read_paths(StudyPlan *p, StudyMeasure *m, const StudyLine *l, Err *err) {
  char *rest = l->value, *piece;
  while ((piece = study_split(&rest, ','))) {
    if (!*piece || m->num_paths == STUDY_MAX_PATHS)
      return study_fail(&p->text, l->line, err, "read takes one to %d paths", STUDY_MAX_PATHS);
    if (*piece == '@' && strcmp(piece, "@seconds"))
      return study_fail(&p->text, l->line, err, "there is no %.100s; @seconds is how long the command took", piece);
    m->paths[m->num_paths++] = piece;
  }
  return true;
}

static bool read_measure(StudyPlan *p, const StudySection *s, Err *err) {
  if (!name_is_free(p, s->name, s->line, err)) return false;
  StudyMeasure *m = &p->measures[p->num_measures++];
  *m = (StudyMeasure){s->name, text_of(s, "label", s->name), text_of(s, "unit", NULL), .digits = -1, .line = s->line};
  const StudyLine *read = study_line(s, "read"), *value = study_line(s, "value"), *better = study_line(s, "better");
  if (!read == !value)
    return study_fail(&p->text, s->line, err,
                      "the measure %s needs a line \"read: PATH\" or one \"value: EXPRESSION\"%s", s->name,
                      read ? ", not both" : "");
  m->computed = value;
  m->line = read ? read->line : value->line;
  const StudyLine *where = study_line(s, "where");
  if (where && value) return study_fail(&p->text, where->line, err, "where belongs to measures that are read");
  if (better) {
    m->better = !strcmp(better->value, "higher") ? 1 : !strcmp(better->value, "lower") ? -1 : 0;
    if (!m->better) return study_fail(&p->text, better->line, err, "better takes higher or lower");
  }
  double digits = -1;
  if (!read_whole(p, s, "digits", 0, 15, &digits, err)) return false;
  m->digits = (int)digits;
  return read_of(p, m, study_line(s, "of"), err) && read_where(p, m, where, err) &&
         (value || read_paths(p, m, read, err));
}

// When all names are known: of the published figures, too.
static bool read_expressions(StudyPlan *p, Err *err) {
  Err why;
  for (int i = 0, m = 0; i < p->text.num_sections; i++) {
    const StudySection *s = &p->text.sections[i];
    if (strcmp(s->kind, "measure")) continue;
    const StudyLine *l = study_line(s, "value");
    if (l && !study_expression_read(&p->measures[m].value, p, m, l->value, &why))
      return study_fail(&p->text, l->line, err, "%s", why.msg);
    m++;
  }
  return true;
}

// ---- all of it ------------------------------------------------------------------------------------------------------

typedef bool ReadSection(StudyPlan *p, const StudySection *s, Err *err);

static bool read_each(StudyPlan *p, const char *kind, ReadSection *read, Err *err) {
  for (int i = 0; i < p->text.num_sections; i++)
    if (!strcmp(p->text.sections[i].kind, kind) && !read(p, &p->text.sections[i], err)) return false;
  return true;
}

static bool name_published(StudyPlan *p, const StudySection *s, Err *err) {
  (void)err;
  p->published[p->num_published++] = (StudyPublished){.name = s->name, .label = text_of(s, "label", s->name)};
  return true;
}

// Room for whatever the sections and their lines may be.
static void take_room(StudyPlan *p) {
  size_t most = 1;
  for (int i = 0; i < p->text.num_sections; i++) most += 1 + (size_t)p->text.sections[i].num_lines;
  p->givens = xcalloc(most, sizeof *p->givens);
  p->settings = xcalloc(STUDY_MAX_SETTINGS, sizeof *p->settings);
  p->commands = xcalloc(STUDY_MAX_COMMANDS, sizeof *p->commands);
  p->measures = xcalloc(most, sizeof *p->measures);
  p->tables = xcalloc(most, sizeof *p->tables);
  p->plots = xcalloc(most, sizeof *p->plots);
  p->published = xcalloc(most, sizeof *p->published);
  p->skips = xcalloc(most, sizeof *p->skips);
}

bool study_plan_read(StudyPlan *p, const char *path, const char *set, Err *err) {
  *p = (StudyPlan){0};
  bool ok = study_text_read(&p->text, path, err);
  take_room(p);
  if (!ok) return false;
  p->settings[p->num_settings++] = (StudySetting){.name = "command", .label = "command", .line = 1};
  if (!read_each(p, "plan", read_head, err) || !read_each(p, "given", read_givens, err) ||
      !replace_givens(p, set, err) || !read_each(p, "setting", read_setting, err) ||
      !read_each(p, "command", read_command, err))
    return false;
  if (!p->num_commands) return study_fail(&p->text, 1, err, "the plan has no [command NAME]");
  if (!check_templates(p, err) || !read_each(p, "command", read_sweep, err) || !check_cells(p, err) ||
      !read_each(p, "skip", read_skips, err) || !read_each(p, "measure", read_measure, err) ||
      !read_each(p, "published", name_published, err))
    return false;
  if (!p->num_measures) return study_fail(&p->text, 1, err, "the plan has no [measure NAME]");
  return read_expressions(p, err) && study_views_read(p, err);
}

void study_plan_free(StudyPlan *p) {
  study_views_free(p);
  for (int i = 0; i < p->num_settings; i++) {
    for (int v = 0; v < p->settings[i].num_values; v++) {
      free(p->settings[i].values[v].name);
      free(p->settings[i].values[v].text);
    }
    free(p->settings[i].values);
  }
  for (int i = 0; i < p->num_measures; i++) {
    study_expression_free(&p->measures[i].value);
    free(p->measures[i].where);
  }
  for (int i = 0; i < p->num_givens; i++) free(p->givens[i].value);
  free(p->givens);
  free(p->settings);
  free(p->commands);
  free(p->measures);
  free(p->tables);
  free(p->plots);
  free(p->published);
  free(p->skips);
  study_text_free(&p->text);
}
