// Catches training that runs but does not learn real images.
#include <stddef.h>
#include "test/harness/command.h"
#include "test/harness/test.h"

// AP of the last evaluation, from the line "step N: bbox AP 0.xxx AP50 0.xxx  mask AP 0.xxx …".
static bool last_scores(const char *said, double *bbox, double *mask) {
  const char *line = NULL, *p = said;
  while ((p = strstr(p, ": bbox AP "))) line = p++;
  const char *second = line ? strstr(line, "mask AP ") : NULL;
  if (!second) return false;
  *bbox = atof(line + strlen(": bbox AP "));
  *mask = atof(second + strlen("mask AP "));
  return true;
}

// The first eight annotated COCO training images by id, learnt by heart.
TEST_TIER(long_tiny_overfits_eight_coco_images, 2) {
  const char *coco = shared_path("coco"), *said;
  if (!coco) {
    test_skip("no ../shared/data/coco");
    return;
  }
  int status = command(&said,
                       "%s --data %s --model tiny --size 224 --limit 8 --val-split train --val-limit 8 --batch 4 "
                       "--iters 1200 --lr 0.05 --schedule cosine --warmup 100 --clip-grad 5 --flip 0 --out %s/eight",
                       tool("train"), coco, test_tmp());
  double bbox = 0, mask = 0;
  EXPECT_INT(status, 0);
  EXPECT(last_scores(said, &bbox, &mask));
  printf("  eight COCO images: bbox AP %.3f  mask AP %.3f\n", bbox, mask);
  EXPECT(bbox >= 0.7);
  EXPECT(mask >= 0.6);
}

// Unseen nuclei: the loss falls, AP rises.
TEST_TIER(long_tiny_learns_nuclei, 2) {
  const char *nuclei = shared_path("nuclei"), *said;
  if (!nuclei) {
    test_skip("no ../shared/data/nuclei");
    return;
  }
  int status = command(&said,
                       "%s --data %s --model tiny --size 192 --batch 8 --iters 600 --lr 0.03 --schedule cosine "
                       "--warmup 100 --clip-grad 10 --eval-every 200 --out %s/nuclei",
                       tool("train"), nuclei, test_tmp());
  if (!EXPECT_INT(status, 0)) return;
  double early = 0, late = 0, mask = 0;
  const char *p = strstr(said, "step 200: bbox AP ");
  if (EXPECT(p != NULL)) early = atof(p + strlen("step 200: bbox AP "));
  EXPECT(last_scores(said, &late, &mask));
  printf("  nuclei: bbox AP %.3f after 200 steps, %.3f after 600; mask AP %.3f\n", early, late, mask);
  EXPECT(late > early && late > 0.15 && mask > 0.15);
}
