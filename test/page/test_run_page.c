// The page of a run: well-formed whatever the texts are, complete, and of itself alone.
#include "base/alloc.h"
#include "base/file.h"
#include "page/run_page.h"
#include "page/run_page_parts.h"
#include "test/harness/command.h"
#include "test/harness/html.h"
#include "test/harness/test.h"

static const char hostile[] = "</td><script>alert('x')</script>\"&amp; onload=\"x\x01\xff";

static char *copy(const char *text) { return xstrdup(text); }

static void add_evaluation(PageEvaluation *e, const char *name) {
  enum { CLASSES = 3 };
  static const int64_t count[CLASSES * CLASSES] = {5, 1, 2, 0, 7, 0, 3, 0, 0};
  e->step = 20;
  e->images = 4;
  page_pair_add(&e->metrics, "bbox_AP", "0.25");
  e->columns = 2;
  e->column[0] = copy("objects");
  e->column[1] = copy("box AP");
  e->categories = 2;
  e->category = xcalloc(2, sizeof *e->category);
  e->category[0] = (PageCategory){.name = copy(name), .value = {8, NAN}};
  e->category[1] = (PageCategory){.name = copy("dog"), .value = {7, 0.5}};
  PagePanel *p = page_panel_add(&e->panels, "Boxes", "recall", "precision");
  PageCurve *c = page_panel_curve(p, NULL, name);
  for (int i = 0; i <= 10; i++) page_curve_add(c, i / 10.0, 1 - i / 10.0);
  e->rule = copy("Rule.");
  e->confusion = (Confusion){.classes = CLASSES, .background = true};
  int64_t *own = xmalloc(sizeof count);
  memcpy(own, count, sizeof count);
  const char **names = xcalloc(CLASSES, sizeof *names);
  for (int i = 0; i < CLASSES; i++) names[i] = copy(i == 0 ? name : i == 1 ? "dog" : "background");
  e->confusion.count = own;
  e->confusion.name = names;
  e->pictures = 2;
  e->picture = xcalloc(2, sizeof *e->picture);
  for (int i = 0; i < 2; i++)
    e->picture[i] = (PagePicture){.group = copy(i ? "The best" : "The worst"),
                                  .file = copy(name),
                                  .caption = copy("quality 0.5"),
                                  .truth = copy("data:image/jpeg;base64,AAAA"),
                                  .found = copy(i ? "data:text/html;base64,AAAA" : "data:image/jpeg;base64,BBB=")};
}

static RunPage make_page(const char *name, bool evaluated) {
  RunPage r = {.name = copy(name), .state = copy("complete"), .command = copy(name), .data = copy(name)};
  page_pair_add(&r.facts, "model", name);
  page_pair_add(&r.settings, "lr", name);
  page_pair_add(&r.machine, "cpu", name);
  r.warnings = 1;
  r.warning = xcalloc(1, sizeof *r.warning);
  r.warning[0] = copy(name);
  PagePanel *p = page_panel_add(&r.panels, "Losses", "step", "loss");
  p->noisy = p->log_y = true;
  PageCurve *c = page_panel_curve(p, "loss", name);
  for (int i = 0; i < 50; i++) page_curve_add(c, i, i % 7 == 3 ? NAN : 5.0 / (i + 1));
  r.memories = r.parts = 1;
  r.memory = xcalloc(1, sizeof *r.memory);
  r.memory[0] = (PageMemory){copy(name), copy("host"), 3e6};
  r.part = xcalloc(1, sizeof *r.part);
  r.part[0] = (PagePart){copy(name), 0.002, NAN};
  r.timed_steps = 4;
  r.evaluation.step = -1;
  if (evaluated) add_evaluation(&r.evaluation, name);
  return r;
}

// The page of n runs; caller frees.
static char *page_of(const RunPage *runs, int n) {
  Err err;
  const char *path = in_tmp("run_page.html");
  char *text = NULL;
  if (EXPECT(run_page_write(path, runs, n, &err))) text = file_read(path, &(size_t){0}, &err);
  EXPECT(text);
  return text ? text : xstrdup("");
}

static void expect_alone(const char *text) {
  EXPECT(html_well_formed(text));
  EXPECT(!strstr(text, "http:") && !strstr(text, "https:") && !strstr(text, "<script") && !strstr(text, "url("));
  EXPECT(!strstr(text, "onload=\"") && strstr(text, "prefers-color-scheme: dark"));
}

TEST(run_page_holds_all_of_a_run) {
  static const char *const parts[] = {"id=\"warnings\"", "id=\"curves\"", "id=\"evaluation\"", "id=\"confusion\"",
                                      "id=\"images\"",   "id=\"time\"",   "id=\"memory\"",     "id=\"settings\"",
                                      "After step 20",   "quality 0.5",   "2.00 ms in all",    ">3.0</td>"};
  RunPage r = make_page("cat & co", true);
  char *text = page_of(&r, 1);
  expect_alone(text);
  for (int i = 0; i < COUNT(parts); i++)
    if (!EXPECT(strstr(text, parts[i]))) printf("    %s\n", parts[i]);
  EXPECT_INT(html_count(text, "<svg "), 2);
  EXPECT_INT(html_count(text, "<img "), 4);
  EXPECT(strstr(text, "cat &amp; co") && !strstr(text, "cat & co"));
  // The row of cats: 5 of 8 right, 1 a dog, 2 not found.
  EXPECT(strstr(text, ">5</td>") && strstr(text, "<td class=\"w\" style=\"--s:0.40\">1</td>"));
  // What is found where nothing is has no share of the truth.
  EXPECT(strstr(text, ">background</th><td class=\"name\">cat &amp; co</td>"
                      "<td class=\"n\">3</td><td class=\"n\">–</td>"));
  free(text);
  run_page_free(&r);
}

// A category, a file, a class or an option may be called anything.
TEST(run_page_escapes_names) {
  RunPage r[] = {make_page(hostile, true), make_page(hostile, true)};
  for (int n = 1; n <= 2; n++) {
    char *text = page_of(r, n);
    expect_alone(text);
    EXPECT(strstr(text, "&lt;script&gt;alert('x')&lt;/script&gt;&quot;&amp;amp; onload=&quot;x\uFFFD\uFFFD"));
    free(text);
  }
  run_page_free(&r[0]);
  run_page_free(&r[1]);
}

// Lines stay lines in a block, and do no harm in the name of a file or of a category.
TEST(run_page_keeps_newlines_and_tabs) {
  RunPage r = make_page("a\nb\tc", true);
  free(r.data);
  r.data = copy("train\n\timages  4\nval\n");
  char *text = page_of(&r, 1);
  expect_alone(text);
  EXPECT(strstr(text, "<pre>train\n\timages  4\nval\n</pre>"));
  EXPECT(strstr(text, "<th scope=\"row\">a\nb\tc</th>") && strstr(text, "alt=\"found: a&#10;b&#9;c\""));
  EXPECT(!strstr(text, "\uFFFD"));
  free(text);
  run_page_free(&r);
}

// Whether the page's style has a rule with exactly this selector, and the declaration in it.
static bool style_has(const char *text, const char *selector, const char *declaration) {
  char *begin = xasprintf("\n%s {", selector);
  const char *rule = strstr(text, begin), *end = rule ? strchr(rule, '}') : NULL, *at = end ? rule : NULL;
  free(begin);
  return at && (at = strstr(at, declaration)) && at < end;
}

// A name of hundreds of letters without a blank is broken into lines wherever it stands in a cell or over a chart.
TEST(run_page_breaks_long_names) {
  enum { LETTERS = 300 };
  static const char cells[] = ".scroll tbody th, td.name";
  char name[LETTERS + 1] = {0};
  memset(name, 'x', LETTERS);
  RunPage r = make_page(name, true);
  PagePanel *p = page_panel_add(&r.evaluation.category_panels, name, "recall", "precision");
  page_curve_add(page_panel_curve(p, NULL, name), 0, 1);
  char *text = page_of(&r, 1), *cell = xasprintf("<td class=\"name\">%s</td>", name),
       *chart = xasprintf("<div class=\"charts small\">\n<figure><figcaption><b>%s</b>", name);
  expect_alone(text);
  EXPECT(strstr(text, cell) && style_has(text, cells, "max-width: 14rem") &&
         style_has(text, cells, "overflow-wrap: break-word"));
  EXPECT(strstr(text, chart) && style_has(text, ".charts figcaption b", "overflow-wrap: anywhere"));
  free(text);
  free(cell);
  free(chart);
  run_page_free(&r);
}

// Addresses of pictures are read from a file, too.
TEST(run_page_shows_pixels_alone) {
  RunPage r = make_page("run", true);
  char *text = page_of(&r, 1);
  EXPECT(strstr(text, "src=\"data:image/jpeg;base64,BBB=\"") && !strstr(text, "text/html;base64") &&
         strstr(text, "src=\"\""));
  free(text);
  run_page_free(&r);
}

TEST(run_page_of_a_run_without_evaluation) {
  RunPage r = make_page("run", false), nothing = {.name = xstrdup("empty"), .evaluation = {.step = -1}};
  char *text = page_of(&r, 1), *empty = page_of(&nothing, 1);
  expect_alone(text);
  expect_alone(empty);
  EXPECT(strstr(text, "None is kept so far.") && !strstr(text, "id=\"images\""));
  EXPECT(strstr(empty, "The log holds no step.") && strstr(empty, "the session was too short"));
  free(text);
  free(empty);
  run_page_free(&r);
  run_page_free(&nothing);
}

// Of weights that were scored by themselves: nothing that only a run has.
TEST(run_page_of_an_evaluation_alone) {
  RunPage r = make_page("weights", true);
  r.evaluation.step = PAGE_OF_WEIGHTS;
  char *text = page_of(&r, 1);
  expect_alone(text);
  EXPECT(strstr(text, "<p class=\"faint\">4 images") && strstr(text, "id=\"confusion\"") &&
         !strstr(text, "After step"));
  EXPECT(!strstr(text, "\"curves\"") && !strstr(text, "#curves") && !strstr(text, "\"time\"") &&
         !strstr(text, "#time"));
  free(text);
  run_page_free(&r);
}

// Side by side, then each by itself; settings that are the same are not among those that differ.
TEST(run_page_of_several) {
  RunPage r[] = {make_page("one", true), make_page("two", true), make_page("three", false)};
  for (int i = 0; i < COUNT(r); i++) page_pair_add(&r[i].settings, "batch", "16");
  char *text = page_of(r, COUNT(r));
  expect_alone(text);
  EXPECT(strstr(text, "<h1>3 runs</h1>") && strstr(text, "id=\"r2-curves\"") && !strstr(text, "id=\"curves\""));
  const char *differing = strstr(text, "Settings that differ</h2>"), *machines = strstr(text, "<summary>Machines");
  if (EXPECT(differing && machines && differing < machines)) {
    const char *batch = strstr(differing, ">batch<"), *lr = strstr(differing, ">lr<");
    EXPECT(lr && lr < machines && batch > machines);
  }
  EXPECT_INT(html_count(text, "<svg "), 1 + 3 + 2); // together; each; precision over recall of two
  free(text);
  for (int i = 0; i < COUNT(r); i++) run_page_free(&r[i]);
}

// The first run's, then what others add; a run without a category, or without the column, has no value.
TEST(run_page_compares_all_categories) {
  static const char *const rows[] = {
      "<th scope=\"row\">cat</th><td class=\"n\">0.250</td><td class=\"n\">–</td><td class=\"n\">–</td>",
      "<th scope=\"row\">dog</th><td class=\"n\">0.500</td><td class=\"n\">0.500</td><td class=\"n\">–</td>",
      "<th scope=\"row\">emu</th><td class=\"n\">–</td><td class=\"n\">0.750</td><td class=\"n\">–</td>"};
  RunPage r[] = {make_page("cat", true), make_page("emu", true), make_page("photo", true)};
  r[0].evaluation.category[0].value[1] = 0.25;
  r[1].evaluation.category[0].value[1] = 0.75;
  free(r[2].evaluation.column[1]);
  r[2].evaluation.column[1] = copy("recall"); // of a classifier
  char *text = page_of(r, COUNT(r));
  const char *at = strstr(text, "<summary>box AP of each category</summary>");
  char *end = at ? strstr(at, "</details>") : NULL;
  if (EXPECT(end)) {
    *end = '\0';
    EXPECT_INT(html_count(at, "<th scope=\"row\">"), COUNT(rows));
    for (int i = 0; i < COUNT(rows) && EXPECT(at = strstr(at, rows[i])); i++) at++;
  }
  free(text);
  for (int i = 0; i < COUNT(r); i++) run_page_free(&r[i]);
}

// Each of as many runs as build/report takes has a colour of its own, on either ground.
TEST(run_page_tells_eight_runs_apart) {
  enum { RUNS = 8, COLOUR = 7 }; // "#0072b2"
  RunPage r[RUNS];
  for (int i = 0; i < RUNS; i++) r[i] = make_page((const char[]){(char)('a' + i), '\0'}, false);
  char *text = page_of(r, RUNS), colour[RUNS][COLOUR + 1] = {{0}};
  const char *at = strstr(text, "<svg ");
  for (int i = 0; i < RUNS && EXPECT(at && (at = strstr(at, "class=\"raw\" stroke=\"#"))); i++) {
    at += strlen("class=\"raw\" stroke=\"");
    memcpy(colour[i], at, COLOUR);
    for (int k = 0; k < i; k++)
      if (!EXPECT(strcmp(colour[i], colour[k]))) printf("    runs %d and %d: %s\n", k, i, colour[i]);
  }
  for (int i = 0; i < RUNS; i++) {
    char name[32];
    snprintf(name, sizeof name, "<i class=\"c%d\">", i); // in the legend
    EXPECT_INT(html_count(text, name), 1);
    snprintf(name, sizeof name, ".c%d { background: #", i); // light and dark
    EXPECT_INT(html_count(text, name), 2);
  }
  free(text);
  for (int i = 0; i < RUNS; i++) run_page_free(&r[i]);
}

// Pictures that a page has no room for are left out, which it says.
TEST(run_page_ends_where_it_is_full) {
  RunPage r = make_page("run", true);
  char *large = xmalloc(PAGE_BYTES);
  memset(large, 'A', PAGE_BYTES - 1);
  large[PAGE_BYTES - 1] = '\0';
  memcpy(large, "data:image/jpeg;base64,", 23);
  free(r.evaluation.picture[0].truth);
  r.evaluation.picture[0].truth = large;
  char *text = page_of(&r, 1);
  expect_alone(text);
  EXPECT(strlen(text) < PAGE_BYTES / 2 && strstr(text, "1 pictures are left out"));
  free(text);
  run_page_free(&r);
}

// Of many classes those with most mistakes are shown, and all others together.
TEST(run_page_of_many_classes) {
  enum { MANY = 60 };
  RunPage r = {.name = xstrdup("many"), .evaluation = {.step = 1, .images = 9, .rule = xstrdup("Rule.")}};
  int64_t *count = xcalloc(MANY * MANY, sizeof *count);
  for (int i = 0; i < MANY; i++) count[i * MANY + i] = 10;
  count[57 * MANY + 3] = 4; // the class that is most often wrong
  count[3 * MANY + 57] = 4;
  r.evaluation.confusion = (Confusion){.classes = MANY, .count = count};
  char *text = page_of(&r, 1);
  expect_alone(text);
  EXPECT(strstr(text, "The 26 of 60 classes with most mistakes") && strstr(text, "<span>57</span>") &&
         strstr(text, "<span>others</span>") && !strstr(text, "<span>40</span>"));
  EXPECT(strstr(text, "Commonest mistakes"));
  free(text);
  run_page_free(&r);
}

TEST(run_page_that_cannot_be_written) {
  Err err;
  RunPage r = make_page("run", false);
  EXPECT(!run_page_write("/nonexistent/page.html", &r, 1, &err) && strstr(err.msg, "/nonexistent/page.html"));
  run_page_free(&r);
}
