#include "page/run_page.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "page/plot.h"
#include "page/run_page_parts.h"
#include "page/run_page_style.h"
#include "page/xml.h"

enum { CHART = 480, SMALL_CHART = 320 }; // units of a chart's width; a style scales it

// ---- pieces ---------------------------------------------------------------------------------------------------------

void page_text(const Page *p, const char *text) {
  if (text) xml_print(p->f, text);
}

void page_attribute(const Page *p, const char *text) {
  if (text) xml_print_attribute(p->f, text);
}

void page_element(const Page *p, const char *tag, const char *text) {
  fprintf(p->f, "<%s>", tag);
  page_text(p, text);
  fprintf(p->f, "</%.*s>\n", (int)strcspn(tag, " "), tag);
}

void page_section(const Page *p, const char *anchor, const char *heading) {
  if (anchor)
    fprintf(p->f, "<section id=\"%s%s\">\n", p->prefix, anchor);
  else
    fputs("<section>\n", p->f);
  page_element(p, "h2", heading);
}

void page_section_end(const Page *p) { fputs("</section>\n", p->f); }

void page_table(const Page *p, const char *label, const char *const *heading, int n, int numbers) {
  fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", p->f);
  page_attribute(p, label);
  fputs("\"><table>\n<thead><tr>", p->f);
  for (int i = 0; i < n; i++) {
    fputs(i < numbers ? "<th scope=\"col\">" : "<th scope=\"col\" class=\"n\">", p->f);
    page_text(p, heading[i]);
    fputs("</th>", p->f);
  }
  fputs("</tr></thead>\n<tbody>\n", p->f);
}

void page_table_end(const Page *p) { fputs("</tbody></table></div>\n", p->f); }

void page_number_text(double value, int digits, char *text, size_t room) {
  if (isfinite(value))
    snprintf(text, room, "%.*f", digits, value);
  else
    snprintf(text, room, "–");
}

void page_number(const Page *p, double value, int digits) {
  char text[64];
  page_number_text(value, digits, text, sizeof text);
  fprintf(p->f, "<td class=\"n\">%s</td>", text);
}

static void write_pairs(const Page *p, const char *label, const PagePairs *pairs) {
  static const char *const heading[] = {"", "value"};
  page_table(p, label, heading, 2, 2);
  for (int i = 0; i < pairs->n; i++) {
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, pairs->item[i].name);
    fputs("</th><td>", p->f);
    page_text(p, pairs->item[i].value);
    fputs("</td></tr>\n", p->f);
  }
  page_table_end(p);
}

// ---- charts ---------------------------------------------------------------------------------------------------------

int page_points(const PagePanel *panel) {
  int n = 0;
  for (int i = 0; i < panel->n; i++) n += panel->curve[i].n;
  return n;
}

static void write_legend(const Page *p, const PagePanel *panel) {
  if (panel->n < 2) return;
  fputs("<ul class=\"legend\">", p->f);
  for (int i = 0; i < panel->n; i++) {
    if (!panel->curve[i].n) continue;
    fprintf(p->f, "<li><i class=\"c%d\"></i>", i % PLOT_COLOURS);
    page_text(p, panel->curve[i].label);
    fputs("</li>", p->f);
  }
  fputs("</ul>\n", p->f);
}

void page_chart(const Page *p, const PagePanel *panel, bool small) {
  PlotSeries *series = xcalloc((size_t)panel->n, sizeof *series);
  for (int i = 0; i < panel->n; i++) {
    const PageCurve *c = &panel->curve[i];
    series[i] = (PlotSeries){c->label, c->x, c->y, c->n, panel->noisy};
  }
  fputs("<figure><figcaption><b>", p->f);
  page_text(p, panel->title);
  fputs("</b></figcaption>\n", p->f);
  plot_print(p->f, &(PlotPanel){panel->title, panel->x_label, panel->unit, panel->log_y, series, panel->n, NULL},
             small ? SMALL_CHART : CHART);
  write_legend(p, panel);
  fputs("</figure>\n", p->f);
  free(series);
}

void page_charts(const Page *p, const PagePanels *panels, bool small) {
  fprintf(p->f, "<div class=\"charts%s\">\n", small ? " small" : "");
  for (int i = 0; i < panels->n; i++)
    if (page_points(&panels->item[i])) page_chart(p, &panels->item[i], small);
  fputs("</div>\n", p->f);
}

static bool any_points(const PagePanels *panels) {
  for (int i = 0; i < panels->n; i++)
    if (page_points(&panels->item[i])) return true;
  return false;
}

// ---- one run --------------------------------------------------------------------------------------------------------

static void write_facts(const Page *p, const RunPage *r) {
  if (!r->facts.n) return;
  fputs("<dl class=\"facts\">\n", p->f);
  for (int i = 0; i < r->facts.n; i++) {
    fputs("<div><dt>", p->f);
    page_text(p, r->facts.item[i].name);
    fputs("</dt><dd>", p->f);
    page_text(p, r->facts.item[i].value);
    fputs("</dd></div>\n", p->f);
  }
  fputs("</dl>\n", p->f);
}

static void write_warnings(const Page *p, const RunPage *r) {
  if (!r->warnings) return;
  fprintf(p->f, "<section class=\"warn\" id=\"%swarnings\">\n<h2>Warnings</h2>\n<ul>\n", p->prefix);
  for (int i = 0; i < r->warnings; i++) page_element(p, "li", r->warning[i]);
  fputs("</ul>\n", p->f);
  page_section_end(p);
}

static void write_curves(const Page *p, const RunPage *r) {
  page_section(p, "curves", "Curves");
  if (any_points(&r->panels))
    page_charts(p, &r->panels, false);
  else
    page_element(p, "p class=\"faint\"", "The log holds no step.");
  page_section_end(p);
}

static void write_part(const Page *p, const PagePart *part, double all) {
  const double backward = isfinite(part->backward) ? part->backward : 0, sum = part->forward + backward;
  fputs("<tr><th scope=\"row\">", p->f);
  page_text(p, part->name);
  fputs("</th>", p->f);
  page_number(p, 1e3 * part->forward, 2);
  page_number(p, 1e3 * part->backward, 2);
  page_number(p, 1e3 * sum, 2);
  page_number(p, 100 * sum / all, 1);
  fprintf(p->f, "<td><span class=\"bar\" style=\"width:%.1fem\"></span></td></tr>\n", 8 * sum / all);
}

static void write_parts(const Page *p, const RunPage *r) {
  static const char *const heading[] = {"part", "forward, ms", "backward, ms", "both, ms", "share, %", ""};
  double all = 0;
  for (int i = 0; i < r->parts; i++)
    all += r->part[i].forward + (isfinite(r->part[i].backward) ? r->part[i].backward : 0);
  page_section(p, "time", "Time of a step");
  if (all > 0) {
    fprintf(p->f,
            "<p class=\"faint\">%.2f ms in all: the mean of %d steps that were timed part by part, and are therefore a "
            "little slower than others.</p>\n",
            1e3 * all, r->timed_steps);
    page_table(p, "Time of a step", heading, 6, 1);
    for (int i = 0; i < r->parts; i++) write_part(p, &r->part[i], all);
    page_table_end(p);
  } else {
    page_element(p, "p class=\"faint\"", "Not measured: the session was too short, or timed as a whole.");
  }
  page_section_end(p);
}

static void write_memory(const Page *p, const RunPage *r) {
  static const char *const heading[] = {"what", "where", "MB"};
  if (!r->memories) return;
  page_section(p, "memory", "Memory plan");
  page_table(p, "Memory plan", heading, 3, 2);
  for (int i = 0; i < r->memories; i++) {
    fputs("<tr><th scope=\"row\">", p->f);
    page_text(p, r->memory[i].name);
    fputs("</th><td>", p->f);
    page_text(p, r->memory[i].place);
    fputs("</td>", p->f);
    page_number(p, r->memory[i].bytes / 1e6, 1);
    fputs("</tr>\n", p->f);
  }
  page_table_end(p);
  page_section_end(p);
}

static void write_setting(const Page *p, const RunPage *r) {
  if (!r->settings.n && !r->machine.n && !r->data && !r->command) return;
  page_section(p, "settings", "What it was made with");
  if (r->command) {
    fputs("<pre>", p->f);
    page_text(p, r->command);
    fputs("</pre>\n", p->f);
  }
  if (r->data) {
    fputs("<details><summary>Data</summary><pre>", p->f);
    page_text(p, r->data);
    fputs("</pre></details>\n", p->f);
  }
  if (r->machine.n) {
    fputs("<details><summary>Machine</summary>\n", p->f);
    write_pairs(p, "Machine", &r->machine);
    fputs("</details>\n", p->f);
  }
  if (r->settings.n) {
    fputs("<details><summary>Configuration</summary>\n", p->f);
    write_pairs(p, "Configuration", &r->settings);
    fputs("</details>\n", p->f);
  }
  page_section_end(p);
}

static bool has_steps(const RunPage *r) { return r->evaluation.step != PAGE_OF_WEIGHTS; }

void page_run(Page *p, const RunPage *r) {
  write_facts(p, r);
  write_warnings(p, r);
  if (has_steps(r)) write_curves(p, r);
  page_evaluation(p, &r->evaluation);
  if (has_steps(r)) write_parts(p, r);
  write_memory(p, r);
  write_setting(p, r);
  if (p->left_out) fprintf(p->f, "<p class=\"faint\">%d pictures are left out: the page is full.</p>\n", p->left_out);
}

// ---- the page -------------------------------------------------------------------------------------------------------

static void write_head(const Page *p, const char *title) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        p->f);
  page_element(p, "title", title);
  fprintf(p->f, "<style>\n%s</style>\n</head>\n<body>\n", run_page_style);
}

static void write_navigation(const Page *p, const RunPage *r) {
  const struct {
    const char *anchor, *text;
    bool there;
  } all[] = {{"warnings", "Warnings", r->warnings},
             {"curves", "Curves", has_steps(r)},
             {"evaluation", "Evaluation", true},
             {"confusion", "Confusion", r->evaluation.confusion.count},
             {"images", "Images", r->evaluation.pictures},
             {"time", "Time", has_steps(r)},
             {"memory", "Memory", r->memories},
             {"settings", "Settings", r->settings.n || r->command}};
  fputs("<nav aria-label=\"sections\">", p->f);
  for (int i = 0; i < COUNT(all); i++)
    if (all[i].there) fprintf(p->f, "<a href=\"#%s%s\">%s</a>\n", p->prefix, all[i].anchor, all[i].text);
  fputs("</nav>\n", p->f);
}

static void write_page(FILE *f, const RunPage *runs, int n) {
  char several[64];
  Page p = {.f = f, .prefix = "", .room = PAGE_BYTES};
  snprintf(several, sizeof several, "%d runs", n);
  write_head(&p, n == 1 ? runs[0].name : several);
  page_element(&p, "h1", n == 1 ? runs[0].name : several);
  if (n == 1) {
    page_element(&p, "p class=\"faint\"", runs[0].state);
    write_navigation(&p, &runs[0]);
    page_run(&p, &runs[0]);
  } else {
    page_runs(&p, runs, n);
  }
  fputs("<footer>Written by maskrcnn.c. The page holds everything itself.</footer>\n</body>\n</html>\n", f);
}

bool run_page_write(const char *path, const RunPage *runs, int n, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  write_page(out.f, runs, n);
  return file_commit(&out, err);
}
