#include "page/run_page.h"
#include "base/file.h"
#include "page/run_page_one.h"
#include "page/run_page_several.h"
#include "page/run_page_style.h"

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
             {"curves", "Curves", run_has_steps(r)},
             {"evaluation", "Evaluation", true},
             {"confusion", "Confusion", r->evaluation.confusion.count},
             {"images", "Images", r->evaluation.pictures},
             {"time", "Time", run_has_steps(r)},
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
