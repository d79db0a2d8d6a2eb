// Catches anchors, IoU and box codes that differ from torchvision's.
#include "exact/geometry.h"
#include "models/anchors.h"
#include "test/harness/op_fixture.h"

// ---- anchors --------------------------------------------------------------------------------------------------------

// torchvision's AnchorGenerator on an 800×1344 canvas: five levels of one size, three ratios.
static AnchorShapes torchvision_shapes(void) {
  AnchorShapes shapes = {.sizes = 1, .ratios = 3, .ratio = {.5f, 1, 2}};
  for (int l = 0; l < 5; l++) shapes.size[l][0] = (float)(32 << l);
  return shapes;
}

TEST(anchors_torchvision) {
  const int h[] = {200, 100, 50, 25, 13}, w[] = {336, 168, 84, 42, 21};
  AnchorShapes shapes = torchvision_shapes();
  Anchors a;
  anchors_init(&a, &shapes, 5, h, w, 800, 1344);
  EXPECT_INT(a.per_cell, 3);
  EXPECT_INT(a.total, 268569);
  // Known from torchvision: round(32·(√2, √½) / 2) = 23, 11; the same of 512 = 362, 181.
  const float want[2][3][4] = {{{-23, -11, 23, 11}, {-16, -16, 16, 16}, {-11, -23, 11, 23}},
                               {{-362, -181, 362, 181}, {-256, -256, 256, 256}, {-181, -362, 181, 362}}};
  for (int i = 0; i < 12; i++) {
    EXPECT_NEAR(a.level[0].cell[i / 4][i % 4], want[0][i / 4][i % 4], 0);
    EXPECT_NEAR(a.level[4].cell[i / 4][i % 4], want[1][i / 4][i % 4], 0);
  }
  EXPECT_NEAR(a.level[4].stride_y, 61, 0); // 800 / 13 rounded down
  EXPECT_NEAR(a.level[4].stride_x, 64, 0);
  EXPECT_INT(a.level[1].first, 200 * 336 * 3);
  // Index = first + (y·w + x)·3 + a.
  Box b = anchor_box(&a, a.level[1].first + (7 * 168 + 5) * 3 + 1);
  EXPECT_NEAR(b.x1, 5 * 8 - 32, 0);
  EXPECT_NEAR(b.y2, 7 * 8 + 32, 0);
}

TEST(anchors_options) {
  const int grid[] = {2, 1};
  AnchorShapes shapes = {.sizes = 2, .size = {{5, 7}, {9, 11}}, .ratios = 2, .ratio = {1, 4}, .stride = {0, 16}};
  Anchors a;
  anchors_init(&a, &shapes, 2, grid, grid, 16, 16);
  EXPECT_INT(a.per_cell, 4);
  EXPECT_NEAR(a.level[0].cell[0][2], 2, 0);  // 2.5: half to even
  EXPECT_NEAR(a.level[0].cell[1][2], 4, 0);  // 3.5
  EXPECT_NEAR(a.level[0].cell[3][3], 7, 0);  // ratio 4 of size 7: 3.5 × 14
  EXPECT_NEAR(a.level[0].cell[3][0], -2, 0); // 1.75
  EXPECT_NEAR(a.level[0].stride_x, 8, 0);    // 16 / 2
  EXPECT_NEAR(a.level[1].stride_x, 16, 0);   // as given
  shapes.type = ANCHORS_EXACT;
  anchors_init(&a, &shapes, 2, grid, grid, 16, 16);
  EXPECT_NEAR(a.level[0].cell[0][0], -2.5, 0);
  EXPECT_NEAR(a.level[1].cell[0][3], 4.5, 0);
}

// Detectron's table for stride 16 (128² at ratio 0.5, in generate_anchors.py less its one-based offset) and stride 4:
// a cell of 16 × 16 is given sides 23 × 12 (√(256 / 0.5) = 22.6; 11.5, half to even), times 8 184 × 96, about (7.5,
// 7.5).
TEST(anchors_legacy) {
  const int grid[] = {2, 2};
  AnchorShapes shapes = {
      .sizes = 1, .size = {{32}, {128}}, .ratios = 3, .ratio = {.5f, 1, 2}, .type = ANCHORS_LEGACY, .stride = {4, 16}};
  const float want[2][3][4] = {{{-22, -10, 25, 13}, {-14, -14, 17, 17}, {-10, -22, 13, 25}},
                               {{-84, -40, 99, 55}, {-56, -56, 71, 71}, {-36, -80, 51, 95}}};
  Anchors a;
  anchors_init(&a, &shapes, 2, grid, grid, 32, 32);
  for (int i = 0; i < 2 * 3 * 4; i++)
    EXPECT_NEAR(a.level[i / 12].cell[i / 4 % 3][i % 4], want[i / 12][i / 4 % 3][i % 4], 0);
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

TEST(geometry_iou) {
  Box a = {0, 0, 10, 10}, half = {0, 0, 10, 5}, apart = {10, 0, 20, 10}, nan = {NAN, 0, 10, 10}, flat = {3, 3, 3, 9};
  Box huge = {-FLT_MAX, -FLT_MAX, FLT_MAX, FLT_MAX};
  EXPECT_NEAR(box_iou(a, a), 1, 0);
  EXPECT_NEAR(box_iou(a, half), .5, 0);
  EXPECT_NEAR(box_iou(half, a), .5, 0);
  EXPECT_NEAR(box_iou(a, apart), 0, 0);               // a common edge is no overlap
  EXPECT_NEAR(box_iou(a, (Box){20, 2, 30, 8}), 0, 0); // beside it
  EXPECT_NEAR(box_iou(a, (Box){2, 20, 8, 30}), 0, 0);
  EXPECT_NEAR(box_iou(a, nan), 0, 0);
  EXPECT_NEAR(box_iou(nan, a), 0, 0);
  EXPECT_NEAR(box_iou(flat, flat), 0, 0);
  EXPECT_NEAR(box_iou(huge, a), 0, 0);
  EXPECT_NEAR(box_iou(huge, huge), 0, 0); // ∞ / NaN
  EXPECT(!box_reaches(nan, 0, 0));
  EXPECT(box_reaches(flat, 0, 0));
}

TEST(geometry_code) {
  const BoxCoder coder = {.weight = {10, 10, 5, 5}, .clamp = 4.135167f};
  Box from = {10, 20, 30, 60}, to = {14, 0, 24, 80};
  real delta[4];
  box_encode(&coder, from, to, delta);
  // Centres (20, 40) → (19, 40); sizes 20 × 40 → 10 × 80.
  const double want[4] = {10 * -1. / 20, 0, 5 * log(.5), 5 * log(2)};
  for (int k = 0; k < 4; k++) EXPECT_NEAR(delta[k], want[k], 4 * FLT_EPSILON);
  Box back = box_decode(&coder, from, delta);
  // Five roundings on values up to 80.
  EXPECT_NEAR(back.x1, to.x1, 5 * 80 * FLT_EPSILON);
  EXPECT_NEAR(back.y1, to.y1, 5 * 80 * FLT_EPSILON);
  EXPECT_NEAR(back.x2, to.x2, 5 * 80 * FLT_EPSILON);
  EXPECT_NEAR(back.y2, to.y2, 5 * 80 * FLT_EPSILON);
  Box grown = box_decode(&coder, from, (real[]){0, 0, 1e30f, -1e30f});
  EXPECT_NEAR(grown.x2 - grown.x1, 20 * exp(coder.clamp), 5 * 1250 * FLT_EPSILON);
  EXPECT_NEAR(grown.y2 - grown.y1, 0, 0);
  Box cut = box_clip((Box){-5, 3, 700, NAN}, 40, 50, 0);
  EXPECT_NEAR(cut.x1, 0, 0);
  EXPECT_NEAR(cut.y1, 3, 0);
  EXPECT_NEAR(cut.x2, 50, 0);
  EXPECT(isnan(cut.y2));
}

// Within 1.03 units in the last place of the library's double, and never falling.
TEST(geometry_exp) {
  double worst = 0;
  float last = 0;
  for (int i = -104 * 4096; i <= 88 * 4096; i++) {
    float x = (float)i / 4096, e = portable_exp(x);
    int exponent;
    frexp(exp((double)x), &exponent);
    worst = fmax(worst, fabs(e - exp((double)x)) / ldexp(1, MAX(exponent - 24, -149)));
    if (!EXPECT(e >= last)) break;
    last = e;
  }
  EXPECT(worst < 1.03);
  EXPECT_NEAR(portable_exp(0), 1, 0);
  EXPECT_NEAR(portable_exp(-INFINITY), 0, 0);
  EXPECT(isinf(portable_exp(89)) && isinf(portable_exp(INFINITY)));
  EXPECT(isnan(portable_exp(NAN)));
}

// Corners are pixels: 0 … 9 is ten pixels wide.
TEST(geometry_legacy) {
  const Box whole = {0, 0, 9, 9}, upper = {0, 0, 9, 4}, right = {10, 0, 29, 9}, dot = {3, 3, 3, 3};
  EXPECT_NEAR(box_iou(box_span(whole, 1), box_span(upper, 1)), .5, 0); // 50 of 100 pixels
  EXPECT_NEAR(box_iou(whole, upper), 36.f / 81, FLT_EPSILON);
  EXPECT_NEAR(box_iou(box_span(whole, 1), box_span(right, 1)), 0, 0);
  EXPECT(box_reaches(dot, 1, 1) && !box_reaches(dot, 1, 0));
  Box cut = box_clip((Box){-5, 3, 700, 39.5f}, 40, 50, 1);
  EXPECT(cut.x1 == 0 && cut.y1 == 3 && cut.x2 == 49 && cut.y2 == 39);
  EXPECT(box_inside((Box){0, 0, 49, 39}, 40, 50));
  EXPECT(!box_inside((Box){0, 0, 50, 39}, 40, 50) && !box_inside((Box){-1, 0, 49, 39}, 40, 50));
  EXPECT(!box_inside((Box){0, 0, 49, 40}, 40, 50) && !box_inside((Box){0, -1, 49, 39}, 40, 50));
  // From 10 to 20 pixels wide, its centre from 5 to 20: 15 / 10 and log 2; as high as before.
  const BoxCoder coder = {.weight = {1, 1, 1, 1}, .clamp = 4.135167f, .extra = 1};
  real delta[4];
  box_encode(&coder, whole, right, delta);
  EXPECT_NEAR(delta[0], 1.5, 0);
  EXPECT_NEAR(delta[1], 0, 0);
  EXPECT_NEAR(delta[2], log(2), FLT_EPSILON);
  EXPECT_NEAR(delta[3], 0, 0);
  Box back = box_decode(&coder, whole, delta);
  EXPECT_NEAR(back.x1, right.x1, 8e-6); // the exponential's last bit of 20
  EXPECT_NEAR(back.x2, right.x2, 8e-6);
  EXPECT_NEAR(back.y2, right.y2, 0);
}
