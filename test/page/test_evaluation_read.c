// What the page reads of an evaluation: of older versions, too; what is no such file is refused by name.
#include "base/alloc.h"
#include "page/evaluation_read.h"
#include "test/harness/command.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(evaluation_read_of_none) {
  static const char *const files[] = {
      "",
      "[1]",
      "{\"step\":1,\"confusion\":{\"names\":[\"a\"],\"cells\":[[0,1,2]]}}",
      "{\"step\":1,\"confusion\":{\"names\":[\"a\"],\"cells\":[[-1,0,2]]}}",
      "{\"step\":1,\"columns\":[1]}",
      "{\"step\":1,\"columns\":[\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"]}",
      "{\"step\":1,\"pictures\":[[]]}",
      "{\"step\":1,\"panels\":[{\"curves\":[[\"a\",[1,2",
  };
  Err err;
  const char *path = in_tmp("evaluation.json");
  for (int i = 0; i < COUNT(files); i++) {
    RunPage page = {0};
    write_text(path, files[i]);
    err = (Err){""};
    if (!EXPECT(!evaluation_read(path, test_tmp(), &page, &err) && strstr(err.msg, "evaluation.json")))
      printf("    %s\n", files[i]);
    run_page_free(&page);
  }
  // A list of y that is longer or shorter than that of x.
  RunPage page = {0};
  write_text(path, "{\"step\":1,\"panels\":[{\"curves\":[[\"a\",[1,2],[3]],[\"b\",[1],[2,3]]]}],\"more\":{}}");
  EXPECT(evaluation_read(path, test_tmp(), &page, &err) && page.evaluation.panels.item[0].curve[1].n == 1);
  run_page_free(&page);
}

// Figures were text until 1.1, with -1 where no ground truth defines one; the confusion was at one score.
TEST(evaluation_read_of_figures) {
  static const char *const files[] = {
      "{\"step\":1,\"metrics\":{\"a\":\"0.25\",\"b\":\"-1\"},"
      "\"confusion\":{\"background\":true,\"names\":[\"x\",\"background\"],\"cells\":[[0,1,7],[1,0,2]]}}",
      "{\"step\":1,\"metrics\":{\"a\":0.25,\"b\":null},\"confusion\":{\"background\":true,\"names\":[\"x\","
      "\"background\"],\"scores\":[0.05,0.5,0.95],\"report_score\":0.5,\"opens_at\":null,\"highest_score\":null,"
      "\"objects\":[7],\"cells\":[[0,0,[1]],[0,1,[6,7,7]],[1,0,[3,2]]]}}"};
  const char *path = in_tmp("figures.json");
  for (int i = 0; i < COUNT(files); i++) {
    Err err;
    RunPage page = {0};
    write_text(path, files[i]);
    if (EXPECT(evaluation_read(path, test_tmp(), &page, &err)) && EXPECT_INT(page.evaluation.metrics.n, 2)) {
      EXPECT_STR(page.evaluation.metrics.item[0].value, "0.25");
      EXPECT_STR(page.evaluation.metrics.item[1].value, "-1");
      const int64_t *count = page.evaluation.confusion.count;
      EXPECT(count && count[0] == 0 && count[1] == 7 && count[2] == 2 && count[3] == 0);
    }
    run_page_free(&page);
  }
}

// Pictures are those of the folder, whose names lead nowhere else, or in older versions addresses themselves.
TEST(evaluation_read_finds_pictures) {
  Err err;
  const char *path = in_tmp("pictures.json");
  RunPage page = {0};
  CHECK(dirs_make(in_tmp("pictures"), &err));
  write_text(in_tmp("pictures/a.jpg"), "A");
  write_text(in_tmp("b.jpg"), "B");
  write_text(path, "{\"step\":1,\"pictures\":[[\"g\",\"f\",\"c\",\"data:image/jpeg;base64,AA==\",null],"
                   "[\"g\",\"f\",\"c\",\"pictures/a.jpg\",\"pictures/gone.jpg\"],"
                   "[\"g\",\"f\",\"c\",\"pictures/../b.jpg\",null],[\"g\",\"f\",\"c\",\"b.jpg\",null]]}");
  if (EXPECT(evaluation_read(path, test_tmp(), &page, &err)) && EXPECT_INT(page.evaluation.pictures, 2)) {
    EXPECT_STR(page.evaluation.picture[0].truth, "data:image/jpeg;base64,AA==");
    EXPECT_STR(page.evaluation.picture[1].truth, "data:image/jpeg;base64,QQ==");
    EXPECT(!page.evaluation.picture[1].found);
  }
  run_page_free(&page);
}
