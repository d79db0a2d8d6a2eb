// Catches images decoded to other pixels than PIL's, damaged files that crash the decoder, and invalid PNG output.
#include <dirent.h>
#include <pthread.h>
#include "base/json.h"
#include "base/rng.h"
#include "data/images/image.h"
#include "data/images/png.h"
#include "test/harness/png_pixels.h"
#include "test/harness/test.h"

// Files on which we and PIL rightly differ; `mean` is what we then expect in every channel, or -1: a refusal.
typedef struct Exception {
  const char *file;
  double mean;
} Exception;
static const Exception exceptions[] = {
    {"ljt_testimgari.jpg", -1},                // arithmetic coding, which stb_image does not read
    {"made_gray16.png", 115.780},              // PIL clips 16-bit gray at 255; we keep the upper 8 bits
    {"pillow_png_decompression_dos.png", 0.0}, // a bomb in a text chunk, which we do not inflate
};

typedef struct Expected {
  char file[256];
  int w, h, orientation;
  bool refused;
  double mean[3];
} Expected;

static void read_entry(Json *j, Expected *e) {
  *e = (Expected){.orientation = 1};
  const char *key;
  if (!json_begin_object(j)) return;
  while ((key = json_key(j))) {
    size_t len;
    if (!strcmp(key, "file")) {
      snprintf(e->file, sizeof e->file, "%s", json_string(j, &len));
    } else if (!strcmp(key, "width")) {
      e->w = (int)json_int(j);
    } else if (!strcmp(key, "height")) {
      e->h = (int)json_int(j);
    } else if (!strcmp(key, "exif_orientation") && json_peek(j) == JSON_NUMBER) {
      e->orientation = (int)json_int(j);
    } else if (!strcmp(key, "pil_strict_decode")) {
      e->refused = strcmp(json_string(j, &len), "ok") != 0;
    } else if (!strcmp(key, "mean_rgb_pil")) {
      int c = 0;
      if (json_begin_array(j))
        while (json_next(j)) e->mean[c++ % 3] = json_number(j);
    } else {
      json_skip(j);
    }
  }
}

static void mean_rgb(const Image *im, double mean[3]) {
  size_t pixels = (size_t)im->h * im->w;
  memset(mean, 0, 3 * sizeof *mean);
  for (size_t i = 0; i < 3 * pixels; i++) mean[i % 3] += (double)im->rgb[i] / (double)pixels;
}

static void check_file(const char *path, const Expected *e) {
  Image im;
  Err err = {{0}};
  bool ok = image_load(&im, path, &err), differs = false;
  double want[3] = {e->mean[0], e->mean[1], e->mean[2]};
  bool refused = e->refused;
  for (int i = 0; i < COUNT(exceptions); i++) {
    if (strcmp(exceptions[i].file, e->file)) continue;
    differs = true;
    refused = exceptions[i].mean < 0;
    for (int c = 0; c < 3; c++) want[c] = exceptions[i].mean;
  }
  if (!EXPECT_INT(ok, !refused)) printf("    %s: %s\n", e->file, err.msg);
  if (!ok) {
    EXPECT(strstr(err.msg, e->file) != NULL && strchr(err.msg, '\n') == NULL);
    return;
  }
  double mean[3];
  mean_rgb(&im, mean);
  // Two decoders of one JPEG may differ by one level where the IDCT rounds, where chroma is interpolated, and where
  // YCbCr becomes RGB; of either sign, so half a level is ample for a mean. PNGs are exact; an exception states the
  // mean over all channels of an image that may be coloured.
  double tolerance = strstr(path, ".png") ? 1e-3 : 0.5;
  if (differs) {
    EXPECT_NEAR((mean[0] + mean[1] + mean[2]) / 3, want[0], 0.1);
  } else {
    EXPECT_INT(im.h, e->h);
    EXPECT_INT(im.w, e->w);
    for (int c = 0; c < 3; c++)
      if (!EXPECT_NEAR(mean[c], want[c], tolerance)) printf("    %s channel %d\n", e->file, c);
  }
  int h, w;
  if (EXPECT(image_info(path, false, &h, &w, &err))) {
    EXPECT_INT(h, im.h);
    EXPECT_INT(w, im.w);
  }
  if (EXPECT(image_info(path, true, &h, &w, &err))) {
    EXPECT_INT(h, e->orientation < IMAGE_TURNED ? im.h : im.w);
    EXPECT_INT(w, e->orientation < IMAGE_TURNED ? im.w : im.h);
  }
  size_t size;
  char *bytes = file_read(path, &size, &err);
  EXPECT_INT(image_orientation((const uint8_t *)bytes, size), e->orientation);
  free(bytes);
  image_free(&im);
}

TEST(image_odd_files_as_pil_reads_them) {
  const char *manifest = shared_path("odd_images/manifest.json");
  if (!manifest) {
    test_skip("no shared/data/odd_images");
    return;
  }
  size_t size;
  Err err;
  char *text = file_read(manifest, &size, &err);
  if (!EXPECT(text != NULL)) return;
  Json j;
  json_open(&j, manifest, text, size);
  int files = 0;
  if (EXPECT(json_begin_array(&j))) {
    while (json_next(&j)) {
      Expected e;
      read_entry(&j, &e);
      char relative[300];
      snprintf(relative, sizeof relative, "odd_images/%s", e.file);
      const char *path = shared_path(relative);
      if (EXPECT(path != NULL)) check_file(path, &e);
      files++;
    }
  }
  EXPECT(json_done(&j));
  EXPECT(files >= 60);
  json_close(&j);
  free(text);
}

static Image noise_image(int h, int w, int bits, uint64_t key) {
  Image im = image_alloc(h, w);
  for (size_t i = 0; i < (size_t)h * w * 3; i++) im.rgb[i] = (uint8_t)(rng_u32(key, i) >> (32 - bits));
  return im;
}

static bool same_image(const Image *a, const Image *b) {
  return a->h == b->h && a->w == b->w && !memcmp(a->rgb, b->rgb, (size_t)a->h * a->w * 3);
}

TEST(png_round_trip) {
  static const int sizes[][2] = {{1, 1}, {1, 7}, {9, 1}, {31, 33}, {64, 5}, {701, 511}}; // the last in two bands
  char path[512];
  snprintf(path, sizeof path, "%s/round.png", test_tmp());
  for (int i = 0; i < COUNT(sizes); i++) {
    for (int bits = 0; bits <= 8; bits += 4) { // constant, low-contrast and incompressible: every filter gets its turn
      Image in = noise_image(sizes[i][0], sizes[i][1], bits ? bits : 1, RNG_TEST + (uint64_t)i), out;
      Err err = {{0}};
      if (EXPECT(png_write(path, &in, i % 2 ? PNG_FAST : PNG_SMALL, &err)) && EXPECT(image_load(&out, path, &err))) {
        EXPECT(same_image(&in, &out));
        image_free(&out);
      }
      image_free(&in);
    }
  }
}

// Gray, RGB and RGB with alpha, in 8 and 16 bits: the samples come back, and other readers take them for what they are.
TEST(png_of_any_samples) {
  static const int channels[] = {1, 3, 4};
  char *path = xasprintf("%s/samples.png", test_tmp());
  for (int i = 0; i < 2 * COUNT(channels); i++) {
    enum { H = 7, W = 13, MOST = H * W * 4 * 2 };
    uint8_t bytes[MOST];
    PngPixels in = {.h = H, .w = W, .channels = channels[i / 2], .sample_bytes = 1 + i % 2, .bytes = bytes};
    const size_t bpp = (size_t)in.channels * (size_t)in.sample_bytes;
    for (int k = 0; k < MOST; k++) bytes[k] = (uint8_t)(rng_u32(9, (uint64_t)k) >> (k < MOST / 2 ? 0 : 6)); // and runs
    Err err;
    Image rgb;
    if (!EXPECT(png_write_pixels(path, &in, PNG_FAST, NULL, &err))) break;
    PngFile out = png_file_read(path);
    EXPECT(out.h == H && out.w == W && out.channels == in.channels && out.sample_bytes == in.sample_bytes);
    EXPECT(out.bytes && !memcmp(out.bytes, bytes, H * W * bpp));
    free(out.bytes);
    if (!EXPECT(image_load(&rgb, path, &err))) break;
    for (size_t k = 0; k < H * W * 3; k++) // gray is repeated, 16 bits keep their upper 8
      EXPECT_INT(rgb.rgb[k], bytes[k / 3 * bpp + (in.channels == 1 ? 0 : k % 3 * (size_t)in.sample_bytes)]);
    image_free(&rgb);
  }
  free(path);
}

TEST(png_says_what_made_it) {
  Image im = noise_image(5, 3, 8, RNG_TEST), read;
  Err err;
  char *path = xasprintf("%s/signed.png", test_tmp());
  const PngPixels pixels = png_pixels(&im);
  EXPECT(png_write_pixels(path, &pixels, PNG_FAST, "this test", &err) && png_is_signed(path, "this test"));
  EXPECT(!png_is_signed(path, "that test") && !png_is_signed("/nonexistent", "this test"));
  if (EXPECT(image_load(&read, path, &err))) {
    EXPECT(same_image(&im, &read));
    image_free(&read);
  }
  EXPECT(png_write(path, &im, PNG_FAST, &err) && !png_is_signed(path, "this test"));
  image_free(&im);
  free(path);
}

TEST(png_filters_compress_gradients) {
  enum { SIDE = 128 };
  Image im = image_alloc(SIDE, SIDE);
  for (int i = 0; i < SIDE * SIDE * 3; i++) im.rgb[i] = (uint8_t)(i / 3 % SIDE + i / 3 / SIDE + i % 3);
  char path[512];
  snprintf(path, sizeof path, "%s/gradient.png", test_tmp());
  Err err = {{0}};
  EXPECT(png_write(path, &im, PNG_SMALL, &err));
  size_t size = 0;
  free(file_read(path, &size, &err));
  // Predicted by its neighbours nearly every residual is the same; unfiltered rows cost far more than a byte a row.
  EXPECT(size > 0 && size < 600);
  image_free(&im);
}

TEST(png_write_says_where_it_failed) {
  Image im = image_alloc(2, 2);
  Err err = {{0}};
  EXPECT(!png_write("/nonexistent/folder/x.png", &im, PNG_FAST, &err));
  EXPECT(strstr(err.msg, "/nonexistent/folder/x.png") != NULL);
  image_free(&im);
}

// Any prefix of a file must be refused, with a message and without reading past its end.
static void check_prefixes(const char *path) {
  Err err = {{0}};
  size_t size;
  char *bytes = file_read(path, &size, &err);
  if (!EXPECT(bytes != NULL)) return;
  for (size_t n = 0; n <= size; n++) {
    uint8_t *prefix = xmalloc(n); // exactly n bytes, so that AddressSanitizer sees the end
    memcpy(prefix, bytes, n);
    Image im;
    bool ok = image_decode(&im, prefix, n, "prefix", &err);
    if (!EXPECT_INT(ok, n == size)) printf("    %s at %zu of %zu bytes\n", path, n, size);
    image_orientation(prefix, n);
    image_free(&im);
    free(prefix);
  }
  free(bytes);
}

TEST(image_refuses_every_prefix) {
  char path[512];
  snprintf(path, sizeof path, "%s/prefix.png", test_tmp());
  Image im = noise_image(5, 4, 8, RNG_TEST);
  Err err = {{0}};
  if (EXPECT(png_write(path, &im, PNG_SMALL, &err))) check_prefixes(path);
  image_free(&im);
  const char *jpeg = shared_path("odd_images/made_1x1.jpg");
  if (jpeg) check_prefixes(jpeg);
}

TEST(image_survives_flipped_bytes) {
  const char *path = shared_path("odd_images/pillow_hopper_orientation_6.jpg");
  if (!path) {
    test_skip("no shared/data/odd_images");
    return;
  }
  Err err = {{0}};
  size_t size;
  char *bytes = file_read(path, &size, &err);
  if (!EXPECT(bytes != NULL)) return;
  for (uint64_t round = 0; round < 300; round++) {
    size_t at = rng_u32(RNG_TEST, 2 * round) % size;
    char kept = bytes[at];
    bytes[at] = (char)rng_u32(RNG_TEST, 2 * round + 1);
    Image im;
    if (!image_decode(&im, (uint8_t *)bytes, size, path, &err)) EXPECT(strstr(err.msg, path) != NULL);
    EXPECT(image_orientation((uint8_t *)bytes, size) >= 1);
    image_free(&im);
    bytes[at] = kept;
  }
  free(bytes);
}

TEST(image_refuses_absurd_sizes) {
  // A PNG header of 65535×65535 pixels: the file is 45 bytes, the pixels would be 12 GB.
  static const uint8_t huge[] = {0x89, 'P', 'N', 'G', 13,  10, 26, 10,  0,   0,   0,   13, 'I', 'H', 'D',
                                 'R',  0,   0,   255, 255, 0,  0,  255, 255, 8,   2,   0,  0,   0,   57,
                                 103,  78,  7,   0,   0,   0,  0,  'I', 'D', 'A', 'T', 0,  0,   0,   0};
  Image im;
  Err err = {{0}};
  EXPECT(!image_decode(&im, huge, sizeof huge, "huge.png", &err));
  EXPECT(im.rgb == NULL && strstr(err.msg, "huge.png") != NULL);
  uint8_t none[sizeof huge];
  memcpy(none, huge, sizeof huge);
  none[18] = none[19] = 0;                  // of its width
  memcpy(none + 29, "\302\033\012\271", 4); // checksum
  EXPECT(!image_decode(&im, none, sizeof none, "none.png", &err));
  EXPECT_STR(
      err.msg,
      "none.png: cannot read the image: its header says 0×65535 pixels; copy or download it again, or remove it");
}

TEST(image_refuses_oversized_huffman_tables) {
  // stb_image 2.27 would write 16 × 255 symbols into room for 256.
  uint8_t jpeg[5000] = {0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0, 0xff, 0xc4, 0x10, 3, 0};
  memset(jpeg + 20, 255, 16);
  Image im;
  Err err = {{0}};
  EXPECT(!image_decode(&im, jpeg, sizeof jpeg, "tables.jpg", &err));
  EXPECT(strstr(err.msg, "corrupt (a Huffman table with 4080 symbols)") != NULL);
}

// ---- same bytes, same pixels ----------------------------------------------------------------------------------------

// Leaves `junk` where the functions called next have their variables.
static __attribute__((noinline)) void fill_stack(int junk) {
  volatile uint8_t room[1 << 16];
  for (size_t i = 0; i < sizeof room; i++) room[i] = (uint8_t)junk;
}

typedef struct Sample {
  char *path;
  char *bytes;
  size_t size;
  Image im; // as it was read first; no pixels where it was refused
  Err err;
} Sample;

typedef struct Samples {
  Sample sample[200];
  int n;
} Samples;

static void add_folder(Samples *s, const char *folder) {
  DIR *dir = opendir(folder);
  if (!EXPECT(dir)) return;
  for (struct dirent *entry; (entry = readdir(dir)) && s->n < COUNT(s->sample);) {
    Sample *to = &s->sample[s->n];
    to->path = xasprintf("%s/%s", folder, entry->d_name);
    to->bytes = path_is_file(to->path) ? file_read(to->path, &to->size, NULL) : NULL;
    if (to->bytes)
      s->n++;
    else
      free(to->path);
  }
  closedir(dir);
}

// Decodes all again, in another order, over a stack and scratch memory that are full of what was there before.
static void *decode_again(void *samples) {
  Samples *s = samples;
  Scratch scratch = {0};
  intptr_t unlike = 0;
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < s->n; i++) {
      const Sample *sample = &s->sample[(i * 7 + round) % s->n];
      const uint8_t *bytes = (const uint8_t *)sample->bytes;
      Err err = {""};
      int h, w;
      scratch_reset(&scratch);
      fill_stack(17 * round + i);
      if (!image_measure(bytes, sample->size, sample->path, &h, &w, &err)) {
        unlike += sample->im.rgb != NULL || strcmp(err.msg, sample->err.msg) != 0;
        continue;
      }
      const size_t size = (size_t)h * w * 3;
      uint8_t *rgb = memset(xmalloc(size), 17 * round + i + 1, size);
      fill_stack(13 * round + i);
      const bool ok = image_decode_into(rgb, 1, (SampleRange){0}, bytes, sample->size, &scratch, sample->path, &err);
      const bool like = ok ? sample->im.rgb && !memcmp(rgb, sample->im.rgb, size)
                           : !sample->im.rgb && !strcmp(err.msg, sample->err.msg);
      if (!like) printf("    %s: other pixels\n", sample->path);
      unlike += !like;
      free(rgb);
    }
  scratch_free(&scratch);
  return (void *)unlike;
}

TEST(image_same_bytes_same_pixels) {
  Samples s = {0};
  add_folder(&s, "test/goldens/images");
  add_folder(&s, "test/corpus/image");
  EXPECT(s.n > 40);
  for (int i = 0; i < s.n; i++) {
    fill_stack(i);
    image_decode(&s.sample[i].im, (uint8_t *)s.sample[i].bytes, s.sample[i].size, s.sample[i].path, &s.sample[i].err);
  }
  pthread_t threads[4];
  for (int t = 0; t < COUNT(threads); t++) CHECK(pthread_create(&threads[t], NULL, decode_again, &s) == 0);
  for (int t = 0; t < COUNT(threads); t++) {
    void *unlike;
    pthread_join(threads[t], &unlike);
    EXPECT_INT((int)(intptr_t)unlike, 0);
  }
  for (int i = 0; i < s.n; i++) {
    image_free(&s.sample[i].im);
    free(s.sample[i].bytes);
    free(s.sample[i].path);
  }
}

TEST(image_missing_file) {
  Image im;
  int h, w;
  Err err = {{0}};
  EXPECT(!image_load(&im, "/nonexistent.jpg", &err) && strstr(err.msg, "/nonexistent.jpg"));
  err.msg[0] = 0;
  EXPECT(!image_info("/nonexistent.jpg", false, &h, &w, &err) && strstr(err.msg, "/nonexistent.jpg"));
}

// The letter F, whose eight turns all differ, as cameras store it; decoded upright each must read the same.
TEST(image_stands_f_upright) {
  enum { H = 3, W = 2 };
  static const char *const stored[8] = {"Ff/F./F.", "fF/.F/.F", ".F/.F/fF", "F./F./Ff",
                                        "FFF/f..",  "f../FFF",  "..f/FFF",  "FFF/..f"};
  char path[512];
  snprintf(path, sizeof path, "%s/f.png", test_tmp());
  for (int o = 1; o <= 8; o++) {
    const char *s = stored[o - 1];
    Image im = o < IMAGE_TURNED ? image_alloc(H, W) : image_alloc(W, H);
    for (int y = 0; y < im.h; y++)
      for (int x = 0; x < im.w; x++) memset(im.rgb + 3 * (y * im.w + x), s[y * (im.w + 1) + x], 3);
    Err err = {{0}};
    CHECK(png_write(path, &im, PNG_FAST, &err));
    image_free(&im);
    size_t size;
    char *bytes = file_read(path, &size, &err);
    Scratch scratch = {0};
    uint8_t rgb[H * W * 3];
    char upright[H * (W + 1)] = {0};
    EXPECT(image_decode_into(rgb, o, (SampleRange){0}, (uint8_t *)bytes, size, &scratch, path, &err));
    for (int y = 0; y < H; y++) {
      for (int x = 0; x < W; x++) upright[y * (W + 1) + x] = (char)rgb[3 * (y * W + x) + 2];
      if (y + 1 < H) upright[y * (W + 1) + W] = '/';
    }
    EXPECT_STR(upright, stored[0]);
    scratch_free(&scratch);
    free(bytes);
  }
}

// A camera held sideways: rows of the upright picture are columns of the file.
TEST(image_load_as_heeds_the_tag) {
  const char *path = shared_path("odd_images/pillow_hopper_orientation_6.jpg");
  if (!path) {
    test_skip("no shared/data/odd_images");
    return;
  }
  Image stored, upright;
  Err err = {{0}};
  if (!EXPECT(image_load(&stored, path, &err) && image_load_as(&upright, path, true, (SampleRange){0}, &err))) return;
  EXPECT(upright.h == stored.w && upright.w == stored.h);
  int wrong = 0; // 6: the file's left column, from the bottom, is the upright picture's top row
  for (int y = 0; y < upright.h; y++)
    for (int x = 0; x < upright.w; x++)
      wrong += memcmp(upright.rgb + 3 * (y * upright.w + x), stored.rgb + 3 * ((stored.h - 1 - x) * stored.w + y), 3);
  EXPECT_INT(wrong, 0);
  image_free(&stored);
  image_free(&upright);
}
