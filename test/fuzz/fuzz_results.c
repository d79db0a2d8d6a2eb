// Catches result files that crash cocoeval, or change when it writes them again.
//
// Fuzzes a result file on its way through cocoeval: read against a data set, scored, and written again. Seeds:
// test/corpus/results.
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "data/coco/cocoeval.h"
#include "data/coco/cocoeval_confusion.h"
#include "test/fuzz/memory_file.h"

// Boxes, polygons, runs, a crowd, an id that comes twice, an image without size and one without objects.
static const char annotations[] =
    "{\"images\":[{\"id\":1,\"height\":8,\"width\":6},{\"id\":2,\"height\":9,\"width\":9},{\"id\":3},"
    "{\"id\":4,\"height\":5,\"width\":5}],\"categories\":[{\"id\":3,\"name\":\"a\"},{\"id\":7,\"name\":\"b\"}],"
    "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":3,\"bbox\":[1,1,3,4],\"area\":12,\"iscrowd\":0,"
    "\"segmentation\":[[1,1,4,1,4,5,1,5]]},{\"id\":2,\"image_id\":1,\"category_id\":3,\"bbox\":[0,0,6,8],\"area\":48,"
    "\"iscrowd\":1,\"segmentation\":{\"size\":[8,6],\"counts\":[0,48]}},{\"id\":3,\"image_id\":2,\"category_id\":7,"
    "\"bbox\":[2,2,5,5]},{\"id\":3,\"image_id\":2,\"category_id\":3,\"bbox\":[3,3,4,4],\"segmentation\":"
    "{\"size\":[9,9],\"counts\":[30,3,6,3,39]}},{\"id\":0,\"image_id\":3,\"category_id\":7,\"bbox\":[0,0,2,2]}]}";

static const Coco *ground_truth(void) {
  static Coco gt;
  Err err;
  if (gt.num_images > 0) return &gt;
  CHECK(coco_load(&gt, memory_file(annotations, sizeof annotations - 1), &err));
  omp_set_num_threads(1); // the overhead of several would be most of the work
  return &gt;
}

static void check_scores(const Coco *gt, const CocoResults *dt, IouType type) {
  EvalSummary s;
  Err err = {""};
  bool ok = cocoeval_run(&s, gt, dt, type, &err);
  CHECK(ok || (*err.msg && !strchr(err.msg, '\n')));
  for (int i = 0; ok && i < EVAL_STATS; i++) CHECK(s.stats[i] == -1 || (s.stats[i] >= 0 && s.stats[i] <= 1));
  cocoeval_free(&s);
}

// No more is detected than there are detections, and no more objects are found or missed than there are.
static void check_confusion(const Coco *gt, const CocoResults *dt, IouType type) {
  Err err = {""};
  ConfusionCounts c;
  const bool ok = eval_confusion(&c, gt, dt, type, &(double){0.1}, 1, 0.3, &err);
  CHECK(ok || (*err.msg && !strchr(err.msg, '\n')));
  const int n = gt->num_categories;
  int64_t objects = 0, detections = 0;
  for (size_t i = 0; i < c.cells; i++) {
    CHECK(c.cell[i] < (int64_t)(n + 1) * (n + 1) && (i == 0 || c.cell[i] > c.cell[i - 1]));
    objects += c.cell[i] / (n + 1) < n ? c.count[i] : 0;
    detections += c.cell[i] % (n + 1) < n ? c.count[i] : 0;
  }
  CHECK(objects <= gt->num_anns && detections <= dt->n);
  confusion_counts_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const Coco *gt = ground_truth();
  CocoResults dt;
  Err err = {""};
  if (!coco_results_load(&dt, memory_file(bytes, size), gt, &err)) {
    CHECK(*err.msg && !strchr(err.msg, '\n'));
    return 0;
  }
  for (int type = EVAL_BBOX; type <= EVAL_BOUNDARY; type++) {
    check_scores(gt, &dt, (IouType)type);
    check_confusion(gt, &dt, (IouType)type);
  }
  CHECK(coco_results_save(&dt, "/dev/null", &err));
  coco_results_free(&dt);
  return 0;
}
