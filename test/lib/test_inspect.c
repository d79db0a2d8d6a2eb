// Catches inspections of a handle that do not happen, run in another thread or lose results, and wrong counters.
#include <pthread.h>
#include "lib/inspect.h"
#include "models/rcnn.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

typedef struct Seen {
  int looks;
  pthread_t by;
  const Model *model;
} Seen;

static void look(Engine *e, void *seen) {
  Seen *s = seen;
  s->looks++;
  s->by = pthread_self();
  s->model = e->model;
}

static void fail(Engine *e, void *seen) {
  (void)e;
  (void)seen;
  die(EXIT_RUN, "a look that fails");
}

TEST(inspect_looks_at_the_engine_of_a_handle) {
  enum { N = 3 };
  maskrcnn_options o = library_options();
  o.batch = 1;
  maskrcnn *m = library_open(&o);
  if (!m) return;
  test_limit(60);
  maskrcnn_image images[N];
  maskrcnn_results *r;
  Seen s = {0};
  int64_t before[MAX_COUNTERS], one[MAX_COUNTERS], all[MAX_COUNTERS];
  for (int i = 0; i < N; i++) images[i] = library_image(70, 60, 0, 4);
  inspect_counters(m, before);
  EXPECT(before[COUNT_ROIS] == 0);
  EXPECT_INT(inspect_engine(m, look, &s, &why), MASKRCNN_OK);
  EXPECT(s.looks == 1 && !pthread_equal(s.by, pthread_self()) && s.model == &model_maskrcnn);
  // While a batch waits to be computed: its results come all the same.
  EXPECT_INT(maskrcnn_submit(m, images, 1, 1, &why), MASKRCNN_OK);
  EXPECT_INT(inspect_engine(m, look, &s, &why), MASKRCNN_OK);
  EXPECT_INT(s.looks, 2);
  if (EXPECT_INT(maskrcnn_next(m, -1, &r, &why), MASKRCNN_OK)) maskrcnn_results_free(r);
  inspect_counters(m, one);
  EXPECT(one[COUNT_ROIS] > 0);
  if (EXPECT_INT(maskrcnn_run(m, images + 1, N - 1, &r, &why), MASKRCNN_OK)) maskrcnn_results_free(r);
  inspect_counters(m, all);
  EXPECT_INT(all[COUNT_ROIS], N * one[COUNT_ROIS]); // the same image three times
  EXPECT_INT(inspect_engine(m, fail, NULL, &why), MASKRCNN_DEAD);
  EXPECT(strstr(why.message, "a look that fails"));
  for (int i = 0; i < N; i++) library_free(&images[i]);
  maskrcnn_close(m);
}
