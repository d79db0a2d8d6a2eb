// Catches pages that a browser does not draw, or draws with errors.
//
// Pages in a real browser: test/page/test_browser.py makes folders of runs up, has build/report draw them, opens them
// in a headless Chromium, and prints a line for each thing that is wrong.
#include <stdlib.h>
#include "base/alloc.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { SKIPPED = 77, NOT_FOUND = 127 }; // exit statuses: there is no chromium; no python3

static void browse(const char *cases) {
  const char *said;
  char *folder = xstrdup(in_tmp("browser"));
  const int status = command(&said, "python3 test/page/test_browser.py %s %s %s", tool("report"), folder, cases);
  if (status == NOT_FOUND)
    test_skip("python3 is not installed");
  else if (status == SKIPPED)
    test_skip("no chromium");
  else if (!EXPECT_INT(status, 0))
    printf("%s\n", said);
  free(folder);
}

TEST_TIER(browser_shows_runs, 1) { browse("detector classifier several paper policy"); }
TEST_TIER(browser_shows_odd_folders, 1) { browse("hostile broken long"); }
