// Lettering for overlays: strokes of even width, drawn with anti-aliasing at any size. ASCII 32 … 126.
#pragma once
#include "data/images/image.h"

typedef struct Colour {
  uint8_t r, g, b;
} Colour;

// Mixes a colour into a pixel: 0 leaves it, 1 replaces it. The pixel must lie in the image.
static inline void image_blend(Image *im, int y, int x, Colour c, float alpha) {
  uint8_t *p = im->rgb + 3 * ((size_t)y * im->w + x);
  p[0] = (uint8_t)(p[0] + alpha * (c.r - p[0]) + 0.5f);
  p[1] = (uint8_t)(p[1] + alpha * (c.g - p[1]) + 0.5f);
  p[2] = (uint8_t)(p[2] + alpha * (c.b - p[2]) + 0.5f);
}

// Maximum height of capitals in pixels; larger ones are cut off at the right.
enum { FONT_MAX = 160 };
// Width in pixels of a line of text whose capitals are `size` pixels tall.
float font_width(const char *text, float size);
// Writes the text from pen position (x, baseline) rightwards, clipped to the image. UTF-8; characters other than ASCII
// are drawn as "?" (data/pictures/draw_name.h avoids them).
void font_draw(Image *im, float x, float baseline, float size, Colour c, const char *text);
