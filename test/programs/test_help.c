// Catches options that a program lists but does not know, or knows but does not list.
#include <glob.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/wrap.h"
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

// "  --name VALUE  text", "  --name[=VALUE]  text" or "  --name  text", the texts in one column. Where the first part
// is too long, the text begins on the next line.
static bool read_option(const char *line, Listed *all, size_t *column) {
  const char *name = line + strlen("  --"), *end = line + strcspn(line, "\n"), *text = strstr(name, "  ");
  const size_t length = strcspn(name, " [\n");
  if (length == 0 || length > MAX_NAME || all->n == MAX_LISTED) return false;
  snprintf(all->name[all->n++], MAX_NAME + 1, "%.*s", (int)length, name);
  if (!text || text > end) text = line = end + 1;
  text += strspn(text, " ");
  if (!*column) *column = (size_t)(text - line);
  return *text && *text != '\n' && (size_t)(text - line) == *column;
}

static Listed listed_in(const char *help) {
  Listed all = {.well_formed = !strncmp(help, "usage: ", strlen("usage: "))};
  size_t column = 0;
  for (const char *line = help; *line;) {
    size_t bytes = strcspn(line, "\n");
    char one[256];
    snprintf(one, sizeof one, "%.*s", (int)MIN(bytes, sizeof one - 1), line);
    if (!strncmp(line, "  --", strlen("  --")) && !read_option(line, &all, &column)) all.well_formed = false;
    if (wrap_width(one) > WRAP_USUAL) all.well_formed = false;
    line += bytes + (line[bytes] != '\0');
  }
  return all;
}

// Lines joined and blanks made one: what a reader takes for a sentence.
static const char *joined(const char *help) {
  static char text[32768];
  size_t n = 0;
  for (; *help && n + 1 < sizeof text; help++) {
    const char c = *help == '\n' ? ' ' : *help;
    if (c != ' ' || n == 0 || text[n - 1] != ' ') text[n++] = c;
  }
  text[n] = '\0';
  return text;
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
  // No value stands for another that the reader would have to choose.
  static const char *const sentinels[] = {"-1 =", "0 =", "(default: -1", "(default: auto;"};
  for (int i = 0; i < COUNT(sentinels); i++) EXPECT(!strstr(said, sentinels[i]));
  EXPECT_INT(command(NULL, "%s --help >/dev/full", program), 1); // help that nobody can have read
}

static bool lists(const char *help, const char *option) {
  char line[MAX_NAME + 8];
  snprintf(line, sizeof line, "\n  --%s", option);
  const char *at = strstr(help, line);
  return at && strchr(" [", at[strlen(line)]);
}

static int count_options(const char *help) {
  int n = 0;
  for (const char *at = help; (at = strstr(at, "\n  --")); at++) n++;
  return n;
}

// What matters first, all of a model's options with its own defaults, and the fields of its configuration.
TEST_TIER(program_help_of_train_is_of_the_model, 1) {
  const char *said;
  EXPECT_INT(command(&said, "%s --help", tool("train")), 0);
  EXPECT(count_options(said) >= 15 && count_options(said) <= 24);
  EXPECT(lists(said, "data") && lists(said, "batch") && !lists(said, "bucket") &&
         strstr(said, "--help all lists all "));
  EXPECT_INT(command(&said, "%s -h all", tool("train")), 0);
  EXPECT(lists(said, "sizes") && lists(said, "conventions") && lists(said, "rotate") && !lists(said, "dropout"));
  EXPECT(strstr(joined(said), "probability of a horizontal flip (default: 0.5) "));
  EXPECT_INT(command(&said, "%s --model vgg-28 --help all", tool("train")), 0);
  EXPECT(lists(said, "rotate") && lists(said, "dropout") && !lists(said, "sizes") && !lists(said, "target-bbox"));
  EXPECT(strstr(joined(said), "images per step and GPU (default: 128) "));
  EXPECT(strstr(joined(said), "(default: 10@1e-3,10@1e-4) "));
  EXPECT(strstr(joined(said), "(default: maskrcnn-r50-fpn; "));
  EXPECT_INT(command(&said, "%s --conventions mlperf --help model", tool("train")), 0);
  EXPECT(strstr(said, "\n  box_extra              1 ") && !strstr(said, "\n  label_smoothing "));
  EXPECT(strstr(said, "\n  bgr                    true "));
  EXPECT(strstr(said, "\n  rpn_nms                0.7 ") && strstr(said, "\n  classes                from the data "));
  EXPECT_INT(command(&said, "%s --model vgg-28 --help model", tool("train")), 0);
  EXPECT(strstr(said, "\n  label_smoothing ") && !strstr(said, "\n  rpn_nms "));
  EXPECT_INT(command(&said, "%s --help fields", tool("train")), 2);
  EXPECT_STR(said, "train: --help takes all or model, not \"fields\"\n");
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
    const bool without_cuda = !strcmp(ending, ".cu") && !path_is_file(tool(name));
    const bool has_commands = !strcmp(name, "maskrcnn"); // and no options
    if (strcmp(ending, ".cuh") && !without_cuda && !has_commands) expect_help(tool(name));
  }
  globfree(&sources);
}
