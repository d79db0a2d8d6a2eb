#include "data/batches/augment.h"
#include <math.h>
#include "base/basics.h"
#include "base/rng.h"

// The random quantities: each has its own number, so that removing one does not change the others.
enum {
  DRAW_ROTATE,
  DRAW_SHIFT_X,
  DRAW_SHIFT_Y,
  DRAW_SHEAR,
  DRAW_ZOOM_X,
  DRAW_ZOOM_Y,
  DRAW_CROPS,
  CROP_TRIES = 10,
  CROP_DRAWS = 4, // for each
  DRAW_FLIP_VERTICAL = DRAW_CROPS + CROP_TRIES * CROP_DRAWS,
  DRAW_WHETHER_TURN,
  DRAW_TURN,
  DRAW_SCALE,
  DRAW_PLACE_X,
  DRAW_PLACE_Y,
  DRAW_BRIGHTNESS,
  DRAW_CONTRAST,
  DRAW_SATURATION
};

static const double degree = 3.14159265358979323846 / 180;

// ---- presets --------------------------------------------------------------------------------------------------------

const char *const augment_presets[] = {[AUGMENT_NONE] = "none",
                                       [AUGMENT_MIRROR] = "mirror",
                                       [AUGMENT_STANDARD] = "standard",
                                       [AUGMENT_STRONG] = "strong",
                                       [AUGMENT_ANY_ORIENTATION] = "any-orientation",
                                       NULL};
enum { PRESETS = AUGMENT_ANY_ORIENTATION + 1 };

static const Augment presets[AUGMENT_LEARNERS][PRESETS] = {
    [AUGMENT_DETECTORS] = {[AUGMENT_MIRROR] = {.flip = 0.5f},
                           [AUGMENT_STANDARD] = {.flip = 0.5f,
                                                 .scale_down = 0.3f,
                                                 .scale_up = 0.5f,
                                                 .brightness = 0.2f,
                                                 .contrast = 0.2f,
                                                 .saturation = 0.2f},
                           [AUGMENT_STRONG] = {.flip = 0.5f,
                                               .rotate = 10,
                                               .scale_down = 0.5f,
                                               .scale_up = 1,
                                               .brightness = 0.4f,
                                               .contrast = 0.4f,
                                               .saturation = 0.4f},
                           [AUGMENT_ANY_ORIENTATION] = {.flip = 0.5f,
                                                        .turn = 1,
                                                        .scale_down = 0.3f,
                                                        .scale_up = 0.5f,
                                                        .brightness = 0.2f,
                                                        .contrast = 0.2f,
                                                        .saturation = 0.2f}},
    // torchvision's RandomResizedCrop and RandomHorizontalFlip are the standard.
    [AUGMENT_PHOTOGRAPHS] = {[AUGMENT_MIRROR] = {.flip = 0.5f},
                             [AUGMENT_STANDARD] = {.flip = 0.5f, .crop = 0.08f},
                             [AUGMENT_STRONG] = {.flip = 0.5f,
                                                 .rotate = 10,
                                                 .crop = 0.08f,
                                                 .brightness = 0.4f,
                                                 .contrast = 0.4f,
                                                 .saturation = 0.4f},
                             [AUGMENT_ANY_ORIENTATION] = {.flip = 0.5f, .turn = 1, .crop = 0.08f}},
    // Small grey images whose mirror image may be of another class, as those of MNIST.
    [AUGMENT_DIGITS] = {[AUGMENT_MIRROR] = {.flip = 0.5f},
                        [AUGMENT_STANDARD] = {.rotate = 8, .shear = 0.3f, .zoom = 0.08f, .shift = 0.08f},
                        [AUGMENT_STRONG] = {.rotate = 15, .shear = 10, .zoom = 0.15f, .shift = 0.12f},
                        [AUGMENT_ANY_ORIENTATION] = {.flip = 0.5f, .turn = 1, .zoom = 0.08f, .shift = 0.08f}},
};

const Augment *augment_preset(AugmentFor learner, AugmentPreset preset) {
  CHECK(learner < AUGMENT_LEARNERS && (int)preset < PRESETS);
  return &presets[learner][preset];
}

bool augment_any(const Augment *a) {
#define AUGMENT_DRAWS(field, ...) || a->field > 0
  return a->sizes.n > 1 EACH_AUGMENT(AUGMENT_DRAWS, );
}

Resize augment_resize(const Augment *a, uint64_t key, Resize of_set) {
  const uint32_t n = a ? (uint32_t)a->sizes.n : 0;
  if (n > 0) of_set.size = a->sizes.side[rng_u32(rng_key(key, RNG_SIZE), 0) % n];
  return of_set;
}

// ---- draws ----------------------------------------------------------------------------------------------------------

static double draw(uint64_t key, uint64_t i, double low, double high) {
  return low + (high - low) * (double)rng_uniform(key, i);
}

static bool happens(uint64_t key, uint64_t i, float probability) { return rng_uniform(key, i) < probability; }

static int draw_int(uint64_t key, uint64_t i, int n) { return (int)(rng_u32(key, i) % (uint32_t)n); }

// ---- what the canvas shows before it is moved -----------------------------------------------------------------------

typedef struct Window { // of the image, pixels
  double x, y, w, h;
} Window;

static Window centred(Size size, double w, double h) { return (Window){(size.w - w) / 2, (size.h - h) / 2, w, h}; }

static Window view_window(float view, Size size, Size canvas) {
  const double scale = fmin((double)size.w / canvas.w, (double)size.h / canvas.h) * (double)view;
  return centred(size, scale * canvas.w, scale * canvas.h);
}

static Window crop_window(float smallest, uint64_t key, Size size) {
  static const double least = 3.0 / 4, most = 4.0 / 3;
  const double area = (double)size.h * size.w, shape = (double)size.w / size.h;
  for (int i = 0; i < CROP_TRIES; i++) {
    const uint64_t at = DRAW_CROPS + (uint64_t)i * CROP_DRAWS;
    const double part = area * draw(key, at, (double)smallest, 1);
    const double aspect = exp(draw(key, at + 1, log(least), log(most)));
    const int w = (int)rint(sqrt(part * aspect)), h = (int)rint(sqrt(part / aspect));
    if (w < 1 || h < 1 || w > size.w || h > size.h) continue;
    return (Window){draw_int(key, at + 2, size.w - w + 1), draw_int(key, at + 3, size.h - h + 1), w, h};
  }
  const double aspect = fmin(fmax(shape, least), most);
  return shape < aspect ? centred(size, size.w, rint(size.w / aspect)) : centred(size, rint(size.h * aspect), size.h);
}

// ---- moves ----------------------------------------------------------------------------------------------------------

// Where the canvas, in its own pixels, is moved to before the window is laid over it: p → m · (p - middle) + middle +
// shift.
typedef struct Move {
  double m[2][2], shift[2];
  bool any; // by more than a horizontal flip
} Move;

static Move draw_move(const Augment *a, uint64_t k, bool flip, Size canvas) {
  const double side[2] = {canvas.w, canvas.h};
  const int quarters = happens(k, DRAW_WHETHER_TURN, a->turn) ? draw_int(k, DRAW_TURN, 4) : 0;
  const bool vertical = happens(k, DRAW_FLIP_VERTICAL, a->flip_vertical);
  const bool jitters = a->scale_down > 0 || a->scale_up > 0;
  const double jitter = jitters ? draw(k, DRAW_SCALE, 1 - (double)a->scale_down, 1 + (double)a->scale_up) : 1;
  const double fits = quarters % 2 ? fmin(side[0], side[1]) / fmax(side[0], side[1]) : 1, scale = jitter * fits;
  const double angle = degree * draw(k, DRAW_ROTATE, -a->rotate, a->rotate);
  const double shear = tan(degree * draw(k, DRAW_SHEAR, -a->shear, a->shear));
  const double zoom_x = 1 / draw(k, DRAW_ZOOM_X, 1 - a->zoom, 1 + a->zoom) * (flip ? -1 : 1) / scale;
  const double zoom_y = 1 / draw(k, DRAW_ZOOM_Y, 1 - a->zoom, 1 + a->zoom) * (vertical ? -1 : 1) / scale;
  const double cosine = cos(angle), sine = sin(angle);
  // Rotation · shear · zoom.
  Move move = {
      .m = {{cosine * zoom_x, (cosine * shear - sine) * zoom_y}, {sine * zoom_x, (sine * shear + cosine) * zoom_y}},
      .any = quarters || vertical || jitters || a->rotate > 0 || a->shear > 0 || a->zoom > 0 || a->shift > 0};
  for (int q = 0; q < quarters; q++)
    for (int i = 0; i < 2; i++) {
      const double above = move.m[0][i];
      move.m[0][i] = -move.m[1][i];
      move.m[1][i] = above;
    }
  for (int i = 0; i < 2; i++) {
    const double shown = side[quarters % 2 ? 1 - i : i] / scale; // of the canvas's own side
    const double slack = jitters ? fabs(side[i] - shown) / 2 : 0;
    move.shift[i] = draw(k, DRAW_SHIFT_X + (uint64_t)i, -a->shift, a->shift) * side[i] +
                    draw(k, DRAW_PLACE_X + (uint64_t)i, -slack, slack);
  }
  return move;
}

static AugmentMap map_of(const Augment *a, uint64_t key, Window window, Size canvas) {
  const Augment none = {0};
  const bool flip = a && happens(rng_key(key, RNG_FLIP), 0, a->flip);
  const Move move = draw_move(a ? a : &none, rng_key(key, RNG_AUGMENT), flip, canvas);
  const double middle[2] = {canvas.w / 2.0, canvas.h / 2.0};
  const double scale[2] = {window.w / canvas.w, window.h / canvas.h}, from[2] = {window.x, window.y};
  AugmentMap of = {.moved = move.any, .flip = flip};
  for (int i = 0; i < 2; i++) {
    const double *m = move.m[i], about = m[0] * middle[0] + m[1] * middle[1];
    of.map[3 * i] = (float)(scale[i] * m[0]);
    of.map[3 * i + 1] = (float)(scale[i] * m[1]);
    of.map[3 * i + 2] = (float)(from[i] + scale[i] * (middle[i] + move.shift[i] - about));
  }
  return of;
}

static bool crops(const Augment *a) { return a && a->crop > 0; }

AugmentMap augment_detector(const Augment *a, uint64_t key, Size size, Size canvas) {
  const Window whole = {0, 0, size.w, size.h};
  AugmentMap of = map_of(a, key, crops(a) ? crop_window(a->crop, rng_key(key, RNG_AUGMENT), size) : whole, canvas);
  of.moved |= crops(a);
  return of;
}

AugmentMap augment_classifier(const Augment *a, float view, uint64_t key, Size size, Size canvas) {
  return map_of(a, key,
                crops(a) ? crop_window(a->crop, rng_key(key, RNG_AUGMENT), size) : view_window(view, size, canvas),
                canvas);
}

// ---- colours --------------------------------------------------------------------------------------------------------

// Of all pixels, [0, 255], with view_luminance's weights; exact, so that no order of sums shows.
static float mean_luminance(const uint8_t *rgb, Size size) {
  const int64_t pixels = (int64_t)size.h * size.w;
  uint64_t sum[3] = {0};
  for (int64_t i = 0; i < pixels; i++)
    for (int c = 0; c < 3; c++) sum[c] += rgb[3 * i + c];
  return (float)((double)(2989 * sum[0] + 5870 * sum[1] + 1140 * sum[2]) / (1e4 * (double)pixels));
}

static float factor(uint64_t key, uint64_t i, float strength) {
  return (float)draw(key, i, 1 - (double)strength, 1 + (double)strength);
}

void augment_colours(const Augment *a, uint64_t key, const uint8_t *rgb, Size size, ImageView *view) {
  const uint64_t k = rng_key(key, RNG_AUGMENT);
  if (!(a->brightness > 0 || a->contrast > 0 || a->saturation > 0)) return;
  view->coloured = 1;
  view->brightness = factor(k, DRAW_BRIGHTNESS, a->brightness);
  view->contrast = factor(k, DRAW_CONTRAST, a->contrast);
  view->saturation = factor(k, DRAW_SATURATION, a->saturation);
  if (a->contrast > 0) view->mean = mean_luminance(rgb, size);
}
