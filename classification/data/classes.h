// A Dataset of images with one class each: IDX files (MNIST's format) or folders of images by class. The loader makes
// batches of it as of any other data set; image i has one object, whose label is its class, from 0, and which has no
// box, and a map (nn/batch.h, ImageView) instead of a resized size. There is one canvas, and no background class.
#pragma once
#include "classification/data/class_layout.h"
#include "data/batches/dataset.h"

typedef struct ClassOptions {
  Size size;  // canvas size, which is the network's input; h = 0: for IDX the images' size, for folders 224 × 224
  float view; // fraction of an image that the canvas shows without augmentation: augment_classifier; 0: 1
  HoldoutUse holdout;       // of the images of a split, stratified by class
  bool strict;              // as in DatasetOptions
  bool upright;             // apply the EXIF orientation of photographs
  double patience;          // as in DatasetOptions
  int limit;                // use only so many images, the first by id (for folders a mix of all classes); 0: all
  const CategoryList *like; // the training set's classes, which this set must share; NULL: this is the training set
} ClassOptions;

// Opens "train", "val" or "test" (or "t10k", which is test). IDX files: train-…, and t10k-…, test-… or val-… for both
// of the others. Folders: DIR/train (or training), DIR/val (valid, validation) and DIR/test; val and test substitute
// for each other if only one exists. If DIR/train does not exist or holds no folders, DIR/CLASS/… is the whole set.
//
// Classes are the folders in byte order of their names, or the IDX labels 0 … highest, named by the lines of
// DIR/classes.txt if that exists. Ids are hashes of CLASS/FILE, or positions in the IDX file. Photographs whose shorter
// side is at least four times the canvas's are divided by a whole number as they are decoded, down to no less than
// twice the canvas.
//
// Fails on: IDX files that idx.h refuses; a label past the last class; names other than those of `like`; two folders
// for one class or for one split; a training class without a readable image; a class in another split that training
// does not know; fewer than two classes; no images left. An image whose header cannot be read is left out and counted,
// or, if strict, an error; one that cannot be decoded is reported by the loader.
bool classes_open(Dataset *d, const char *dir, const char *split, const ClassOptions *options, Err *err);
// The factor by which a photograph is scaled down as it is decoded, before augment.h's map to the canvas: the same for
// training, its evaluation and inference.
int classes_shrink(Size image, Size canvas);
// Images of each class: count[d->classes].
void classes_count(const Dataset *d, int *count);
