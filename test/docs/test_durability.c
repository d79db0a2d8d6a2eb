// Catches a promise of docs/durability.md whose test is gone.
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// Its tests are the words in backquotes in the last cell of the table's rows.
TEST_TIER(durability_names_tests_that_there_are, 1) {
  const char *tests;
  size_t size;
  int named = 0;
  CHECK(!command(&tests, "%s --tier 2 --list", tool("test_all")));
  char *page = file_read("docs/durability.md", &size, NULL);
  CHECK(page);
  for (char *line = strtok(page, "\n"); line; line = strtok(NULL, "\n")) {
    char *cell = line[0] == '|' ? strrchr(line, '|') : NULL;
    if (cell) *cell = '\0';
    if (!cell || !(cell = strrchr(line, '|'))) continue;
    for (char *at = cell; (at = strchr(at, '`')); at++) {
      const char *name = ++at;
      while (islower((unsigned char)*at) || *at == '_') at++;
      if (*at != '`')
        at = strchr(at, '`'); // a file or a command
      else {
        char *want = xasprintf(" %.*s\n", (int)(at - name), name);
        if (!EXPECT(strstr(tests, want))) printf("  no test is called%s", want);
        free(want);
        named++;
      }
    }
  }
  EXPECT(named >= 20);
  free(page);
}
