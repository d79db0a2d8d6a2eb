#include "data/batches/upright.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/parallel.h"

const char *const exif_choices[] = {"auto", "yes", "no", NULL};

enum { SAMPLE = 1000 };

typedef struct FileHeader { // of a file; h = 0: it cannot be read
  int h, w, orientation;
} FileHeader;

typedef struct FileHeaders {
  const Dataset *d;
  int step;
  FileHeader *of; // [coco.num_images]
} FileHeaders;

static char *path_of(const Dataset *d, int i) {
  return d->file && d->file[i] ? xstrdup(d->file[i]) : xasprintf("%s/%s", d->folder, d->coco.images[i].file_name);
}

static void read_header(void *of, int k, int thread) {
  (void)thread;
  const FileHeaders *all = of;
  const int i = k * all->step;
  FileHeader *h = &all->of[i];
  Err err;
  if (h->h || !all->d->coco.images[i].file_name || all->d->absent[i]) return;
  char *path = path_of(all->d, i);
  if (!image_header(path, true, &h->h, &h->w, &h->orientation, &err)) *h = (FileHeader){0};
  free(path);
}

// The size of the image as it is read.
static Size read_size(const Dataset *d, const FileHeader *h) {
  const bool turns = d->upright && h->orientation >= IMAGE_TURNED;
  return (Size){.h = turns ? h->w : h->h, .w = turns ? h->h : h->w};
}

static void read_headers(FileHeaders *all, int step) {
  const int n = (all->d->coco.num_images + step - 1) / step;
  all->step = step;
  parallel_for(n, parallel_threads(n), read_header, all);
}

// Where the annotations of an image reach: x2, y2, or 0.
static void reach_of(const Coco *c, const CocoImage *im, double reach[2]) {
  reach[0] = reach[1] = 0;
  for (const CocoAnn *a = c->anns + im->first_ann; a < c->anns + im->first_ann + im->anns; a++)
    for (int k = 0; k < 2; k++) {
      if (a->has_bbox) reach[k] = fmax(reach[k], a->bbox[k] + a->bbox[2 + k]);
      if (a->type == SEG_POLYGONS) reach[k] = fmax(reach[k], a->extent[2 + k]);
    }
}

static bool is_within(const double reach[2], int h, int w) { return reach[0] <= w + 1. && reach[1] <= h + 1.; }

typedef enum Evidence { NO_EVIDENCE, SIZE_UPRIGHT, POINTS_UPRIGHT, POINTS_STORED } Evidence;

// What an image with an orientation that exchanges its sides tells.
static Evidence evidence_of(const Coco *c, const CocoImage *im, const FileHeader *h) {
  double reach[2];
  if (h->orientation < IMAGE_TURNED || h->h == h->w) return NO_EVIDENCE;
  if (im->h == h->w && im->w == h->h) return SIZE_UPRIGHT;
  if (im->h > 0 && im->w > 0 && (im->h != h->h || im->w != h->w)) return NO_EVIDENCE;
  reach_of(c, im, reach);
  const bool stored = is_within(reach, h->h, h->w), upright = is_within(reach, h->w, h->h);
  return upright && !stored ? POINTS_UPRIGHT : stored && !upright ? POINTS_STORED : NO_EVIDENCE;
}

// Exchanges the sides of annotated sizes that are the stored ones, of images that will be rotated.
static int exchange_sides(Dataset *d, const FileHeader *of) {
  int n = 0;
  for (int i = 0; i < d->coco.num_images; i++) {
    CocoImage *im = &d->coco.images[i];
    const FileHeader *h = &of[i];
    if (h->orientation < IMAGE_TURNED || h->h == h->w || im->h != h->h || im->w != h->w) continue;
    if (evidence_of(&d->coco, im, h) == POINTS_STORED) continue;
    im->h = h->w;
    im->w = h->h;
    n++;
  }
  return n;
}

// How a file's size differs from the annotated one.
typedef enum Change { RESIZED, STRETCHED, EXCHANGED, CHANGES } Change;

static const char *const change_texts[CHANGES] = {
    [RESIZED] = "images were resized after annotation; use the original images, or scale the annotations",
    [STRETCHED] = "images were stretched to one size after annotation; use the original images",
    [EXCHANGED] = "width and height are exchanged; correct them in the annotations"};

// False, with a message, if most images have another size than annotated for one reason. Where an orientation exchanges
// the sides, dataset_fits tells each.
static bool check_sizes(const Dataset *d, const FileHeader *of, Err *err) {
  int looked_at = 0, n[CHANGES] = {0}, first[CHANGES];
  for (int i = 0; i < d->coco.num_images; i++) {
    const CocoImage *im = &d->coco.images[i];
    const Size size = read_size(d, &of[i]);
    if (!of[i].h || im->h <= 0 || im->w <= 0) continue;
    looked_at++;
    if (size.h == im->h && size.w == im->w) continue;
    const Change k = dataset_is_resized(im, size.h, size.w) ? RESIZED
                     : size.h == im->w && size.w == im->h   ? EXCHANGED
                                                            : STRETCHED;
    if (k == EXCHANGED && of[i].orientation >= IMAGE_TURNED) continue;
    if (n[k] == 0) first[k] = i;
    const Size other = read_size(d, &of[first[k]]);
    n[k] += k != STRETCHED || (size.h == other.h && size.w == other.w);
  }
  Change most = RESIZED;
  for (Change k = 0; k < CHANGES; k++)
    if (n[k] > n[most]) most = k;
  if (2 * n[most] <= looked_at) return true;
  const CocoImage *im = &d->coco.images[first[most]];
  const Size size = read_size(d, &of[first[most]]);
  char *path = path_of(d, first[most]);
  err_set(err, "%s: %d x %d pixels, but %d x %d in %s: %s (%d of %d looked at)", path, size.w, size.h, im->w, im->h,
          d->coco.path, change_texts[most], n[most], looked_at);
  free(path);
  return false;
}

bool upright_settle(Dataset *d, ExifChoice choice, bool otherwise, Err *err) {
  const int n = d->coco.num_images;
  FileHeaders all = {.d = d, .of = xcalloc((size_t)n, sizeof *all.of)};
  int count[POINTS_STORED + 1] = {0}, turned = 0;
  read_headers(&all, MAX((n + SAMPLE - 1) / SAMPLE, 1));
  for (int i = 0; i < n; i++) {
    turned += all.of[i].orientation > 1;
    count[evidence_of(&d->coco, &d->coco.images[i], &all.of[i])]++;
  }
  const int upright = count[SIZE_UPRIGHT] + count[POINTS_UPRIGHT];
  d->upright = choice == EXIF_YES ||
               (choice == EXIF_AUTO && (upright == count[POINTS_STORED] ? otherwise : upright > count[POINTS_STORED]));
  int exchanged = 0;
  if (d->upright && turned) {
    read_headers(&all, 1);
    exchanged = exchange_sides(d, all.of);
  }
  if (choice == EXIF_AUTO && d->upright && upright > count[POINTS_STORED])
    notes_add(&d->notes,
              "%s: images with an EXIF orientation are rotated by it, because %s; --exif no reads them as stored",
              d->coco.path,
              count[SIZE_UPRIGHT] >= count[POINTS_UPRIGHT]
                  ? "the annotated sizes are those of upright images"
                  : "the annotated points are those of upright images, although the sizes are those of the files");
  if (exchanged)
    notes_add(&d->notes,
              "%s: %d images are rotated by 90 degrees, but their width and height are those before the "
              "rotation; these were swapped",
              d->coco.path, exchanged);
  const bool ok = check_sizes(d, all.of, err);
  free(all.of);
  return ok;
}
