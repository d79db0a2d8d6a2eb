// Catches detections damaged on their way from other ranks.
#include "evaluation/gathered.h"
#include "test/harness/test.h"

enum { IMAGES = 9 };

static uint32_t runs[3] = {5, 4, 11};

static CocoResult result(int i) {
  return (CocoResult){.image_id = 1LL << 40,
                      .category_id = 3 + i,
                      .bbox = {0.1 * i, 2, 3, 1e-30},
                      .score = 0.3 + i,
                      .has_bbox = true,
                      .has_segm = true,
                      .rle = {4, 5, 3, runs}};
}

static ByteBuffer pack(int image, int n) {
  ByteBuffer p = {0};
  CocoResult found[3];
  for (int i = 0; i < n; i++) found[i] = result(i);
  gathered_put(&p, image, found, n);
  return p;
}

static void release(CocoResult *found, int n) { coco_results_free(&(CocoResults){.items = found, .n = n}); }

TEST(gathered_results_are_as_they_were) {
  for (int n = 0; n <= 3; n++) {
    ByteBuffer p = pack(7, n);
    ByteReader u = {p.data, p.bytes};
    CocoResult *found;
    int image, got;
    if (!EXPECT(gathered_take(&u, IMAGES, &image, &found, &got))) return;
    EXPECT(image == 7 && got == n && !u.left);
    for (int i = 0; i < got; i++) {
      const CocoResult want = result(i), *r = &found[i];
      EXPECT(r->image_id == want.image_id && r->category_id == want.category_id && r->score == want.score);
      EXPECT(!memcmp(r->bbox, want.bbox, sizeof want.bbox) && r->has_bbox && r->has_segm && !r->shares_runs);
      EXPECT(r->rle.h == 4 && r->rle.w == 5 && r->rle.n == 3 && !memcmp(r->rle.runs, runs, sizeof runs));
    }
    release(found, got);
    byte_buffer_free(&p);
  }
}

static bool taken(const char *data, size_t bytes) {
  ByteReader u = {data, bytes};
  CocoResult *found;
  int image, n;
  if (!gathered_take(&u, IMAGES, &image, &found, &n)) return false;
  release(found, n);
  return true;
}

TEST(gathered_results_are_checked) {
  ByteBuffer p = pack(8, 2);
  EXPECT(taken(p.data, p.bytes));
  for (size_t cut = 0; cut < p.bytes; cut++) EXPECT(!taken(p.data, cut));
  static const int odd[] = {-1, IMAGES, 1 << 30};
  for (int at = 0; at < 2; at++) // the image, and how many were found
    for (int i = 0; i < COUNT(odd); i++) {
      int kept;
      if (at == 1 && odd[i] == IMAGES) continue;
      memcpy(&kept, p.data + at * (int)sizeof kept, sizeof kept);
      memcpy(p.data + at * (int)sizeof kept, &odd[i], sizeof kept);
      EXPECT(!taken(p.data, p.bytes));
      memcpy(p.data + at * (int)sizeof kept, &kept, sizeof kept);
    }
  const size_t last = p.bytes - sizeof *runs;
  p.data[last]++; // runs that no longer add up
  EXPECT(!taken(p.data, p.bytes));
  byte_buffer_free(&p);
}
