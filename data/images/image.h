// RGB images in memory, decoded from JPEG and PNG files.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"

typedef struct Image {
  int h, w;
  uint8_t *rgb; // [h, w, 3], rows from the top; owned
} Image;

// More pixels than any camera makes; a header that claims more is a corrupt file or an attack on memory.
enum { IMAGE_MAX_PIXELS = 1 << 28 };

Image image_alloc(int h, int w); // black
void image_free(Image *im);

// Reads a JPEG or PNG file, whatever its name says, to the pixels of libjpeg-turbo and libpng. Gray is repeated over
// the channels, palettes are looked up, 16 bits keep their upper 8, alpha is dropped without compositing (as PIL's
// convert('RGB') does), EXIF orientation is left alone (as torchvision's training does). Files that end before the
// image does are refused, as are PNGs with a wrong checksum and JPEGs with a scan that ends too early. Errors name the
// file, the cause and what to do about it.
bool image_load(Image *im, const char *path, Err *err);
// The same, but standing upright as its EXIF orientation says.
bool image_load_upright(Image *im, const char *path, Err *err);
// As image_load from memory; `name` is for messages.
bool image_decode(Image *im, const uint8_t *bytes, size_t size, const char *name, Err *err);

// Height and width as stored, from the header alone. False for what is no image and beyond IMAGE_MAX_PIXELS.
bool image_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err);
// The same of a file, of which it reads no more than it needs; upright: once it stands as its EXIF orientation says.
bool image_info(const char *path, bool upright, int *h, int *w, Err *err);
// EXIF orientation of a file in memory, 1 … 8; 1 (upright) without the tag and for PNG.
int image_orientation(const uint8_t *bytes, size_t size);
// From this orientation on, rows of the file are columns of the upright picture.
enum { IMAGE_TURNED = 5 };
// Decodes into rgb[h, w, 3], of the size that image_measure gives; an orientation other than 1 turns and mirrors the
// pixels so that an image of that EXIF orientation stands upright, with height and width exchanged from IMAGE_TURNED
// on. Takes all the memory it needs from `scratch`.
bool image_decode_into(uint8_t *rgb, int orientation, const uint8_t *bytes, size_t size, Scratch *scratch,
                       const char *name, Err *err);
