// Catches labels that cover objects or each other, and objects whose missing label nobody counts.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/pictures/cover.h"
#include "data/pictures/draw_labels.h"
#include "test/harness/test.h"

enum { GRAY = 60, SIZE = 10 };

static Image gray_image(int h, int w) {
  Image im = image_alloc(h, w);
  memset(im.rgb, GRAY, 3 * (size_t)h * (size_t)w);
  return im;
}

static int changed_in(const Image *im, Rect r) {
  int n = 0;
  for (int y = (int)r.y1; y < (int)r.y2; y++)
    for (int x = (int)r.x1; x < (int)r.x2; x++) n += im->rgb[3 * (y * im->w + x)] != GRAY;
  return n;
}

static Rect whole(const Image *im) { return (Rect){0, 0, (float)im->w, (float)im->h}; }

TEST(cover_sums_shares_of_objects) {
  uint8_t bytes[40 * 40] = {0};
  for (int y = 10; y < 20; y++) memset(bytes + 40 * y + 4, 1, 24);
  Rle mask = rle_from_bytes(bytes, 40, 40);
  Spans spans = spans_of(&mask, 0, 0);
  Cover c = cover_open(40, 40, 4);
  cover_add(&c, &spans, (Rect){0, 0, 40, 40});
  cover_add(&c, NULL, (Rect){20, 20, 40, 40});
  cover_add(&c, NULL, (Rect){7, 7, 7, 9}); // no area
  cover_end(&c);
  EXPECT_NEAR(cover_in(&c, (Rect){0, 0, 40, 40}), 2, 1e-6);      // shares of boxes are floats
  EXPECT_NEAR(cover_in(&c, (Rect){4, 8, 16, 20}), 0.5, 1e-12);   // half of the mask, to its last row
  EXPECT_NEAR(cover_in(&c, (Rect){30, 30, 90, 90}), 0.25, 1e-6); // beyond the picture there is nothing
  EXPECT_NEAR(cover_in(&c, (Rect){30, 0, 40, 20}), 0, 1e-12);
  cover_close(&c);
  spans_free(&spans);
  rle_free(&mask);
}

// Objects in rows, with room between the rows for some labels only.
TEST(labels_spare_objects) {
  enum { N = 36, SIDE = 300 };
  Image im = gray_image(SIDE, SIDE);
  LabelledObject objects[N];
  for (int i = 0; i < N; i++) {
    const float x = (float)(i % 6) * 50 + 5, y = (float)(i / 6) * 50 + 8;
    objects[i] = (LabelledObject){.box = {x, y, x + 30, y + 30}, .name = "spoon", .score = 0.9f, .colour = {250, 0, 0}};
  }
  draw_labels(&im, objects, N, SIZE, 1);
  int covered = 0;
  for (int i = 0; i < N; i++) covered += changed_in(&im, objects[i].box);
  const int all = changed_in(&im, whole(&im));
  EXPECT(all > 2000);
  if (!EXPECT(covered < N * 30 * 30 / 5)) printf("    %d of %d changed pixels are of objects\n", covered, all);
  image_free(&im);
}

// An object among others that leave no room beside it gets a line; without leader lines it would be counted.
TEST(labels_without_room_have_a_leader_line) {
  enum { SIDE = 200 };
  Image im = gray_image(SIDE, SIDE);
  const Colour red = {250, 0, 0};
  LabelledObject objects[26] = {{.box = {94, 94, 106, 106}, .name = "cup", .score = 0.9f, .colour = red}};
  int n = 1;
  for (int i = 0; i < 25; i++) // small ones around it, without labels
    if (i != 12)
      objects[n++] = (LabelledObject){.box = {70 + 12 * (float)(i % 5), 70 + 12 * (float)(i / 5),
                                              81 + 12 * (float)(i % 5), 81 + 12 * (float)(i / 5)},
                                      .colour = red};
  draw_labels(&im, objects, n, SIZE, 1);
  const Rect ring = {70, 70, 130, 130};
  const int inside = changed_in(&im, ring), all = changed_in(&im, whole(&im));
  EXPECT(inside > 10 && inside < 300);                    // the line with its dot
  EXPECT(all - inside > 500);                             // the plate
  EXPECT(changed_in(&im, (Rect){99, 99, 101, 101}) == 4); // the dot is on the object
  image_free(&im);
}

// In a picture full of objects no label has room: one note per class remains, however many objects there are.
TEST(labels_left_out_are_counted_once) {
  enum { N = 225, SIDE = 150 };
  int changed[2];
  for (int few = 0; few < 2; few++) {
    Image im = gray_image(SIDE, SIDE);
    LabelledObject objects[N];
    for (int i = 0; i < N; i++) {
      const float x = (float)(i % 15) * 10, y = (float)(i / 15) * 10;
      objects[i] = (LabelledObject){.box = {x, y, x + 10, y + 10},
                                    .name = few && i >= 9 ? NULL
                                            : i % 2       ? "fork"
                                                          : "spoon",
                                    .score = 0.9f,
                                    .colour = {250, 0, 0}};
    }
    draw_labels(&im, objects, N, SIZE, 1);
    changed[few] = changed_in(&im, whole(&im));
    image_free(&im);
  }
  EXPECT(changed[1] > 800 && changed[1] < 3000);                    // two plates
  EXPECT(changed[0] > changed[1] && changed[0] < changed[1] + 600); // "+113 spoon" is longer than "+5 spoon"
}

TEST(labels_of_any_length_fit_or_are_left_out) {
  char name[4000];
  memset(name, 'w', sizeof name);
  name[sizeof name - 1] = '\0';
  memcpy(name + 5, "\xc3\xa9", 2);
  for (int w = 1; w < 200; w += 37) {
    Image im = gray_image(50, w);
    LabelledObject object = {.box = {0, 0, (float)w, 20}, .name = name, .score = NAN, .colour = {250, 0, 0}};
    draw_labels(&im, &object, 1, SIZE, 1);
    EXPECT(w < 100 || changed_in(&im, whole(&im)) > 100);
    image_free(&im);
  }
}
