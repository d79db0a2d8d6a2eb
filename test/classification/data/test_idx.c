// Catches IDX files that are misread, and damaged ones that are accepted or crash the reader.
#include <stdlib.h>
#include <zlib.h>
#include "base/file.h"
#include "base/rng.h"
#include "classification/data/idx.h"
#include "test/harness/test.h"

static const char *const train[] = {"train", NULL}, *const test[] = {"t10k", "test", NULL};

static void write_bytes(const char *path, const void *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

static const char *folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", test_tmp(), name);
  CHECK(dirs_make(path, NULL));
  return path;
}

static void expect_real(const char *set, const char *const *split, int n, const int count[10]) {
  const char *dir = shared_path(set);
  if (!dir) {
    test_skip("no shared data");
    return;
  }
  Err err = {""};
  char *images, *labels;
  Idx x, y;
  if (!EXPECT(idx_find(dir, split, &images, &labels, &err) && idx_load_pair(&x, &y, images, labels, &err))) return;
  EXPECT_INT(x.n, n);
  EXPECT_INT(y.n, n);
  EXPECT(x.h == 28 && x.w == 28);
  int got[256] = {0};
  for (int i = 0; i < n; i++) got[y.bytes[i]]++;
  int labelled = 0;
  for (int i = 0; i < 10; i++) {
    labelled += got[i];
    if (count) EXPECT_INT(got[i], count[i]);
  }
  EXPECT_INT(labelled, n);
  free(images);
  free(labels);
  idx_free(&x);
  idx_free(&y);
}

// The counts are those that the literature gives for MNIST.
TEST(idx_reads_the_real_sets) {
  static const int mnist_train[] = {5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
                   mnist_test[] = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
  expect_real("mnist", train, 60000, mnist_train);
  expect_real("mnist", test, 10000, mnist_test);
  expect_real("fashion", train, 3615, NULL);
  expect_real("fashion", test, 4443, NULL);
}

TEST(idx_writes_what_it_reads) {
  const char *names[] = {"a-images-idx3-ubyte", "b-images-idx3-ubyte.gz"};
  uint8_t bytes[5 * 7 * 3];
  for (int i = 0; i < COUNT(bytes); i++) bytes[i] = (uint8_t)rng_u32(RNG_TEST, (uint64_t)i);
  for (int k = 0; k < COUNT(names); k++) {
    Err err = {""};
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder("idx-written"), names[k]);
    Idx a = {5, 7, 3, bytes}, b;
    EXPECT(idx_save(&a, path, IDX_IMAGES, &err));
    if (!EXPECT(idx_load(&b, path, IDX_IMAGES, &err))) continue;
    EXPECT(b.n == 5 && b.h == 7 && b.w == 3 && !memcmp(b.bytes, bytes, sizeof bytes));
    idx_free(&b);
  }
}

// Bytes as they are and as gzip are refused with a message that holds `says`.
static void expect_refused(const void *bytes, size_t size, int dimensions, const char *says) {
  Err err = {""};
  Idx a;
  if (!EXPECT(!idx_parse(&a, bytes, size, "F", dimensions, &err) && strstr(err.msg, says) && !a.bytes))
    printf("  said: %s\n  expected: %s\n", err.msg, says);
}

static size_t gzipped(uint8_t *to, size_t room, const void *bytes, size_t size) {
  z_stream z = {0};
  CHECK(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  z.next_in = (Bytef *)(uintptr_t)bytes;
  z.avail_in = (uInt)size;
  z.next_out = to;
  z.avail_out = (uInt)room;
  CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
  deflateEnd(&z);
  return room - z.avail_out;
}

static const uint8_t two_images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,  0,  0,
                                     0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; // 2 of 2 × 3

TEST(idx_refuses_by_one_line) {
  uint8_t b[64];
  Err err;
  Idx a;
  expect_refused("", 0, IDX_IMAGES, "F: the file is empty");
  expect_refused("<html>", 6, IDX_IMAGES,
                 "F: not an IDX file: it begins with 3c 68 instead of 00 00; download it again");
  expect_refused("\0\0\x0d\3", 4, IDX_IMAGES,
                 "F: elements of type 0x0d (floats), but only unsigned bytes (0x08) are supported; convert it");
  expect_refused("\0\0\x77\3", 4, IDX_IMAGES, "type 0x77 (unknown)");
  expect_refused("\0\0\x08\1\0\0\0\1\7", 9, IDX_IMAGES, "F: 1 dimensions, but files of images have 3; swap the files");
  expect_refused(two_images, sizeof two_images, IDX_LABELS, "F: 3 dimensions, but files of labels have 1");
  for (size_t cut = 1; cut < 16; cut++)
    expect_refused(two_images, cut, IDX_IMAGES, "F: the file ends within its header; download it again");
  for (size_t cut = 16; cut < sizeof two_images; cut++)
    expect_refused(two_images, cut, IDX_IMAGES,
                   "F: truncated: the header says 2 images of 3 x 2, which is 12 bytes, but there are ");
  memcpy(b, two_images, sizeof two_images);
  expect_refused(b, sizeof two_images + 1, IDX_IMAGES,
                 "F: the file has more data than the 2 images of 3 x 2 in its header; download it again");
  b[7] = 0;
  expect_refused(b, sizeof two_images, IDX_IMAGES, "F: it is empty: 0 images of 3 x 2; download it again");
  b[7] = 2;
  b[4] = 0x80; // 2^31 + 2 images
  expect_refused(b, sizeof two_images, IDX_IMAGES,
                 "F: the header says 2147483650 images of 3 x 2 pixels, but an image has at most ");
  b[4] = 0;
  b[8] = b[12] = 0xff; // sides whose product overflows 32 bits
  expect_refused(b, sizeof two_images, IDX_IMAGES,
                 " pixels, but an image has at most 268435456 pixels; download it again");
  EXPECT(idx_parse(&a, two_images, sizeof two_images, "F", IDX_IMAGES, &err) && a.n == 2 && a.h == 2 && a.w == 3);
  idx_free(&a);
}

// /dev/zero would be read until memory is out.
TEST(idx_refuses_what_is_no_file) {
  static const char *const paths[] = {"/dev/null", "/dev"};
  Err err;
  Idx a;
  for (int i = 0; i < COUNT(paths); i++)
    EXPECT(!idx_load(&a, paths[i], IDX_IMAGES, &err) &&
           strstr(err.msg, ": not a regular file; put the IDX file there"));
}

TEST(idx_refuses_damaged_gzip) {
  uint8_t z[256], b[256];
  Err err;
  Idx a;
  const size_t size = gzipped(z, sizeof z, two_images, sizeof two_images);
  EXPECT(idx_parse(&a, z, size, "F", IDX_IMAGES, &err) && a.bytes[11] == 12);
  idx_free(&a);
  for (size_t cut = 2; cut < size; cut++) { // whatever is lacking, its checksum included
    if (!EXPECT(!idx_parse(&a, z, cut, "F", IDX_IMAGES, &err) && strstr(err.msg, "download it again")))
      printf("  cut at %zu: %s\n", cut, err.msg);
  }
  for (size_t at = size - 8; at < size; at++) { // checksum and length
    memcpy(b, z, size);
    b[at] ^= 1;
    expect_refused(b, size, IDX_IMAGES, "F: the gzip data are corrupt; download it again");
  }
  memcpy(b, two_images, sizeof two_images);
  b[4] = 0x10; // 268 million images in a few bytes
  const size_t bomb = gzipped(z, sizeof z, b, sizeof two_images);
  expect_refused(z, bomb, IDX_IMAGES, "F: truncated: the header says 268435458 images of 3 x 2, more than ");
  b[4] = 0;
  const size_t longer = gzipped(z, sizeof z, b, sizeof two_images + 3);
  expect_refused(z, longer, IDX_IMAGES,
                 "F: the file has more data than the 2 images of 3 x 2 in its header; download it again");
  const size_t shorter = gzipped(z, sizeof z, two_images, sizeof two_images - 2);
  expect_refused(z, shorter, IDX_IMAGES, ", which is 12 bytes, but there are 10; download it again"); // whole as gzip
  // Two members, as gzip's own concatenation makes them.
  const size_t first = gzipped(z, sizeof z, two_images, 20);
  const size_t both = first + gzipped(z + first, sizeof z - first, two_images + 20, sizeof two_images - 20);
  if (EXPECT(idx_parse(&a, z, both, "F", IDX_IMAGES, &err))) EXPECT(!memcmp(a.bytes, two_images + 16, 12));
  idx_free(&a);
}

static void expect_not_found(const char *dir, const char *const *split, const char *says) {
  Err err = {""};
  char *images, *labels;
  if (!EXPECT(!idx_find(dir, split, &images, &labels, &err) && strstr(err.msg, says) && !images && !labels))
    printf("  said: %s\n  expected: %s\n", err.msg, says);
}

static void touch(const char *dir, const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  write_bytes(path, "", 0);
}

TEST(idx_finds_by_name) {
  Err err = {""};
  char *images, *labels;
  const char *dir = folder("idx-names");
  EXPECT(!idx_in(dir));
  expect_not_found(
      dir, train,
      ": no IDX files for train; put train-images-idx3-ubyte and train-labels-idx1-ubyte there, plain or .gz");
  touch(dir, "train-labels-idx1-ubyte");
  EXPECT(idx_in(dir));
  expect_not_found(dir, train, "train-labels-idx1-ubyte: no images for it; put ");
  touch(dir, "train-images.idx3-ubyte.gz");
  if (EXPECT(idx_find(dir, train, &images, &labels, &err)))
    EXPECT(strstr(images, "/train-images.idx3-ubyte.gz") && strstr(labels, "/train-labels-idx1-ubyte"));
  free(images);
  free(labels);
  touch(dir, "train-images.idx3-ubyte"); // unpacked beside it, as torchvision leaves it
  if (EXPECT(idx_find(dir, train, &images, &labels, &err))) EXPECT(!strstr(images, ".gz"));
  free(images);
  free(labels);
  touch(dir, "t10k-images-idx3-ubyte");
  expect_not_found(dir, test, "t10k-images-idx3-ubyte: no labels for it; put ");
  touch(dir, "emnist-letters-train-images-idx3-ubyte.gz");
  expect_not_found(dir, train, "both emnist-letters-train-images-idx3-ubyte.gz and train-images.idx3-ubyte");
  touch(dir, "constrain-images-idx3-ubyte.gz"); // not of train
  EXPECT(!idx_find(dir, train, &images, &labels, &err) && !strstr(err.msg, "constrain"));
}

TEST(idx_counts_have_to_agree) {
  Err err = {""};
  char a[1024], b[1024];
  snprintf(a, sizeof a, "%s/i", folder("idx-counts"));
  snprintf(b, sizeof b, "%s/l", folder("idx-counts"));
  write_bytes(a, two_images, sizeof two_images);
  write_bytes(b, "\0\0\x08\1\0\0\0\3\1\2\3", 11);
  Idx x, y;
  EXPECT(!idx_load_pair(&x, &y, a, b, &err) && strstr(err.msg, "/l: 3 labels, but 2 images in ") && !x.bytes &&
         !y.bytes);
  EXPECT(!idx_load_pair(&x, &y, a, "/nowhere", &err) && strstr(err.msg, "/nowhere"));
}
