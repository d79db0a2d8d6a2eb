// Data augmentation: one list of operations for detectors and classifiers. Everything drawn for an image is a pure
// function of its key (seed, epoch, image), so that neither the number of threads nor a resume changes it.
//
// The geometric ones are composed into one affine map from the canvas to the image (ImageView.map), the colours into
// three factors; both are applied in one pass where the device turns decoded bytes into canvases (exact/view.h with
// cpu/ and cuda/preprocess; for classifiers preprocess_affine).
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/batches/canvas.h"

// The list: X(field and option, kind, unit, lowest, highest strength, sentence, …), 0 turning each off; what follows X
// is handed to it. GEOMETRIC and COLOUR ones are applied on the device, PASTE (paste.h) by the decoder threads, for
// detectors alone. training/options.h makes an option of each; presets name whole sets of strengths.
// clang-format off
#define EACH_AUGMENT(X, ...)                                                                                           \
  X(flip, GEOMETRIC, "P", 0, 1, "probability of a horizontal flip", __VA_ARGS__)                                       \
  X(flip_vertical, GEOMETRIC, "P", 0, 1, "probability of a vertical flip", __VA_ARGS__)                                \
  X(turn, GEOMETRIC, "P", 0, 1, "probability of a turn by a random multiple of 90 degrees", __VA_ARGS__)               \
  X(rotate, GEOMETRIC, "DEGREES", 0, 359, "largest random rotation", __VA_ARGS__)                                      \
  X(shear, GEOMETRIC, "DEGREES", 0, 79, "largest random shear", __VA_ARGS__)                                           \
  X(scale_down, GEOMETRIC, "P", 0, 0.9, "scale jitter: shrink by at most this fraction, and pad", __VA_ARGS__)         \
  X(scale_up, GEOMETRIC, "P", 0, 9, "scale jitter: enlarge by at most this fraction, and crop at random", __VA_ARGS__) \
  X(zoom, GEOMETRIC, "P", 0, 0.99, "largest random change of scale, width and height by themselves, as a fraction",    \
    __VA_ARGS__)                                                                                                       \
  X(shift, GEOMETRIC, "P", 0, 0.99, "largest random shift, as a fraction of the side", __VA_ARGS__)                    \
  X(crop, GEOMETRIC, "P", 0, 0.99, "smallest random crop, as a fraction of the image's area", __VA_ARGS__)             \
  X(brightness, COLOUR, "P", 0, 1, "largest random change of brightness, as a fraction", __VA_ARGS__)                  \
  X(contrast, COLOUR, "P", 0, 1, "largest random change of contrast, as a fraction", __VA_ARGS__)                      \
  X(saturation, COLOUR, "P", 0, 1, "largest random change of saturation, as a fraction", __VA_ARGS__)                  \
  X(paste, PASTE, "P", 0, 1, "copy-paste: probability that objects of another image are pasted over an image",         \
    __VA_ARGS__)
// clang-format on

#define AUGMENT_FIELD(field, ...) float field;
typedef struct Augment { // all zero: no augmentation
  EACH_AUGMENT(AUGMENT_FIELD, )
  // Multi-scale training, detectors: shorter sides to draw from, the largest is the data set's; none: only that.
  // A resize apart from the map, so that its pixels are those of the implementations that train like this.
  Sizes sizes;
} Augment;

typedef enum AugmentPreset {
  AUGMENT_NONE,
  AUGMENT_MIRROR,
  AUGMENT_STANDARD,
  AUGMENT_STRONG,
  AUGMENT_ANY_ORIENTATION, // of pictures without an up: microscopes', satellites'
} AugmentPreset;
extern const char *const augment_presets[]; // their names, then NULL

bool augment_any(const Augment *a); // whether anything is to be drawn

// What learns from the images: each has strengths of its own.
typedef enum AugmentFor { AUGMENT_DETECTORS, AUGMENT_PHOTOGRAPHS, AUGMENT_DIGITS, AUGMENT_LEARNERS } AugmentFor;
const Augment *augment_preset(AugmentFor learner, AugmentPreset preset);

// The resize of an image: the data set's or, if `a` has several sizes, the one drawn. a NULL: no augmentation.
Resize augment_resize(const Augment *a, uint64_t key, Resize of_set);

// How an image is shown: where nothing moves it but `flip`, a caller may resize and mirror it instead.
typedef struct AugmentMap {
  float map[6]; // as ImageView.map
  bool moved;   // by more than a horizontal flip
  bool flip;    // drawn; part of the map
} AugmentMap;

// A detector's: without augmentation the whole image fills the canvas, which has its resized size.
//
// A turned image is scaled to fit its canvas. Scale jitter draws one factor, uniformly; what is smaller than the canvas
// then lies anywhere on it, of what is larger any part is shown. The other operations are as below.
AugmentMap augment_detector(const Augment *a, uint64_t key, Size size, Size canvas);

// A classifier's. Without a crop, the canvas shows the largest centred part of its own shape times `view`: 1 is all of
// a square image, 0.875 is the centre crop of 224 after resizing the shorter side to 256. With a crop, it shows a
// random part as drawn by torchvision's RandomResizedCrop (Szegedy et al., "Going Deeper with Convolutions", 2014):
// with `crop` to 1 of the image's area, and an aspect ratio from 3:4 to 4:3, uniform on a logarithmic scale. The canvas
// is then scaled, sheared, rotated and mirrored about its centre, and shifted. a NULL: only the view.
AugmentMap augment_classifier(const Augment *a, float view, uint64_t key, Size size, Size canvas);

// Sets the colours of `view`, if any strength asks for them: factors from 1 - strength to 1 + strength, as drawn by
// torchvision's ColorJitter, but always in the order contrast, brightness, saturation. rgb [h, w, 3]: the image.
void augment_colours(const Augment *a, uint64_t key, const uint8_t *rgb, Size size, ImageView *view);
