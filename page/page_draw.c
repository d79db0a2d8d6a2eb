#include "page/page_draw.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/run_folder.h"
#include "page/curves.h"
#include "page/evaluation_read.h"
#include "page/page_read.h"
#include "page/run_page.h"

static bool draw_page(const char *folder, const char *name, const RunPage *page, Err *err) {
  char *path = xasprintf("%s/%s", folder, name);
  const bool ok = run_page_write(path, page, 1, err);
  free(path);
  return ok;
}

bool page_draw(const char *folder, Err *err) {
  RunPage page = {0};
  bool ok = page_read(&page, folder, NULL, err);
  if (ok) { // each whether or not another could be written; the first failure is told
    ok = draw_page(folder, PAGE_FILE, &page, err);
    ok &= curves_draw(folder, &page, ok ? err : NULL);
  }
  run_page_free(&page);
  return ok;
}

bool page_draw_scores(const char *folder, Err *err) {
  RunPage page = {.metrics = -1};
  char *path = xasprintf("%s/" SCORES, folder);
  bool ok = evaluation_read(path, folder, &page, err);
  page.evaluation.step = PAGE_OF_WEIGHTS;
  ok = ok && draw_page(folder, SCORES_PAGE, &page, err);
  run_page_free(&page);
  free(path);
  return ok;
}
