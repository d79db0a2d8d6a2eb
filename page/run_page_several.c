#include "page/run_page_several.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "page/run_page_one.h"

static const char *value_of(const PagePairs *p, const char *name) {
  for (int i = 0; i < p->n; i++)
    if (!strcmp(p->item[i].name, name)) return p->item[i].value;
  return NULL;
}

// Names, each once, in the order in which they come. Borrowed; the list is the caller's to free.
typedef struct DistinctNames {
  const char **item;
  size_t cap;
  int n;
} DistinctNames;

// Returns whether the name is new.
static bool names_add(DistinctNames *l, const char *name) {
  for (int i = 0; i < l->n; i++)
    if (!strcmp(l->item[i], name)) return false;
  array_reserve((void **)&l->item, &l->cap, (size_t)l->n + 1, sizeof *l->item);
  l->item[l->n++] = name;
  return true;
}

static const PagePairs *pairs_at(const RunPage *r, size_t of) { return (const PagePairs *)((const char *)r + of); }

static DistinctNames names_of(const RunPage *runs, int n, size_t of) {
  DistinctNames names = {0};
  for (int i = 0; i < n; i++)
    for (int k = 0; k < pairs_at(&runs[i], of)->n; k++) names_add(&names, pairs_at(&runs[i], of)->item[k].name);
  return names;
}

// Among the runs that have such pairs at all.
static bool differ(const RunPage *runs, int n, size_t of, const char *name) {
  const PagePairs *first = NULL;
  for (int i = 0; i < n; i++) {
    const PagePairs *other = pairs_at(&runs[i], of);
    if (!other->n) continue;
    if (!first) first = other;
    const char *a = value_of(first, name), *b = value_of(other, name);
    if ((a == NULL) != (b == NULL) || (a && strcmp(a, b))) return true;
  }
  return false;
}

// A row a name, a column a run; with `differing`, of those alone that are not the same for all.
static void compare_pairs(const Page *p, const char *label, const RunPage *runs, int n, size_t of, bool differing) {
  int shown = 0;
  DistinctNames names = names_of(runs, n, of);
  const char **heading = xcalloc((size_t)n + 1, sizeof *heading);
  heading[0] = "";
  for (int i = 0; i < n; i++) heading[i + 1] = runs[i].name;
  for (int k = 0; k < names.n; k++) {
    if (differing && !differ(runs, n, of, names.item[k])) continue;
    if (shown++ == 0) page_table(p, label, heading, n + 1, n + 1);
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, names.item[k]);
    fputs("</th>", p->f);
    for (int i = 0; i < n; i++) {
      const char *value = value_of(pairs_at(&runs[i], of), names.item[k]);
      fputs("<td class=\"l\">", p->f);
      page_text(p, value ? value : "–");
      fputs("</td>", p->f);
    }
    fputs("</tr>\n", p->f);
  }
  if (shown)
    page_table_end(p);
  else
    page_element(p, "p class=\"faint\"", "None.");
  free(names.item);
  free(heading);
}

// The curves of one key, of all runs that have it. Borrows them.
static void write_comparison(const Page *p, const RunPage *runs, int n, const PagePanel *like, const PageCurve *of) {
  PagePanel panel = {.title = xasprintf(strcmp(like->title, of->label) ? "%s: %s" : "%s", like->title, of->label),
                     .x_label = like->x_label,
                     .unit = like->unit,
                     .log_y = like->log_y,
                     .noisy = like->noisy};
  panel.curve = xcalloc((size_t)n, sizeof *panel.curve);
  for (int r = 0; r < n; r++)
    for (int i = 0; i < runs[r].panels.n; i++)
      for (int k = 0; k < runs[r].panels.item[i].n; k++) {
        const PageCurve *c = &runs[r].panels.item[i].curve[k];
        if (!c->key || strcmp(c->key, of->key)) continue;
        panel.curve[r] = *c;
      }
  for (int r = 0; r < n; r++) panel.curve[r].label = runs[r].name;
  panel.n = n;
  if (page_points(&panel)) page_chart(p, &panel, false);
  free(panel.curve);
  free(panel.title);
}

static void compare_curves(const Page *p, const RunPage *runs, int n) {
  DistinctNames done = {0};
  fputs("<div class=\"charts\">\n", p->f);
  for (int r = 0; r < n; r++)
    for (int i = 0; i < runs[r].panels.n; i++)
      for (int k = 0; k < runs[r].panels.item[i].n; k++) {
        const PagePanel *panel = &runs[r].panels.item[i];
        const char *key = panel->curve[k].key;
        if (key && names_add(&done, key)) write_comparison(p, runs, n, panel, &panel->curve[k]);
      }
  fputs("</div>\n", p->f);
  free(done.item);
}

// The column of that name; -1: there is none.
static int column_of(const PageEvaluation *e, const char *name) {
  for (int c = 0; c < e->columns; c++)
    if (!strcmp(e->column[c], name)) return c;
  return -1;
}

// NaN: the category or the column is not there.
static double category_value(const PageEvaluation *e, const char *category, const char *column) {
  const int c = column_of(e, column);
  for (int i = 0; c >= 0 && i < e->categories; i++)
    if (!strcmp(e->category[i].name, category)) return e->category[i].value[c];
  return NAN;
}

// The first run's, then what each of the others adds; of those that have the column.
static DistinctNames categories_of(const RunPage *runs, int n, const char *column) {
  DistinctNames names = {0};
  for (int r = 0; r < n; r++) {
    const PageEvaluation *e = &runs[r].evaluation;
    for (int i = 0; column_of(e, column) >= 0 && i < e->categories; i++) names_add(&names, e->category[i].name);
  }
  return names;
}

// What stands for what is learnt: the first column after the counts, of the first run that has one. NULL: none has.
static const char *learnt_column(const RunPage *runs, int n) {
  for (int i = 0; i < n; i++)
    if (runs[i].evaluation.categories && runs[i].evaluation.columns > 1) return runs[i].evaluation.column[1];
  return NULL;
}

static void compare_categories(const Page *p, const RunPage *runs, int n) {
  const char *column = learnt_column(runs, n);
  if (!column) return;
  const char **heading = xcalloc((size_t)n + 1, sizeof *heading);
  DistinctNames names = categories_of(runs, n, column);
  heading[0] = "category";
  for (int i = 0; i < n; i++) heading[i + 1] = runs[i].name;
  fputs("<details><summary>", p->f);
  page_text(p, column);
  fputs(" of each category</summary>\n", p->f);
  page_table(p, column, heading, n + 1, 1);
  for (int k = 0; k < names.n; k++) {
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, names.item[k]);
    fputs("</th>", p->f);
    for (int i = 0; i < n; i++) page_number(p, category_value(&runs[i].evaluation, names.item[k], column), 3);
    fputs("</tr>\n", p->f);
  }
  page_table_end(p);
  fputs("</details>\n", p->f);
  free(names.item);
  free(heading);
}

void page_runs(Page *p, const RunPage *runs, int n) {
  page_section(p, "overview", "Overview");
  compare_pairs(p, "Overview", runs, n, offsetof(RunPage, facts), false);
  compare_categories(p, runs, n);
  page_section_end(p);
  page_section(p, "together", "Curves");
  compare_curves(p, runs, n);
  page_section_end(p);
  page_section(p, "differences", "Settings that differ");
  compare_pairs(p, "Settings that differ", runs, n, offsetof(RunPage, settings), true);
  fputs("<details><summary>Machines</summary>\n", p->f);
  compare_pairs(p, "Machines", runs, n, offsetof(RunPage, machine), false);
  fputs("</details>\n", p->f);
  page_section_end(p);
  for (int i = 0; i < n; i++) {
    char prefix[16];
    snprintf(prefix, sizeof prefix, "r%d-", i);
    Page one = {.f = p->f, .prefix = prefix, .room = PAGE_BYTES / (size_t)n};
    fputs("<section><details><summary>", p->f);
    page_text(p, runs[i].name);
    fputs("</summary>\n", p->f);
    page_run(&one, &runs[i]);
    fputs("</details></section>\n", p->f);
  }
}
