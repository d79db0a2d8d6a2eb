#include "page/run_page_parts.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "page/plot.h"
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

void page_number(const Page *p, double value, int digits) {
  char text[64] = "–";
  if (isfinite(value)) snprintf(text, sizeof text, "%.*f", digits, value);
  fprintf(p->f, "<td class=\"n\">%s</td>", text);
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
