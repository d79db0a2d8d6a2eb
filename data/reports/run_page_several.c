// Several runs on one page: side by side what they have in common, then each by itself.
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "data/reports/run_page_parts.h"

static const char *value_of(const PagePairs *p, const char *name) {
  for (int i = 0; i < p->n; i++)
    if (!strcmp(p->item[i].name, name)) return p->item[i].value;
  return NULL;
}

// The names of all runs' pairs, each once, in the order in which they come. Borrowed; caller frees the list.
static const char **names_of(const RunPage *runs, int n, size_t of, int *count) {
  const char **name = NULL;
  size_t cap = 0;
  *count = 0;
  for (int i = 0; i < n; i++) {
    const PagePairs *p = (const PagePairs *)((const char *)&runs[i] + of);
    for (int k = 0; k < p->n; k++) {
      int at = 0;
      while (at < *count && strcmp(name[at], p->item[k].name)) at++;
      if (at < *count) continue;
      array_reserve((void **)&name, &cap, (size_t)*count + 1, sizeof *name);
      name[(*count)++] = p->item[k].name;
    }
  }
  return name;
}

// Among the runs that have such pairs at all.
static bool differ(const RunPage *runs, int n, size_t of, const char *name) {
  const PagePairs *first = NULL;
  for (int i = 0; i < n; i++) {
    const PagePairs *other = (const PagePairs *)((const char *)&runs[i] + of);
    if (!other->n) continue;
    if (!first) first = other;
    const char *a = value_of(first, name), *b = value_of(other, name);
    if ((a == NULL) != (b == NULL) || (a && strcmp(a, b))) return true;
  }
  return false;
}

// A row a name, a column a run; with `differing`, of those alone that are not the same for all.
static void compare_pairs(const Page *p, const char *label, const RunPage *runs, int n, size_t of, bool differing) {
  int count, shown = 0;
  const char **name = names_of(runs, n, of, &count), **heading = xcalloc((size_t)n + 1, sizeof *heading);
  heading[0] = "";
  for (int i = 0; i < n; i++) heading[i + 1] = runs[i].name;
  for (int k = 0; k < count; k++) {
    if (differing && !differ(runs, n, of, name[k])) continue;
    if (shown++ == 0) page_table(p, label, heading, n + 1, n + 1);
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, name[k]);
    fputs("</th>", p->f);
    for (int i = 0; i < n; i++) {
      const char *value = value_of((const PagePairs *)((const char *)&runs[i] + of), name[k]);
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
  free(name);
  free(heading);
}

static bool compared(const char *const *done, int n, const char *key) {
  for (int i = 0; i < n; i++)
    if (!strcmp(done[i], key)) return true;
  return false;
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
  const char **done = NULL;
  size_t cap = 0;
  int count = 0;
  fputs("<div class=\"charts\">\n", p->f);
  for (int r = 0; r < n; r++)
    for (int i = 0; i < runs[r].panels.n; i++)
      for (int k = 0; k < runs[r].panels.item[i].n; k++) {
        const PagePanel *panel = &runs[r].panels.item[i];
        const char *key = panel->curve[k].key;
        if (!key || compared(done, count, key)) continue;
        array_reserve((void **)&done, &cap, (size_t)count + 1, sizeof *done);
        done[count++] = key;
        write_comparison(p, runs, n, panel, &panel->curve[k]);
      }
  fputs("</div>\n", p->f);
  free(done);
}

// The value of a category in the column of that name; NaN: it has none.
static double category_value(const PageEvaluation *e, const char *category, const char *column) {
  for (int c = 0; c < e->columns; c++)
    for (int i = 0; !strcmp(e->column[c], column) && i < e->categories; i++)
      if (!strcmp(e->category[i].name, category)) return e->category[i].value[c];
  return NAN;
}

// By the column that stands for what is learnt: the first after the counts.
static void compare_categories(const Page *p, const RunPage *runs, int n) {
  const PageEvaluation *first = NULL;
  for (int i = 0; i < n && !first; i++)
    if (runs[i].evaluation.categories && runs[i].evaluation.columns > 1) first = &runs[i].evaluation;
  if (!first) return;
  const char **heading = xcalloc((size_t)n + 1, sizeof *heading), *column = first->column[1];
  heading[0] = "category";
  for (int i = 0; i < n; i++) heading[i + 1] = runs[i].name;
  fputs("<details><summary>", p->f);
  page_text(p, column);
  fputs(" of each category</summary>\n", p->f);
  page_table(p, column, heading, n + 1, 1);
  for (int k = 0; k < first->categories; k++) {
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, first->category[k].name);
    fputs("</th>", p->f);
    for (int i = 0; i < n; i++) page_number(p, category_value(&runs[i].evaluation, first->category[k].name, column), 3);
    fputs("</tr>\n", p->f);
  }
  page_table_end(p);
  fputs("</details>\n", p->f);
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
