// Of a plan: tables, plots and the figures of others.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "lab/study/plan.h"

static const char *value_of(const StudySection *s, const char *key, const char *otherwise) {
  const StudyLine *l = study_line(s, key);
  return l && *l->value ? l->value : otherwise;
}

static bool find_setting(const StudyPlan *p, const char *name, int line, int *index, Err *err) {
  *index = study_setting_find(p, name);
  if (*index >= 0) return true;
  const char *names[STUDY_MAX_SETTINGS + 1] = {0};
  for (int i = 0; i < p->num_settings; i++) names[i] = p->settings[i].name;
  return study_fail(&p->text, line, err, "there is no setting %.100s%s", name, study_meant(name, names));
}

static bool find_measure(const StudyPlan *p, const char *name, int line, int *index, Err *err) {
  *index = study_measure_find(p, name);
  return *index >= 0 || study_fail(&p->text, line, err, "there is no measure %.100s", name);
}

static bool read_settings(const StudyPlan *p, const StudyLine *l, int list[STUDY_MAX_SETTINGS], int *n, Err *err) {
  char *rest = l ? l->value : NULL, *name;
  while ((name = study_split(&rest, ','))) {
    int s;
    if (!find_setting(p, name, l->line, &s, err)) return false;
    for (int i = 0; i < *n; i++)
      if (list[i] == s) return study_fail(&p->text, l->line, err, "%s is there twice", name);
    list[(*n)++] = s;
  }
  return true;
}

// ---- tables ---------------------------------------------------------------------------------------------------------

static StudyShown *add_shown(StudyShows *s, int measure) {
  array_reserve((void **)&s->items, &s->cap, (size_t)s->n + 1, sizeof *s->items);
  s->items[s->n] = (StudyShown){.measure = measure};
  return &s->items[s->n++];
}

// "img_s, speedup[precision=AMP]": a comma within brackets stands between values.
static bool read_shows(const StudyPlan *p, StudyShows *s, const StudyLine *l, Err *err) {
  Err why;
  for (char *at = l->value; at;) {
    char *open = at + strcspn(at, "[,"), *close = *open == '[' ? strchr(open, ']') : NULL, *conditions = NULL;
    if (*open == '[' && !close) return study_fail(&p->text, l->line, err, "a [ that is not closed");
    char *comma = strchr(close ? close : open, ',');
    if (comma) *comma = '\0';
    if (close) {
      *open = '\0';
      *close = '\0';
      conditions = open + 1;
    }
    char *name = study_split(&(char *){at}, ',');
    int measure;
    if (!find_measure(p, name, l->line, &measure, err)) return false;
    StudyShown *shown = add_shown(s, measure);
    if (conditions && !study_conditions_read_one(&shown->at, p, conditions, &why))
      return study_fail(&p->text, l->line, err, "%s", why.msg);
    at = comma ? comma + 1 : NULL;
  }
  return true;
}

// Whether a measure says what is better; of all, where none is listed.
static bool any_better(const StudyPlan *p, const StudyShows *s) {
  bool any = false;
  for (int i = 0; i < s->n; i++) any |= p->measures[s->items[i].measure].better != 0;
  for (int m = 0; !s->n && m < p->num_measures; m++) any |= p->measures[m].better != 0;
  return any;
}

static bool read_table(StudyPlan *p, const StudySection *s, Err *err) {
  StudyTable *t = &p->tables[p->num_tables++];
  *t = (StudyTable){.name = s->name, .title = value_of(s, "title", s->name)};
  const StudyLine *columns = study_line(s, "columns"), *show = study_line(s, "show");
  if (!read_settings(p, study_line(s, "rows"), t->rows, &t->num_rows, err) ||
      !read_settings(p, columns, t->columns, &t->num_columns, err) ||
      !read_settings(p, study_line(s, "best"), t->best, &t->num_best, err))
    return false;
  for (int i = 0; i < t->num_rows; i++)
    for (int k = 0; k < t->num_columns; k++)
      if (t->rows[i] == t->columns[k])
        return study_fail(&p->text, columns->line, err, "%s is in rows already", p->settings[t->rows[i]].name);
  if (show && !read_shows(p, &t->shows, show, err)) return false;
  return !t->num_best || any_better(p, &t->shows) ||
         study_fail(&p->text, study_line(s, "best")->line, err,
                    "best: none of the measures shown has a line \"better: higher\" or \"better: lower\"");
}

// What is not said: all settings make rows, all measures are shown.
static void complete_table(const StudyPlan *p, StudyTable *t, bool rows) {
  for (int s = p->num_commands > 1 ? 0 : 1; rows && s < p->num_settings; s++) {
    bool column = false;
    for (int i = 0; i < t->num_columns; i++) column |= t->columns[i] == s;
    if (!column) t->rows[t->num_rows++] = s;
  }
  for (int m = 0, all = !t->shows.n; all && m < p->num_measures; m++) add_shown(&t->shows, m);
}

// ---- plots ----------------------------------------------------------------------------------------------------------

static bool read_plot(StudyPlan *p, const StudySection *s, Err *err) {
  StudyPlot *out = &p->plots[p->num_plots++];
  *out = (StudyPlot){.name = s->name, .title = value_of(s, "title", s->name), .panels = -1};
  const StudyLine *x = study_line(s, "x"), *y = study_line(s, "y"), *panels = study_line(s, "panels"),
                  *log = study_line(s, "log"), *bars = study_line(s, "bars");
  if (!x || !y)
    return study_fail(&p->text, s->line, err, "the plot %s needs lines \"x: SETTING\" and \"y: MEASURE\"", s->name);
  if (!find_setting(p, x->value, x->line, &out->x, err)) return false;
  if (panels && !find_setting(p, panels->value, panels->line, &out->panels, err)) return false;
  if (out->panels == out->x) return study_fail(&p->text, panels->line, err, "%s is x already", panels->value);
  if (!read_shows(p, &out->y, y, err)) return false;
  if (log && strspn(log->value, "xy ,") != strlen(log->value))
    return study_fail(&p->text, log->line, err, "log takes x, y or x y");
  out->log_x = log && strchr(log->value, 'x');
  out->log_y = log && strchr(log->value, 'y');
  out->bars = bars && !strcmp(bars->value, "yes");
  if (bars && !out->bars && strcmp(bars->value, "no"))
    return study_fail(&p->text, bars->line, err, "bars takes yes or no");
  return true;
}

// ---- figures of others ----------------------------------------------------------------------------------------------

typedef struct PublishedColumn {
  int setting, measure; // one of them, the other -1
} PublishedColumn;

static bool read_figure(const StudyPlan *p, StudyPublishedRow *row, PublishedColumn c, char *piece, int line,
                        Err *err) {
  if (c.setting >= 0) {
    const StudySetting *s = &p->settings[c.setting];
    const int v = study_value_find(s, piece);
    row->cell.value[c.setting] = v;
    return v >= 0 || study_fail(&p->text, line, err, "the setting %s has no value %.100s", s->name, piece);
  }
  if (!strcmp(piece, "-")) return true;
  char *end;
  row->figures[c.measure] = piece;
  return (isfinite(strtod(piece, &end)) && end > piece && !*end) ||
         study_fail(&p->text, line, err, "expected a number or -, not \"%.100s\"", piece);
}

static bool read_row(const StudyPlan *p, StudyPublished *b, const PublishedColumn *columns, int n, const StudyLine *l,
                     Err *err) {
  array_reserve((void **)&b->rows, &b->cap, (size_t)b->num_rows + 1, sizeof *b->rows);
  StudyPublishedRow *row = &b->rows[b->num_rows++];
  row->figures = xcalloc((size_t)p->num_measures, sizeof *row->figures);
  for (int s = 0; s < STUDY_MAX_SETTINGS; s++) row->cell.value[s] = -1;
  char *rest = l->value, *piece;
  int i = 0;
  for (; (piece = study_split(&rest, ',')) && i < n; i++)
    if (!read_figure(p, row, columns[i], piece, l->line, err)) return false;
  return (!piece && i == n) || study_fail(&p->text, l->line, err, "a row of %d columns has as many values", n);
}

static bool read_published(StudyPlan *p, const StudySection *s, Err *err) {
  enum { MAX_COLUMNS = 32 };
  StudyPublished *b = &p->published[study_published_find(p, s->name)];
  const StudyLine *l = study_line(s, "columns");
  PublishedColumn columns[MAX_COLUMNS];
  int n = 0;
  char *rest = l ? l->value : NULL, *name;
  if (!l) return study_fail(&p->text, s->line, err, "[published %s] needs a line \"columns: …\"", s->name);
  while ((name = study_split(&rest, ','))) {
    if (n == MAX_COLUMNS) return study_fail(&p->text, l->line, err, "more than %d columns", MAX_COLUMNS);
    columns[n] = (PublishedColumn){study_setting_find(p, name), study_measure_find(p, name)};
    if (columns[n].setting < 0 && columns[n].measure < 0)
      return study_fail(&p->text, l->line, err, "%.100s is neither a setting nor a measure", name);
    if (columns[n].setting > 0 && p->settings[columns[n].setting].path)
      return study_fail(&p->text, l->line, err, "%s is found in records, so that others' figures cannot name it", name);
    n++;
  }
  for (int i = 0; i < s->num_lines; i++)
    if (!s->lines[i].key && !read_row(p, b, columns, n, &s->lines[i], err)) return false;
  return true;
}

const char *study_published_text(const StudyPlan *p, int block, const StudyCell *cell, int measure) {
  const StudyPublished *b = &p->published[block];
  for (int i = 0; i < b->num_rows; i++) {
    bool same = b->rows[i].figures[measure];
    for (int s = 0; same && s < p->num_settings; s++) {
      const int v = b->rows[i].cell.value[s];
      same = v < 0 || v == cell->value[s];
    }
    if (same) return b->rows[i].figures[measure];
  }
  return NULL;
}

double study_published_figure(const StudyPlan *p, int block, const StudyCell *cell, int measure) {
  const char *text = study_published_text(p, block, cell, measure);
  return text ? strtod(text, NULL) : NAN;
}

bool study_published_names(const StudyPlan *p, int block, int setting) {
  for (int i = 0; i < p->published[block].num_rows; i++)
    if (p->published[block].rows[i].cell.value[setting] >= 0) return true;
  return false;
}

// ---- all of it ------------------------------------------------------------------------------------------------------

bool study_views_read(StudyPlan *p, Err *err) {
  for (int i = 0; i < p->text.num_sections; i++) {
    const StudySection *s = &p->text.sections[i];
    if (!strcmp(s->kind, "table") && !read_table(p, s, err)) return false;
    if (!strcmp(s->kind, "table")) complete_table(p, &p->tables[p->num_tables - 1], !study_line(s, "rows"));
    if (!strcmp(s->kind, "plot") && !read_plot(p, s, err)) return false;
    if (!strcmp(s->kind, "published") && !read_published(p, s, err)) return false;
  }
  if (p->num_tables) return true;
  StudyTable *t = &p->tables[p->num_tables++];
  *t = (StudyTable){.name = "all", .title = p->title};
  complete_table(p, t, true);
  return true;
}

void study_views_free(StudyPlan *p) {
  for (int i = 0; i < p->num_tables; i++) free(p->tables[i].shows.items);
  for (int i = 0; i < p->num_plots; i++) free(p->plots[i].y.items);
  for (int i = 0; i < p->num_published; i++) {
    for (int r = 0; r < p->published[i].num_rows; r++) free(p->published[i].rows[r].figures);
    free(p->published[i].rows);
  }
}
