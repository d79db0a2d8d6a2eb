// Leaves images out of a data set in memory.
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

void coco_keep_images(Coco *c, const bool *keep) {
  int *place = xmalloc((size_t)c->num_anns * sizeof *place); // of each annotation afterwards; -1: it goes
  int images = 0, anns = 0;
  keep_broken(c, keep);
  for (int i = 0; i < c->num_images; i++)
    for (int a = c->images[i].first_ann; a < c->images[i].first_ann + c->images[i].anns; a++)
      place[a] = keep[i] ? anns++ : -1;
  for (int a = 0; a < c->num_anns; a++)
    if (c->anns[a].by >= 0) c->anns[a].by = place[c->anns[a].by];
  for (int a = 0; a < c->num_anns; a++)
    if (place[a] >= 0) c->anns[place[a]] = c->anns[a];
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
  c->num_anns = anns;
  free(place);
}
