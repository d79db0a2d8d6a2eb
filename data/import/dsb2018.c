// One mask an object, as the Data Science Bowl 2018 was published: a folder for each picture, with images/NAME.png and
// masks/*.png, one an object. https://bbbc.broadinstitute.org/BBBC038
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

// The folder around one of this name, malloc'ed, if the file is a picture in that; else NULL.
static char *folder_around(const TreeFile *f, const char *name) {
  char *folder = path_folder(f->path), *above = NULL;
  if (f->picture && !strcmp(path_name(folder), name)) above = path_folder(folder);
  free(folder);
  return above;
}

static void take_mask(ImportSet *s, int image, const TreeFile *f, const char *class) {
  Samples mask;
  Err err;
  const ImportImage *im = &s->images[image];
  if (!samples_load(&mask, f->full, &err)) {
    import_broken(s, "%s", err.msg);
    return;
  }
  if (mask.h == im->stored_h && mask.w == im->stored_w)
    object_mask(import_object(s, image, class, NULL), mask_of_samples(&mask, false, 0, 0, im->h, im->w));
  else
    import_invalid(s, f->path, "mask: its size is not that of its image");
  samples_free(&mask);
}

// The folder has the picture's name, which tells it from images/ and masks/ of a whole data set.
static bool is_of(const char *folder, const TreeFile *picture) {
  char *stem = path_stem(picture->path);
  const bool is = !strcmp(path_name(folder), stem);
  free(stem);
  return is;
}

// Reads the folders, or with s NULL counts them. In the order of paths, images/ comes before masks/.
static int walk(ImportSet *s, const Tree *t) {
  char *around = NULL; // the folder of the last picture in images/
  int picture = -1, image = -1, pictures = 0, n = 0;
  bool begun = false;
  for (int i = 0; i < t->n; i++) {
    char *images = folder_around(&t->file[i], "images"), *masks = folder_around(&t->file[i], "masks");
    if (images) {
      if (s && begun && image >= 0) import_take_back(s, image); // not one of its masks can be read
      pictures = around && !strcmp(around, images) ? pictures + 1 : 1;
      free(around);
      around = images;
      picture = i;
      begun = false;
    } else if (masks && around && pictures == 1 && !strcmp(around, masks) && is_of(masks, &t->file[picture])) {
      if (!begun) {
        n++;
        image = s ? import_image(s, picture, NULL) : -1;
        if (image >= 0) import_size(s, image, s->images[image].stored_h, s->images[image].stored_w);
      }
      begun = true;
      if (image >= 0) take_mask(s, image, &t->file[i], s->options.class_name ? s->options.class_name : "nucleus");
    }
    free(masks);
  }
  if (s && begun && image >= 0) import_take_back(s, image);
  free(around);
  return n;
}

static void read_dsb2018(ImportSet *s) {
  s->files = walk(s, s->tree);
  for (int i = 0; i < s->tree->n; i++)
    if (s->tree->file[i].picture && strstr(s->tree->file[i].path, "images/") && s->tree->file[i].image < 0)
      import_drop(s, s->tree->file[i].path, "image: it has no folder of masks");
}

static int detect_dsb2018(Tree *t) { return t->only ? 0 : walk(NULL, t); }

const ImportFormat import_dsb2018 = {"dsb2018", "one-mask-per-object image", detect_dsb2018, read_dsb2018};
