// What an evaluation leaves for the page: what is written is read back, and what is no such file is refused by name.
#include "base/alloc.h"
#include "test/harness/command.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"
#include "training/page_evaluation.h"

static void fill(PageEvaluation *e) {
  *e = (PageEvaluation){.step = 1LL << 40, .images = 9, .left_out = 2, .rule = xstrdup("a \"rule\"")};
  page_pair_add(&e->metrics, "segm_AP", "0.125");
  e->columns = 2;
  e->column[0] = xstrdup("objects");
  e->column[1] = xstrdup("AP");
  e->categories = 1;
  e->category = xcalloc(1, sizeof *e->category);
  e->category[0] = (PageCategory){.name = xstrdup("<cat>\n"), .value = {3, NAN}};
  PagePanels *of[] = {&e->panels, &e->category_panels};
  for (int i = 0; i < 2; i++) {
    PageCurve *c = page_panel_curve(page_panel_add(of[i], i ? "cat" : "Boxes", "recall", "precision"), NULL, "IoU 0.5");
    page_curve_add(c, 0, 1.0 / 3);
    page_curve_add(c, 0.1, NAN);
  }
  int64_t *count = xcalloc(4, sizeof *count);
  const char **name = xcalloc(2, sizeof *name);
  count[1] = 7;
  name[0] = xstrdup("<cat>\n");
  name[1] = xstrdup("background");
  e->confusion = (Confusion){.classes = 2, .count = count, .name = name, .background = true};
  e->pictures = 1;
  e->picture = xcalloc(1, sizeof *e->picture);
  e->picture[0] = (PagePicture){.group = xstrdup("worst"),
                                .file = xstrdup("a.png"),
                                .caption = xstrdup("c"),
                                .truth = xstrdup("data:image/jpeg;base64,AA==")};
}

static void expect_panel(const PagePanels *p, const char *title) {
  if (!EXPECT(p->n == 1 && p->item[0].n == 1 && p->item[0].curve[0].n == 2)) return;
  EXPECT_STR(p->item[0].title, title);
  EXPECT_STR(p->item[0].x_label, "recall");
  EXPECT_STR(p->item[0].unit, "precision");
  const PageCurve *c = &p->item[0].curve[0];
  EXPECT_STR(c->label, "IoU 0.5");
  EXPECT(c->x[0] == 0 && c->y[0] == 1.0 / 3 && c->x[1] == 0.1 && isnan(c->y[1]));
}

TEST(page_evaluation_is_read_as_written) {
  RunPage was = {0}, is = {0};
  Err err;
  const char *path = in_tmp("evaluation.json");
  fill(&was.evaluation);
  EXPECT(page_evaluation_write(path, &was.evaluation, &err));
  EXPECT(page_evaluation_step(path) == 1LL << 40);
  const PageEvaluation *e = &is.evaluation;
  if (EXPECT(page_evaluation_read(path, &is.evaluation, &err))) {
    EXPECT(e->step == 1LL << 40 && e->images == 9 && e->left_out == 2 && e->columns == 2 && e->categories == 1);
    EXPECT_STR(e->rule, "a \"rule\"");
    EXPECT_STR(e->metrics.item[0].value, "0.125");
    EXPECT_STR(e->column[1], "AP");
    EXPECT_STR(e->category[0].name, "<cat>\n");
    EXPECT(e->category[0].value[0] == 3 && isnan(e->category[0].value[1]));
    expect_panel(&e->panels, "Boxes");
    expect_panel(&e->category_panels, "cat");
    EXPECT(e->confusion.classes == 2 && e->confusion.background && e->confusion.count[1] == 7 &&
           e->confusion.count[0] == 0 && e->confusion.count[2] == 0);
    EXPECT_STR(e->confusion.name[1], "background");
    EXPECT(e->pictures == 1 && !e->picture[0].found);
    EXPECT_STR(e->picture[0].truth, "data:image/jpeg;base64,AA==");
  }
  run_page_free(&was);
  run_page_free(&is);
}

TEST(page_evaluation_that_is_none) {
  static const char *const files[] = {
      "",
      "[1]",
      "{\"step\":1,\"confusion\":{\"names\":[\"a\"],\"cells\":[[0,1,2]]}}",
      "{\"step\":1,\"confusion\":{\"names\":[\"a\"],\"cells\":[[-1,0,2]]}}",
      "{\"step\":1,\"columns\":[1]}",
      "{\"step\":1,\"columns\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]}",
      "{\"step\":1,\"pictures\":[[]]}",
      "{\"step\":1,\"panels\":[{\"curves\":[[\"a\",[1,2",
  };
  Err err;
  const char *path = in_tmp("evaluation.json");
  for (int i = 0; i < COUNT(files); i++) {
    RunPage page = {0};
    write_text(path, files[i]);
    err = (Err){""};
    if (!EXPECT(!page_evaluation_read(path, &page.evaluation, &err) && strstr(err.msg, "evaluation.json")))
      printf("    %s\n", files[i]);
    run_page_free(&page);
  }
  // A list of y that is longer or shorter than that of x.
  RunPage page = {0};
  write_text(path, "{\"step\":1,\"panels\":[{\"curves\":[[\"a\",[1,2],[3]],[\"b\",[1],[2,3]]]}],\"more\":{}}");
  EXPECT(page_evaluation_read(path, &page.evaluation, &err) && page.evaluation.panels.item[0].curve[1].n == 1);
  run_page_free(&page);
  EXPECT_INT(page_evaluation_step("/nonexistent"), -1);
}
