// RGB images in memory, decoded from JPEG and PNG files.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/scratch.h"
#include "data/images/sample_range.h"

typedef struct Image {
  int h, w;
  uint8_t *rgb; // [h, w, 3], rows from the top; owned
} Image;

// More pixels than any camera makes; a header that claims more is corrupt or malicious.
enum { IMAGE_MAX_PIXELS = 1 << 28 };

Image image_alloc(int h, int w); // black
void image_free(Image *im);

// Reads a JPEG or PNG file, detected by content, to the same pixels as libjpeg-turbo and libpng. Grey is repeated over
// the channels, palettes are looked up, 16-bit samples keep their upper byte, alpha is dropped without compositing (as
// in PIL's convert('RGB')), EXIF orientation is ignored (as in torchvision's training). Truncated files are refused, as
// are PNGs with a wrong checksum and JPEGs with a truncated scan or without their last progressive scans. Errors name
// the file, the cause and what to do about it.
bool image_load(Image *im, const char *path, Err *err);
// The same, but 16-bit samples are scaled from `range`; upright: with the EXIF orientation applied.
bool image_load_as(Image *im, const char *path, bool upright, SampleRange range, Err *err);
// As image_load from memory; `name` is for messages.
bool image_decode(Image *im, const uint8_t *bytes, size_t size, const char *name, Err *err);

// Height and width as stored, from the header alone. False if it is not an image or exceeds IMAGE_MAX_PIXELS.
bool image_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err);
// Whether a header is that of a PNG with 16-bit samples; false also if it cannot be read.
bool image_has_16_bits(const uint8_t *bytes, size_t size);
bool image_file_has_16_bits(const char *path);
// Adds the samples of such a file, without those of alpha, to count[SAMPLE_VALUES]. False if it cannot be decoded.
bool image_count_samples(uint32_t *count, const char *path, Scratch *scratch, Err *err);
// EXIF orientation of a file in memory, 1 … 8; 1 (upright) without a valid tag. That of XMP is not looked for.
int image_orientation(const uint8_t *bytes, size_t size);
// Size as stored, and orientation, of a file. Unless `exact`, an orientation that is not near the beginning (of a PNG,
// behind the pixels) may be missed, so that large files need not be read.
bool image_header(const char *path, bool exact, int *h, int *w, int *orientation, Err *err);
// The size alone; upright: with the EXIF orientation applied.
bool image_info(const char *path, bool upright, int *h, int *w, Err *err);
// From this orientation on, height and width are exchanged.
enum { IMAGE_TURNED = 5 };
// Decodes into rgb[h, w, 3], of the size that image_measure returns; an orientation other than 1 rotates and mirrors
// the pixels so that an image with that EXIF orientation is upright, exchanging height and width from IMAGE_TURNED on.
// 16-bit samples are scaled from `range`. Takes all the memory it needs from `scratch`.
bool image_decode_into(uint8_t *rgb, int orientation, SampleRange range, const uint8_t *bytes, size_t size,
                       Scratch *scratch, const char *name, Err *err);
