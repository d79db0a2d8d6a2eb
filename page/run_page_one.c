#include "page/run_page_one.h"
#include <math.h>
#include "page/run_page_results.h"

bool run_has_steps(const RunPage *r) { return r->evaluation.step != PAGE_OF_WEIGHTS; }

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

static bool any_points(const PagePanels *panels) {
  for (int i = 0; i < panels->n; i++)
    if (page_points(&panels->item[i])) return true;
  return false;
}

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

void page_run(Page *p, const RunPage *r) {
  write_facts(p, r);
  write_warnings(p, r);
  if (run_has_steps(r)) write_curves(p, r);
  page_evaluation(p, &r->evaluation);
  if (run_has_steps(r)) write_parts(p, r);
  write_memory(p, r);
  write_setting(p, r);
  if (p->left_out) fprintf(p->f, "<p class=\"faint\">%d pictures are left out: the page is full.</p>\n", p->left_out);
}
