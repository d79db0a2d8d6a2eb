// Catches mask targets and pasted masks that depend on the number of threads.
#include <omp.h>
#include "test/harness/mask_fixture.h"

TEST_OP(masks_threads) {
  enum { ROIS = 18 };
  Draw r = draw_begin(180);
  MaskScene s;
  scene_random(&s, f, &r, ROIS);
  PredictedMasks p;
  predictions_random(&p, f, &r);
  size_t bytes = IMAGES * 8 * p.words * sizeof(uint32_t);
  Tensor target[3];
  uint32_t *bits[3];
  MaskTarget how = {.size = 14};
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    target[t] = fixture_single(f, ROIS + 2, 14, 14);
    bits[t] = fixture_alloc(f, bytes);
    RUN(f, mask_target, &how, s.images, &s.truth, &s.targets, &target[t]);
    RUN(f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, bits[t], p.words);
    EXPECT(!memcmp(target[0].data, target[t].data, tensor_bytes(&target[0])));
    EXPECT(!memcmp(bits[0], bits[t], bytes));
  }
  omp_set_num_threads(before);
}
