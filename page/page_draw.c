#include "page/page_draw.h"
#include <stdlib.h>
#include <time.h>
#include "base/alloc.h"
#include "base/run_folder.h"
#include "page/page_files.h"

static const char *const *const scripts[] = {page_dom_js,        page_plot_js, page_facts_js, page_curves_js,
                                             page_evaluation_js, page_run_js,  page_runs_js,  NULL};

static void begin_facts(Document *d, const char *type) {
  char now[32];
  const time_t t = time(NULL);
  struct tm utc;
  strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", gmtime_r(&t, &utc));
  fprintf(d->f, "{\"kind\":\"%s\",\"written\":\"%s\",\"runs\":[\n", type, now);
}

static bool end_facts(Document *d, Err *err) {
  fputs("\n]}", d->f);
  return document_end(d, scripts, err);
}

bool page_of_runs(const char *path, const PageRun *run, int n, bool single_file, Err *err) {
  Document d;
  const char *name = run[0].name ? run[0].name : run[0].folder ? run[0].folder : run[0].log;
  char *title = n == 1 ? xstrdup(name) : xasprintf("%d runs", n);
  const bool ok = document_begin(&d, path, title, err);
  free(title);
  if (!ok) return false;
  begin_facts(&d, "runs");
  for (int i = 0; i < n; i++) {
    if (i) fputs(",\n", d.f);
    run_facts_write(&d, &run[i], path, single_file);
  }
  return end_facts(&d, err);
}

bool page_draw(void *log_facts, const char *folder, Err *err) {
  char *path = xasprintf("%s/" PAGE_FILE, folder);
  const bool ok = page_of_runs(path, &(PageRun){.folder = folder, .read = log_facts}, 1, false, err);
  free(path);
  return ok;
}

bool page_draw_scores(const char *folder, Err *err) {
  Document d;
  char *path = xasprintf("%s/" SCORES_PAGE, folder);
  bool ok = document_begin(&d, path, folder, err);
  if (ok) {
    begin_facts(&d, "scores");
    score_facts_write(&d, folder, path);
    ok = end_facts(&d, err);
  }
  free(path);
  return ok;
}
