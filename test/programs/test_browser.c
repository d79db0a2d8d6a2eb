// Catches pages that a browser does not draw, or draws with errors.
//
// Pages in a real browser: the scripts in test/page/ make up folders of runs and data sets, let build/report and
// build/doctor draw them, open them in a headless Chromium, and print a line for each error.
#include <stdlib.h>
#include "base/alloc.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { SKIPPED = 77, NOT_FOUND = 127 }; // exit statuses: there is no chromium; no python3

static void browse(const char *script, const char *program, const char *cases) {
  const char *said;
  char *folder = xstrdup(in_tmp("browser"));
  const int status = command(&said, "python3 test/page/%s %s %s %s", script, tool(program), folder, cases);
  if (status == NOT_FOUND)
    test_skip("python3 is not installed");
  else if (status == SKIPPED)
    test_skip("no chromium");
  else if (!EXPECT_INT(status, 0))
    printf("%s\n", said);
  free(folder);
}

TEST_TIER(browser_shows_runs, 1) { browse("test_browser.py", "report", "detector classifier several paper policy"); }
TEST_TIER(browser_shows_judgements, 2) { browse("test_browser.py", "report", "judged odd_values"); }
TEST_TIER(browser_shows_odd_folders, 1) { browse("test_browser.py", "report", "hostile broken long crowd"); }
TEST_TIER(browser_shows_data_sets, 1) { browse("test_browser_doctor.py", "doctor", ""); }
