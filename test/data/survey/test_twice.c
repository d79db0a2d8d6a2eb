// Catches objects annotated twice that are missed, and distinct objects that are taken for duplicates.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "data/survey/defects.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// Doubled annotations of one image of 60 x 41; returns how many are said to be there twice, and the first's id.
static int twice_of(const char *annotations, int64_t *first) {
  char *path = xasprintf("%s/doc.json", test_tmp());
  char *text = xasprintf("{\"images\":[{\"id\":1,\"height\":41,\"width\":60},{\"id\":2,\"height\":41,\"width\":60}],"
                         "\"categories\":[{\"id\":1},{\"id\":2}],\"annotations\":[%s]}",
                         annotations);
  Coco c;
  Err err;
  Defects f;
  write_text(path, text);
  CHECK(coco_load(&c, path, &err));
  defects_find_annotations(&f, &c);
  const int n = f.of_type[DEFECT_TWICE].count;
  *first = f.of_type[DEFECT_TWICE].id;
  defects_free(&f);
  coco_free(&c);
  free(path);
  free(text);
  return n;
}

#define A "{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[20,10,20,20]"
#define SQUARE ",\"segmentation\":[[20,10,40,10,40,30,20,30]]}"
#define B(id, image, category, box)                                                                                    \
  ",{\"id\":" #id ",\"image_id\":" #image ",\"category_id\":" #category ",\"bbox\":" box

TEST(twice_is_told) {
  static const struct {
    const char *annotations;
    int n;
    int64_t first;
  } cases[] = {
      {A SQUARE B(5, 1, 1, "[20,10,20,20]") SQUARE, 1, 5},
      {A SQUARE B(5, 1, 1, "[20,10,20,20]") SQUARE B(6, 1, 1, "[20,10,20,20]") SQUARE, 2, 5},
      {A SQUARE B(1, 1, 1, "[20,10,20,20]") SQUARE, 1, 1}, // under one id, too
      {A SQUARE B(5, 1, 1, "[20.4,10,19.8,20]") ",\"segmentation\":[[20.4,10,40,10,40,30,20.4,30]]}", 1, 5}, // by hand
      // the same mask as runs
      {A SQUARE B(5, 1, 1,
                  "[20,10,20,20]") ",\"segmentation\":{\"size\":[41,60],\"counts\":[830,20,21,20,21,20,21,20,21,"
                                   "20,21,20,21,20,21,20,21,20,21,20,21,20,21,20,21,20,21,20,21,20,21,20,21,20,"
                                   "21,20,21,20,21,20,831]}}",
       1, 5},
      {A "}" B(5, 1, 1, "[20,10,20,20]") "}", 1, 5},       // boxes alone
      {A SQUARE B(5, 1, 1, "[20,10,20,20]") "}", 1, 5},    // … of which one has a mask
      {A "}" B(5, 1, 1, "[20,10,20,20.5]") "}", 0, 0},     // two that stand close
      {A SQUARE B(5, 1, 2, "[20,10,20,20]") SQUARE, 0, 0}, // another category
      {A SQUARE B(5, 2, 1, "[20,10,20,20]") SQUARE, 0, 0}, // another image
      {A SQUARE B(5, 1, 1, "[20,10,20,20],\"iscrowd\":1") SQUARE, 0, 0},
      {A SQUARE B(5, 1, 1, "[20,10,20,20]") ",\"segmentation\":[[20,10,22,10,40,30,38,30]]}", 0,
       0}, // two crossing sticks
      {A SQUARE B(5, 1, 1, "[23,10,20,20]") ",\"segmentation\":[[23,10,43,10,43,30,23,30]]}", 0, 0},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    int64_t first;
    const int n = twice_of(cases[i].annotations, &first);
    if (!EXPECT(n == cases[i].n && (n == 0 || first == cases[i].first)))
      printf("  case %d: %d, first %lld\n", i, n, (long long)first);
  }
}

// An image of very many objects takes no longer than it must, be they all one or each another.
TEST(twice_takes_no_time) {
  enum { N = 100000 };
  const double start = now_seconds();
  for (int same = 0; same < 2; same++) {
    char *text = xmalloc(160 * (size_t)N);
    size_t used = 0;
    for (int i = 0; i < N; i++)
      used += (size_t)sprintf(text + used,
                              "%s{\"id\":%d,\"image_id\":1,\"category_id\":1,\"bbox\":[20,10,20,20],"
                              "\"segmentation\":[[20,10,40,10,%d.%06d,30]]}",
                              i ? "," : "", i + 1, same ? 30 : 21 + i % 18, same ? 0 : i);
    int64_t first;
    const int n = twice_of(text, &first);
    if (same) EXPECT_INT(n, N - 1);
    free(text);
  }
  EXPECT(now_seconds() - start < 20);
}
