// Leaves images or categories out of a data set in memory.
#include <stdlib.h>
#include "base/alloc.h"
#include "data/coco/coco.h"

// Broken annotations of images that were left out go; those of no image stay.
static void keep_broken(Coco *c, const bool *keep) {
  int n = 0;
  for (int i = 0; i < c->num_broken; i++) {
    const int image = coco_find_image(c, c->broken[i].image_id);
    if (image < 0 || keep[image]) c->broken[n++] = c->broken[i];
  }
  c->num_broken = n;
}

// Leaves out the annotations whose place afterwards is -1; the others keep their order.
static void place_anns(Coco *c, const int *place) {
  int n = 0;
  for (int a = 0; a < c->num_anns; a++)
    if (c->anns[a].by >= 0) c->anns[a].by = place[c->anns[a].by];
  for (int a = 0; a < c->num_anns; a++)
    if (place[a] >= 0) c->anns[n++] = c->anns[a];
  c->num_anns = n;
}

void coco_keep_images(Coco *c, const bool *keep) {
  int *place = xmalloc((size_t)c->num_anns * sizeof *place); // of each annotation afterwards; -1: it goes
  int images = 0, anns = 0;
  keep_broken(c, keep);
  for (int i = 0; i < c->num_images; i++)
    for (int a = c->images[i].first_ann; a < c->images[i].first_ann + c->images[i].anns; a++)
      place[a] = keep[i] ? anns++ : -1;
  place_anns(c, place);
  for (int i = 0; i < c->num_images; i++) {
    CocoImage *im = &c->images[i];
    if (keep[i]) {
      if (im->anns > 0) im->first_ann = place[im->first_ann];
      c->images[images++] = *im;
    } else if (!c->map) {
      free(im->file_name);
      free(im->text_id);
    }
  }
  c->num_images = images;
  free(place);
}

void coco_keep_categories(Coco *c, const bool *keep) {
  int *place = xmalloc((size_t)c->num_anns * sizeof *place), *to = xmalloc((size_t)c->num_categories * sizeof *to);
  int anns = 0, categories = 0;
  for (int k = 0; k < c->num_categories; k++) to[k] = keep[k] ? categories++ : -1;
  for (int i = 0; i < c->num_images; i++) {
    CocoImage *im = &c->images[i];
    const int first = im->first_ann, end = first + im->anns, before = anns;
    for (int a = first; a < end; a++) {
      const int category = c->anns[a].category;
      place[a] = category < 0 || keep[category] ? anns++ : -1;
      if (category >= 0) c->anns[a].category = to[category];
    }
    im->first_ann = before;
    im->anns = anns - before;
  }
  place_anns(c, place);
  const bool own = !c->map || c->own_categories;
  for (int k = 0; k < c->num_categories; k++) {
    if (keep[k]) {
      c->categories[to[k]] = c->categories[k];
    } else if (own) {
      free(c->categories[k].name);
      free(c->categories[k].text_id);
    }
  }
  c->num_categories = categories;
  free(place);
  free(to);
  coco_digest_labels(c);
}
