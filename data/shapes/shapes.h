// A synthetic data set that a small network can learn in minutes: overlapping textured shapes, as COCO files.
#pragma once
#include "data/coco/rle.h"
#include "data/images/image.h"

// Classes in order; category ids count from 1.
enum { SHAPE_DISC, SHAPE_SQUARE, SHAPE_TRIANGLE, SHAPE_STAR, SHAPE_CROSS, SHAPE_RING, SHAPE_CLASSES };
extern const char *const shape_names[SHAPE_CLASSES];

enum { SHAPES_MAX_INSTANCES = 9, SHAPES_MIN_SIZE = 32, SHAPES_MIN_SINGLE = 16 };

typedef struct ShapeInstance {
  int category; // index into shape_names
  bool crowd;   // a cluster of indistinguishable tiny discs
  int whole;    // pixels of the image that it would cover if nothing were in front of it
  Rle mask;     // the visible part: at least half of them
} ShapeInstance;

typedef struct ShapeScene {
  Image image; // [size, size, 3]
  int n;
  ShapeInstance items[SHAPES_MAX_INSTANCES];
} ShapeScene;

// Draws a scene of size × size pixels, a pure function of the key: 2 to 8 shapes with diameters from an eighth to half
// of the size, rotated at random, later ones over earlier ones, at least half of each still visible; one scene in ten
// also has a crowd. Colour and texture are independent of the class. A mask holds the pixels whose centres the shape
// covers.
void shapes_scene(ShapeScene *s, int size, uint64_t key);
void shapes_scene_free(ShapeScene *s);
// Draws one shape of a category, complete and of half to five sixths of the size, rotated and moved at random.
Image shapes_single(int category, int size, uint64_t key);

typedef struct ShapesConfig {
  const char *dir;
  int train, val; // images of each split
  int size;       // pixels, both sides
  uint64_t seed;
  void (*progress)(int done, int total); // may be NULL; called by one thread at a time
} ShapesConfig;

// Writes DIR/{train,val}/NNNNNN.png and DIR/annotations/instances_{train,val}.json: polygons for masks without holes,
// both forms of RLE for the rest and for some others. The same configuration writes the same bytes, whatever the number
// of threads. Replaces an earlier synthetic data set; refuses a folder that holds anything else.
bool shapes_write(const ShapesConfig *config, Err *err);
