#include "test/harness/infer.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/coco.h"
#include "data/images/image.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

const char *infer_weights(void) {
  static char path[512];
  if (*path) return path;
  EXPECT_INT(train_shapes("", "infer-model", "--stop-after 1"), 0);
  CHECK(!rename(in_tmp("infer-model"), test_kept("infer-model")));
  snprintf(path, sizeof path, "%s", test_kept("infer-model/checkpoint.safetensors"));
  return path;
}

const char *infer_line(const char *out) {
  static char line[2048];
  snprintf(line, sizeof line, "exec env OMP_NUM_THREADS=1 %s --weights %s --device cpu --score 0.01 --out %s/%s",
           tool("infer"), infer_weights(), test_tmp(), out);
  return line;
}

int results_in(const char *path) {
  CocoResults r;
  if (!coco_results_load(&r, path, NULL, NULL)) return -1;
  int n = r.n;
  coco_results_free(&r);
  return n;
}

bool is_picture(const char *path) {
  Image im;
  bool is = image_load(&im, path, NULL);
  image_free(&im);
  return is;
}

void expect_refused(const char *says, const char *file, const char *out, const char *fmt, ...) {
  va_list args;
  char *before = xasprintf("%s/before", test_tmp());
  CHECK(!command(NULL, "cp %s %s", file, before));
  va_start(args, fmt);
  expect_mistake_of(infer_line(out), says, fmt, args);
  va_end(args);
  EXPECT(same_file(file, before));
  free(before);
}
