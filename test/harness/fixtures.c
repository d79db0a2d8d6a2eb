#include "test/harness/fixtures.h"
#include <dirent.h>
#include "base/alloc.h"
#include "test/harness/test.h"

bool evaluator_fixtures(void (*check)(const char *path, void *context), void *context) {
  static const char *const folders[] = {"cocoapi_val2014_100", "fce_small",           "hotcoco_adversarial",
                                        "padilla_voc100_bbox", "synth_coco_open_val", "synth_coco_open_train"};
  for (int i = 0; i < COUNT(folders); i++) {
    char relative[64];
    snprintf(relative, sizeof relative, "cocoeval/%s", folders[i]);
    const char *shared = shared_path(relative);
    DIR *dir = shared ? opendir(shared) : NULL;
    if (!dir) {
      test_skip("no cocoeval fixtures");
      return false;
    }
    char *folder = xstrdup(shared); // shared_path's buffer is for a few calls only
    for (struct dirent *entry; (entry = readdir(dir));) {
      if (!strstr(entry->d_name, ".json")) continue;
      char *path = xasprintf("%s/%s", folder, entry->d_name);
      check(path, context);
      free(path);
    }
    free(folder);
    closedir(dir);
  }
  return true;
}
