// Catches images whose format, file or place changes what is found, and damaged ones that harm the others of a batch.
#include <dlfcn.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/jpeg_write.h"
#include "data/images/png.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

enum { W = 90, H = 61 };

// Grey, so that every format can hold it; free(data).
static maskrcnn_image grey_image(void) {
  maskrcnn_image image = library_image(W, H, 0, 3);
  uint8_t *rgb = (uint8_t *)image.data;
  for (int i = 0; i < W * H; i++) rgb[3 * i + 1] = rgb[3 * i + 2] = rgb[3 * i];
  return image;
}

// The same image in another format, with gaps between its rows.
static maskrcnn_image as(maskrcnn_format format, int bytes, const maskrcnn_image *image) {
  const uint8_t *rgb = image->data;
  const size_t pitch = (size_t)(bytes * W + 6);
  uint8_t *data = xmalloc(pitch * H);
  memset(data, 77, pitch * H);
  for (int y = 0; y < H; y++)
    for (int x = 0; x < W; x++) {
      const uint8_t *from = rgb + 3 * (y * W + x);
      uint8_t *to = data + (size_t)y * pitch + (size_t)(bytes * x);
      for (int k = 0; k < MIN(bytes, 3); k++) to[k] = format == MASKRCNN_BGR ? from[2 - k] : from[k];
      if (format == MASKRCNN_GREY16) *(uint16_t *)to = (uint16_t)(1000 + 4 * from[0] + 3);
    }
  return (maskrcnn_image){.size = sizeof(maskrcnn_image),
                          .data = data,
                          .format = format,
                          .width = W,
                          .height = H,
                          .pitch = (int64_t)pitch,
                          .range_low = format == MASKRCNN_GREY16 ? 1000 : 0,
                          .range_high = format == MASKRCNN_GREY16 ? 1000 + 1023 : 0};
}

static maskrcnn_image encoded(const void *data, size_t bytes) {
  return (maskrcnn_image){.size = sizeof(maskrcnn_image), .data = data, .format = MASKRCNN_ENCODED, .bytes = bytes};
}

static void formats_of(const char *weights) {
  enum { FORMATS = 6 };
  Err err;
  maskrcnn_options o = library_options();
  o.weights = weights;
  o.batch = 2;
  maskrcnn *m = library_open(&o);
  const maskrcnn_image grey = grey_image();
  maskrcnn_image images[1 + FORMATS] = {grey,
                                        as(MASKRCNN_RGB, 3, &grey),
                                        as(MASKRCNN_BGR, 3, &grey),
                                        as(MASKRCNN_RGBA, 4, &grey),
                                        as(MASKRCNN_GREY, 1, &grey),
                                        as(MASKRCNN_GREY16, 2, &grey)};
  size_t size;
  maskrcnn_results *r = NULL;
  const char *path = in_tmp("grey.png");
  CHECK(png_write(path, &(Image){.h = H, .w = W, .rgb = (uint8_t *)grey.data}, PNG_FAST, &err));
  char *file = file_read(path, &size, &err);
  images[FORMATS] = encoded(file, size);
  if (m && EXPECT_INT(maskrcnn_run(m, images, 1 + FORMATS, &r, &why), MASKRCNN_OK)) EXPECT_INT(r->failed, 0);
  for (int i = 0; r && i <= FORMATS; i++)
    if (!EXPECT(library_same(r->images[0], r->images[i]))) printf("    format %d: %s\n", i, r->images[i]->message);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  for (int i = 0; i <= FORMATS; i++) free((void *)images[i].data);
}

TEST(library_finds_the_same_in_any_format) {
  formats_of(library_weights(NORM_FROZEN_BN));
  formats_of(library_classifier());
}

// Colours come in their order: blue and red are exchanged by the format alone.
TEST(library_tells_rgb_from_bgr) {
  maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  maskrcnn_image rgb = library_image(W, H, 0, 3), bgr = as(MASKRCNN_BGR, 3, &rgb), wrong = rgb;
  wrong.format = MASKRCNN_BGR;
  const maskrcnn_image images[] = {rgb, bgr, wrong};
  maskrcnn_results *r = NULL;
  if (m && EXPECT_INT(maskrcnn_run(m, images, 3, &r, &why), MASKRCNN_OK)) {
    EXPECT(library_same(r->images[0], r->images[1]));
    EXPECT(!library_same(r->images[0], r->images[2]));
  }
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&rgb);
  library_free(&bgr);
}

// JPEGs cut anywhere, and what is no image, among good ones.
TEST(library_refuses_damaged_files_alone) {
  maskrcnn_options o = library_options();
  o.batch = 3;
  maskrcnn *m = library_open(&o);
  maskrcnn_image rgb = library_image(W, H, 0, 3);
  size_t size;
  uint8_t *jpeg = jpeg_encode(&(Image){.h = H, .w = W, .rgb = (uint8_t *)rgb.data}, 90, &size);
  const struct {
    size_t bytes;
    const void *data;
    const char *want;
  } bad[] = {{size / 2, jpeg, "truncated"},
             {100, jpeg, "cannot read the image"},
             {0, jpeg, "the file is empty"},
             {20, "not an image at all, no", "not a JPEG or PNG file"},
             {10, NULL, "data is NULL"}};
  for (int i = 0; m && i < COUNT(bad); i++) {
    const maskrcnn_image images[] = {encoded(jpeg, size), encoded(bad[i].data, bad[i].bytes), encoded(jpeg, size)};
    maskrcnn_results *r = NULL;
    if (!EXPECT_INT(maskrcnn_run(m, images, 3, &r, &why), MASKRCNN_OK)) continue;
    EXPECT(r->failed == 1 && r->images[1]->status == MASKRCNN_BAD_IMAGE);
    if (!EXPECT(strstr(r->images[1]->message, bad[i].want))) printf("    %s\n", r->images[1]->message);
    EXPECT(r->images[0]->width == W && r->images[0]->height == H && library_same(r->images[0], r->images[2]));
    maskrcnn_results_free(r);
  }
  maskrcnn_close(m);
  free(jpeg);
  library_free(&rgb);
}

TEST(library_refuses_formats_it_does_not_know) {
  maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  maskrcnn_image good = library_image(W, H, 0, 3), bad[5] = {good, good, good, good, good};
  static const char *const want[] = {"format is 0", "format is 99",
                                     "place is MASKRCNN_GPU, but the handle computes on the CPU", "its range is 5 to 4",
                                     "samples of 16 bits must be aligned"};
  bad[0].format = (maskrcnn_format)0;
  bad[1].format = (maskrcnn_format)99;
  bad[2].place = MASKRCNN_GPU;
  bad[3].range_low = 5;
  bad[3].range_high = 4;
  bad[4].format = MASKRCNN_GREY16;
  bad[4].data = (const uint8_t *)good.data + 1;
  maskrcnn_results *r = NULL;
  if (m && EXPECT_INT(maskrcnn_run(m, bad, 5, &r, &why), MASKRCNN_OK))
    for (int i = 0; i < 5; i++) {
      EXPECT_INT(r->images[i]->status, MASKRCNN_BAD_IMAGE);
      if (!EXPECT(strstr(r->images[i]->message, want[i]))) printf("    %s\n", r->images[i]->message);
    }
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&good);
}

// ---- the GPU's memory -----------------------------------------------------------------------------------------------

#define MUST(condition) (void)((condition) || (fprintf(stderr, "line %d: %s\n", __LINE__, #condition), exit(1), 0))

// The stand-in's memory is the host's: images there and here are found alike, and one that cannot be read is refused.
static void on_the_stand_in(void *fault) {
  if (*(char *)fault) setenv("FAULT", fault, 1);
  void *library = dlopen(tool("faulty/libmaskrcnn.so"), RTLD_NOW | RTLD_LOCAL);
  MUST(library);
#define CALL(name) __typeof__(&maskrcnn_##name) name = (__typeof__(name))dlsym(library, "maskrcnn_" #name)
  CALL(open);
  CALL(run);
  CALL(close);
  CALL(list_devices);
#undef CALL
  maskrcnn_options o = library_options();
  maskrcnn_image rgb = library_image(W, H, 0, 3), there = as(MASKRCNN_RGB, 3, &rgb), bgr = as(MASKRCNN_BGR, 3, &rgb);
  maskrcnn_results *r;
  maskrcnn_devices *d;
  maskrcnn *m;
  MUST(list_devices(&d, &why) == MASKRCNN_OK && d->n == 2 && !*d->why_no_gpu);
  MUST(!strcmp(d->devices[0]->name, "cuda:0") && !strcmp(d->devices[1]->name, "cpu"));
  o.device = "cuda:0";
  there.place = bgr.place = MASKRCNN_GPU;
  const maskrcnn_image images[] = {rgb, there, bgr};
  MUST(open(&m, &o, &why) == MASKRCNN_OK);
  MUST(run(m, images, 3, &r, &why) == MASKRCNN_OK);
  if (*(char *)fault) MUST(r->failed == 1 && strstr(r->images[1]->message, "does not point to memory of GPU 0"));
  if (!*(char *)fault) MUST(library_same(r->images[0], r->images[1]));
  MUST(library_same(r->images[0], r->images[2]));
  close(m);
}

TEST(library_reads_images_on_the_gpu) {
  static char *const faults[] = {"", "read_rows:1:"};
  const char *said;
  library_weights(NORM_FROZEN_BN);
  for (int i = 0; i < COUNT(faults); i++)
    if (!EXPECT_INT(run_in_child(on_the_stand_in, faults[i], &said), 0)) printf("    %s: %s\n", faults[i], said);
}
