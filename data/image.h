// RGB images in memory: JPEG and PNG decoded by stb_image, which is compiled here and nowhere else.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "nn/util.h"

typedef struct Image {
  int h, w;
  uint8_t *rgb; // [h, w, 3], rows from the top; owned
} Image;

// More pixels than any camera makes; a header that claims more is a corrupt file or an attack on memory.
enum { IMAGE_MAX_PIXELS = 1 << 28 };

Image image_alloc(int h, int w); // black
void image_free(Image *im);

// Reads a JPEG or PNG file, whatever its name says. Gray is repeated over the channels, palettes are looked up, 16 bits
// keep their upper 8, alpha is dropped without compositing (as PIL's convert('RGB') does), EXIF orientation is left
// alone (as torchvision's training does). Files that end before the image does are refused, as PIL refuses them.
// Errors name the file and what to do about it.
bool image_load(Image *im, const char *path, Err *err);
// The same from memory; `name` is for messages.
bool image_decode(Image *im, const uint8_t *bytes, size_t size, const char *name, Err *err);
// Height and width from the header alone, before any orientation.
bool image_info(const char *path, int *h, int *w, Err *err);

// EXIF orientation of a file in memory, 1 … 8; 1 (upright) without the tag and for PNG.
int image_orientation(const uint8_t *bytes, size_t size);
// Turns and mirrors the pixels so that an image of that EXIF orientation stands upright.
void image_orient(Image *im, int orientation);
