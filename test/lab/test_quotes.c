// Catches code quoted in the documentation that is no longer in the source.
//
// lab/quotes.py on a made-up page: it writes the lines that a marker names, reports where a page differs from its
// source, and refuses a text that no line has or several have.
#include <sys/stat.h>
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static void put(const char *path, const char *text) {
  FILE *f = fopen(in_tmp(path), "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static bool make_tree(const char *page) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  CHECK(!command(&said, "mkdir -p %s", in_tmp("quotes/docs/course")));
  put("quotes/a.c",
      "int a;\n  if (one)\n    two();\n  three(); // end of it\nint a;\n  do {\n# p\n    four();\n  }\n}\n");
  put("quotes/docs/course/page.md", page);
  return true;
}

static int quotes(const char **said, const char *options) {
  return command(said, "python3 lab/quotes.py --root %s %s", in_tmp("quotes"), options);
}

#define MARKER "<!-- quote: a.c, \"if (one)\" to \"end of it\" -->\n"
#define BLOCK "```c\nif (one)\n  two();\nthree(); // end of it\n```\n<!-- end -->\n"

TEST(quotes_are_written_and_found_to_differ) {
  const char *said;
  char *page;
  size_t size;
  if (!make_tree("# Title\n" MARKER "old\n<!-- end -->\nmore\n")) return;
  EXPECT_INT(quotes(&said, "--check"), 1);
  if (!EXPECT(!strncmp(said, "docs/course/page.md:3: differs", 30) && strstr(said, "\n+if (one)"))) puts(said);
  EXPECT_INT(quotes(&said, ""), 0);
  EXPECT_STR(said, "1 quotes, 1 pages rewritten\n");
  CHECK((page = file_read(in_tmp("quotes/docs/course/page.md"), &size, NULL)));
  EXPECT_INT((long long)size, (long long)strlen("# Title\n" MARKER BLOCK "more\n"));
  EXPECT(!strncmp(page, "# Title\n" MARKER BLOCK "more\n", size));
  free(page);
  EXPECT_INT(quotes(&said, "--check"), 0);
  EXPECT_STR(said, "");
  put("quotes/a.c", "int a;\n\n\n  if (one)\n    two();\n  three(); // end of it\n"); // the lines move
  EXPECT_INT(quotes(&said, "--check"), 0);
  put("quotes/a.c", "int a;\n  if (one)\n    four();\n  three(); // end of it\n"); // one of them changes
  EXPECT_INT(quotes(&said, "--check"), 1);
}

TEST(quotes_close_their_braces) {
  const char *said;
  if (!make_tree("<!-- quote: a.c, \"do {\" to \"four\" -->\n<!-- end -->\n")) return;
  EXPECT_INT(quotes(&said, "--check"), 1);
  if (!EXPECT(strstr(said, "\n+do {\n+# p\n+  four();\n+}\n+```"))) puts(said);
}

TEST(quotes_refuse_what_is_not_there_once) {
  static const struct {
    const char *marker, *complaint;
  } cases[] = {
      {"<!-- quote: a.c, \"nothing\" -->\n<!-- end -->\n",
       "docs/course/page.md:1: \"nothing\" stands on 0 lines of a.c"},
      {"<!-- quote: a.c, \"int a\" -->\n<!-- end -->\n", "stands on 2 lines of a.c (lines 1, 5)"},
      {"<!-- quote: a.c, \"three\" to \"one\" -->\n<!-- end -->\n", "a quote has 1 to"},
      {"<!-- quote: b.c, \"one\" -->\n<!-- end -->\n", "b.c cannot be quoted: No such file"},
      {"<!-- quote: a.c, \"one\" -->\n", "1 quotes begin, 0 of them"},
      {"<!-- quote: a.c, one -->\n<!-- end -->\n", "1 quotes begin, 0 of them"},
      {"<!-- quote: a.c, \"one\" -->\n<!-- quote: a.c, \"two\" -->\n<!-- end -->\n", "2 quotes begin, 1 of them"},
  };
  const char *said;
  for (int i = 0; i < COUNT(cases); i++) {
    if (!make_tree(cases[i].marker)) return;
    EXPECT_INT(quotes(&said, "--check"), 2);
    if (!EXPECT(strstr(said, cases[i].complaint))) puts(said);
  }
}
