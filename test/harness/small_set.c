#include "test/harness/small_set.h"
#include <unistd.h>
#include "base/rng.h"
#include "data/images/png.h"
#include "test/harness/test.h"

enum { EMPTY_EVERY = 5, MOST_SECONDS = 120 };

Size image_size(int image) { return image % 3 ? (Size){40 + image, 60} : (Size){60, 40 + image}; }
int image_objects(int image) { return image % EMPTY_EVERY == EMPTY_EVERY - 1 ? 0 : 1 + image % 3; }
uint8_t image_byte(int image, int64_t i) { return (uint8_t)rng_u32(rng_key(RNG_TEST, (uint64_t)image), (uint64_t)i); }
int object_x(int image, int o) { return 2 + image % 7 + 8 * o; }
int object_y(int o) { return 3 + 9 * o; }

void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

// The segmentations take turns: polygon, run lengths, none.
static void write_segmentation(FILE *f, int type, int x, int y, Size s) {
  int r = x + OBJECT_W, b = y + OBJECT_H;
  if (type == 0) fprintf(f, ",\"segmentation\":[[%d,%d,%d,%d,%d,%d,%d,%d]]", x, y, r, y, r, b, x, b);
  if (type != 1) return;
  fprintf(f, ",\"segmentation\":{\"size\":[%d,%d],\"counts\":[%d", s.h, s.w, x * s.h + y);
  for (int c = 1; c < OBJECT_W; c++) fprintf(f, ",%d,%d", OBJECT_H, s.h - OBJECT_H);
  fprintf(f, ",%d,%d]}", OBJECT_H, (s.w - r) * s.h + s.h - b);
}

static void begin_annotation(FILE *f, int *id, int image, bool crowd, int category, int x, int y) {
  const char *comma = *id ? "," : "";
  fprintf(f, "%s{\"id\":%d,\"image_id\":%d,\"iscrowd\":%d,\"category_id\":%d,\"bbox\":[%d,%d,%d,%d]", comma, ++*id,
          100 + image, crowd, category, x, y, OBJECT_W, OBJECT_H);
}

static void write_annotations(FILE *f) {
  fprintf(f, "{\"categories\":[{\"id\":3,\"name\":\"a\"},{\"id\":8,\"name\":\"b\"}],\"images\":[");
  for (int i = 0; i < IMAGES; i++)
    fprintf(f, "%s{\"id\":%d,\"file_name\":\"%d.png\",\"height\":%d,\"width\":%d}", i ? "," : "", 100 + i, i,
            image_size(i).h, image_size(i).w);
  fprintf(f, "],\"annotations\":[");
  for (int i = 0, id = 0; i < IMAGES; i++) {
    for (int o = 0; o < image_objects(i); o++) {
      begin_annotation(f, &id, i, false, o % 2 ? 8 : 3, object_x(i, o), object_y(o));
      write_segmentation(f, id % 3, object_x(i, o), object_y(o), image_size(i));
      fputs("}", f);
    }
    if (image_objects(i) > 0) continue;
    begin_annotation(f, &id, i, true, 3, 1, 1);
    fputs("}", f);
    begin_annotation(f, &id, i, false, 3, 200, 1);
    fputs("}", f);
    begin_annotation(f, &id, i, false, 77, 1, 1);
    fputs("}", f);
  }
  fprintf(f, "]}");
}

const char *small_set(const char *name) {
  static char dir[512];
  char path[1024];
  snprintf(dir, sizeof dir, "%s/%s", test_tmp(), name);
  snprintf(path, sizeof path, "%s/annotations", dir);
  CHECK(dirs_make(path, NULL));
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  FILE *f = fopen(path, "w");
  CHECK(f);
  write_annotations(f);
  CHECK(fclose(f) == 0);
  snprintf(path, sizeof path, "%s/train", dir);
  CHECK(dirs_make(path, NULL));
  for (int i = 0; i < IMAGES; i++) {
    Image im = image_alloc(image_size(i).h, image_size(i).w);
    for (int64_t p = 0; p < (int64_t)im.h * im.w * 3; p++) im.rgb[p] = image_byte(i, p);
    snprintf(path, sizeof path, "%s/train/%d.png", dir, i);
    CHECK(png_write(path, &im, PNG_FAST, NULL));
    image_free(&im);
  }
  return dir;
}

const DatasetOptions small_options = {.resize = {.size = 96, .max_size = 160}, .max_canvases = 2};

bool open_set(Dataset *d, const char *dir, const DatasetOptions *options) {
  Err err;
  test_limit(MOST_SECONDS);
  bool ok = dataset_open(d, dir, "train", options, &err);
  if (!EXPECT(ok)) printf("%s\n", err.msg);
  return ok;
}

int image_number(const Dataset *d, int index) { return (int)d->coco.images[d->image[index]].id - 100; }
