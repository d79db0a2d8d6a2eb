// Catches endless reports of bad images, and bad images that are not listed.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/batches/bad_images.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

static void tell_fifteen(void *path) {
  BadImages *b = bad_images_open();
  bad_images_list_in(b, "train", path);
  for (int i = 1; i <= 15; i++) {
    char name[16], reason[32];
    snprintf(name, sizeof name, "%d.png", i);
    snprintf(reason, sizeof reason, "%d.png: torn", i);
    bad_images_add(b, &(CocoImage){.id = i, .file_name = name}, "replaced", reason);
  }
  bad_images_close(b);
}

TEST(bad_images_are_ten_lines_and_a_list) {
  char *path = xasprintf("%s/bad-images.tsv", test_tmp());
  const char *said;
  EXPECT_INT(run_in_child(tell_fifteen, path, &said), 0);
  int lines = 0;
  for (const char *at = said; (at = strchr(at, '\n')); at++) lines++;
  EXPECT_INT(lines, 11);
  EXPECT(strstr(said, "unusable image replaced: 10.png: torn\n") && !strstr(said, "11.png"));
  EXPECT(strstr(said, "unusable images replaced: more than 10; all are listed in /") && strstr(said, path));
  char *list = file_read(path, &(size_t){0}, NULL);
  CHECK(list);
  lines = 0;
  for (const char *at = list; (at = strchr(at, '\n')); at++) lines++;
  EXPECT_INT(lines, 16);
  EXPECT(!strncmp(list, defect_rows_head, strlen(defect_rows_head)) &&
         strstr(list, "train\tfile\timage\t15\t15.png\t15.png: torn\n"));
  free(list);
  free(path);
  EXPECT_INT(run_in_child(tell_fifteen, NULL, &said), 0);
  EXPECT(strstr(said, "unusable images replaced: more than 10; the rest are only counted\n"));
}
