// What every program says to --help, and that its parser knows what is listed there.
#include <glob.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/machine.h"
#include "include/maskrcnn.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { MAX_LISTED = 128, MAX_NAME = 64 };

// The options that a --help lists, and whether all of its lines have a form that they may have.
typedef struct Listed {
  char name[MAX_LISTED][MAX_NAME + 1];
  int n;
  bool well_formed;
} Listed;

// "  --name VALUE  text", "  --name[=VALUE]  text" or "  --name  text", the texts in one column.
static bool read_line(const char *line, Listed *all, size_t *column) {
  const char *name = line + strlen("  --"), *text = strstr(name, "  ");
  size_t length = strcspn(name, " [");
  if (!text || length == 0 || length > MAX_NAME || all->n == MAX_LISTED) return false;
  text += strspn(text, " ");
  if (!*column) *column = (size_t)(text - line);
  snprintf(all->name[all->n++], MAX_NAME + 1, "%.*s", (int)length, name);
  return *text && (size_t)(text - line) == *column;
}

static Listed listed_in(const char *help) {
  Listed all = {.well_formed = !strncmp(help, "usage: ", strlen("usage: "))};
  char *lines = xstrdup(help);
  size_t column = 0;
  for (char *save, *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
    if (!strncmp(line, "  --", strlen("  --")) && !read_line(line, &all, &column)) all.well_formed = false;
  free(lines);
  return all;
}

// A letter too much in its name, and the parser suggests the option: so it knows it.
static void expect_known(const char *program, const char *option) {
  const char *said;
  char suggestion[128];
  snprintf(suggestion, sizeof suggestion, "unknown option --%sx; did you mean --%s?", option, option);
  if (EXPECT_INT(command(&said, "%s --%sx", program, option), 2) && EXPECT(strstr(said, suggestion))) return;
  fprintf(stderr, "%s --%sx said: %s\n", program, option, said);
}

static void expect_help(const char *program) {
  const char *said;
  if (!EXPECT_INT(command(&said, "%s --nonsense --help all", program), 0)) return;
  Listed all = listed_in(said);
  if (!EXPECT(all.well_formed && all.n > 0)) fprintf(stderr, "%s --help said:\n%s\n", program, said);
  for (int i = 0; i < all.n; i++) {
    for (int j = 0; j < i; j++)
      if (!EXPECT(strcmp(all.name[i], all.name[j]))) fprintf(stderr, "%s: --%s twice\n", program, all.name[i]);
    expect_known(program, all.name[i]);
  }
  EXPECT_INT(command(NULL, "%s --help >/dev/full", program), 1); // help that nobody can have read
}

TEST(program_version_is_the_librarys) {
  const char *said;
  char want[160];
  EXPECT_INT(command(&said, "%s --version", tool("infer")), 0);
  snprintf(want, sizeof want, "maskrcnn.c %d.%d, commit %.64s\n", MASKRCNN_VERSION_MAJOR, MASKRCNN_VERSION_MINOR,
           build_commit);
  EXPECT_STR(said, want);
}

TEST_TIER(program_help_lists_each_option_once, 1) {
  expect_help(tool("train"));
  expect_help(tool("infer"));
  glob_t sources;
  CHECK(!glob("tools/*.c", 0, NULL, &sources) && !glob("lab/*.c*", GLOB_APPEND, NULL, &sources));
  for (size_t i = 0; i < sources.gl_pathc; i++) {
    const char *file = strrchr(sources.gl_pathv[i], '/') + 1, *ending = strchr(file, '.');
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(ending - file), file);
    bool without_cuda = !strcmp(ending, ".cu") && !path_is_file(tool(name));
    if (!without_cuda) expect_help(tool(name));
  }
  globfree(&sources);
}
