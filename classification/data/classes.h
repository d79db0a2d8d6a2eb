// A data set of images with one class each as a Dataset: IDX files (MNIST's format), or folders of images by class. The
// loader makes batches of it as of any other; image i has one object, whose label is its class from 0 on and which has
// no box, and a map (nn/batch.h, affine) instead of a resized size. There is one canvas, and no background.
#pragma once
#include "classification/data/class_layout.h"
#include "data/batches/dataset.h"

typedef struct ClassOptions {
  Size size;  // of the canvas, and so of what the network sees; h = 0: IDX as the images are, folders 224 × 224
  float view; // how much of an image the canvas shows without augmentation: augment_map; 0: 1
  // Training's part of the images is split in two by the hash of (seed, image): "val" gets about this share, "train"
  // the rest. An image of a folder is CLASS/FILE, one of an IDX file its pixels, so that copies stay together; what
  // else there is, and in which order, does not matter. 0: the splits are as they lie there.
  float val_fraction;
  uint64_t seed;
  bool strict;              // as in DatasetOptions
  bool upright;             // photographs are turned as their EXIF orientation says
  double patience;          // as in DatasetOptions
  int limit;                // only so many images, the first by id: of folders a mix of all classes; 0: all
  const CategoryList *like; // the classes of training, which are this one's, too; NULL: this is training's
} ClassOptions;

// Opens "train", "val" or "test" (or "t10k", which is test). IDX: train-…, and t10k-…, test-… or val-… for either of
// the others. Folders: DIR/train (or training), DIR/val (valid, validation) and DIR/test, of which val and test stand
// in for each other; without a DIR/train that holds folders, DIR/CLASS/… is all there is, and `val_fraction` makes two
// splits of it.
//
// Classes are the folders by name, byte by byte; of IDX the labels 0 … highest, named by the lines of DIR/classes.txt
// where that is. Ids are hashes of CLASS/FILE, or positions in the IDX file. Photographs whose shorter side is at least
// four times the canvas's are divided by a whole number as they are decoded, down to no less than twice the canvas.
//
// False for: IDX files that idx.h refuses; a label past the last class; names other than those of `like`; folders with
// one name, or with two names of one split; a class of training without an image that can be read; one of another split
// that training does not know; less than two classes; no image left. An image whose header cannot be read is left out
// and counted, or, if strict, an error; one that cannot be decoded is for the loader to find.
bool classes_open(Dataset *d, const char *dir, const char *split, const ClassOptions *options, Err *err);
// By what both sides of a photograph are divided as it comes, before the map of augment.h to the canvas: what training,
// its evaluation and inference do alike.
int classes_shrink(Size image, Size canvas);
// Images of each class: count[d->classes].
void classes_count(const Dataset *d, int *count);
// Whether the image with this key is held out for "val".
bool classes_held_out(uint64_t seed, float fraction, uint64_t image_key);
