// Catches annotations elsewhere that messages do not name, or name as COCO's although they are not.
#include "base/alloc.h"
#include "base/file.h"
#include "data/coco/elsewhere.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// Writes a file below a folder, and says what is found there then.
static void expect_found(const char *dir, const char *file, const char *text, const char *want) {
  char *path = xasprintf("%s/%s", dir, file), *folder = xstrdup(path);
  *strrchr(folder, '/') = '\0';
  CHECK(dirs_make(folder, NULL));
  write_text(path, text);
  char *found = coco_elsewhere(dir);
  EXPECT(want ? found && !strcmp(found + strlen(dir) + 1, want) : !found);
  free(found);
  free(folder);
  free(path);
}

TEST(elsewhere_annotations_are_found) {
  static const char coco[] = "\xef\xbb\xbf {\"annotations\":[]}";
  char *dir = xasprintf("%s/elsewhere", test_tmp());
  expect_found(dir, "train/notes.json", "{\"shapes\":[]}", NULL);
  expect_found(dir, "labels/all.json", coco, "labels/all.json");
  free(dir);
  dir = xasprintf("%s/elsewhere-whole", test_tmp());
  expect_found(dir, "two/train/_annotations.coco.json", coco, "two/train/_annotations.coco.json");
  expect_found(dir, "one/result.json", coco, "one/result.json");
  char *path = xasprintf("%s/one/result.json", dir);
  EXPECT(!coco_is_list(path));
  write_text(path, " [{\"annotations\":[]}]"); // Label Studio's own
  EXPECT(coco_is_list(path) && !coco_is_list("/nowhere"));
  free(path);
  EXPECT(!coco_is_training("one") && coco_is_training("Training"));
  expect_found(dir, "train/mine.json", coco, "train/mine.json");
  char *subfolder = coco_in_subfolder(dir);
  EXPECT(subfolder && strstr(subfolder, "/one/result.json"));
  free(subfolder);
  free(dir);
}
