// Copy-paste (Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation", 2021):
// objects of another training image, cut out by their masks, flipped, turned and scaled by themselves, are pasted over
// an image before it is augmented as a whole. Masks of objects below lose what is covered. On the CPU, in the decoder
// threads, which decode both images.
#pragma once
#include "data/batches/augment.h"
#include "data/batches/dataset.h"

enum { MOST_PASTED = 100 }; // objects

typedef struct PastedObject { // of the image, or pasted onto it
  const Object *object;
  bool pasted;
  bool has_mask; // else its box alone is known, as it was
  Rle mask;      // what is not covered, at the image's size
  double whole;  // area of all of it, pixels of the image
} PastedObject;

// Pastes each of the source's objects that have a mask with probability 1/2, at most `most` of them, onto rgb, the
// bytes of image i. Returns the objects of the image and then those pasted, *n of them, in memory from `scratch`, which
// it resets; those of which nothing is left are not among them. source_rgb: the bytes of the image `source`. `ratio`:
// pixels of image i for each pixel of the source, so that both are scaled alike on their canvases.
PastedObject *paste_objects(const Dataset *d, const Augment *a, uint64_t key, int i, uint8_t *rgb, int source,
                            const uint8_t *source_rgb, double ratio, int most, Scratch *scratch, int *n);
