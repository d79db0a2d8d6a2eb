// Catches safetensors files that do not read back, and damaged ones that are accepted.
#include <sys/resource.h>
#include <unistd.h>
#include "base/alloc.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

static char *scratch(const char *name) { return xasprintf("%s/%s.safetensors", test_tmp(), name); }

static void write_bytes(const char *path, const void *bytes, size_t n) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

// A file with this header and `payload` bytes of values.
static void write_file(const char *path, const char *header, size_t payload) {
  size_t length = strlen(header);
  unsigned char *bytes = xcalloc(8 + length + payload, 1);
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(bytes + 8, header, length);
  write_bytes(path, bytes, 8 + length + payload);
  free(bytes);
}

static bool opens(const char *path, Err *err) {
  Checkpoint c;
  err->msg[0] = 0;
  if (!ckpt_open(&c, path, err)) return false;
  ckpt_close(&c);
  return true;
}

static void write_sample(const char *path) {
  CkptWriter w;
  Err err;
  CHECK(ckpt_begin(&w, path, &err));
  const uint8_t bytes[3] = {1, 2, 255};
  const float weights[6] = {0, 1, 2, 3, 4, 5};
  const int64_t steps = 7;
  const uint16_t halves[3] = {0x3c00, 0xc000, 0x0001};
  ckpt_tensor(&w, "bytes", CKPT_U8, 1, (int64_t[]){3});
  ckpt_meta(&w, "config", "{\"lr\":0.02}");
  ckpt_tensor(&w, "weights", CKPT_F32, 2, (int64_t[]){2, 3});
  ckpt_tensor(&w, "empty", CKPT_F32, 2, (int64_t[]){0, 3});
  ckpt_tensor(&w, "steps", CKPT_I64, 0, NULL);
  ckpt_tensor(&w, "halves", CKPT_F16, 1, (int64_t[]){3});
  ckpt_meta(&w, "odd", "tab\t quote\" \xc3\xa9");
  ckpt_data(&w, bytes);
  ckpt_data(&w, weights);
  ckpt_data(&w, NULL);
  ckpt_data(&w, &steps);
  ckpt_data(&w, halves);
  CHECK(ckpt_commit(&w, &err));
}

TEST(checkpoint_round_trip) {
  char *path = scratch("round");
  write_sample(path);
  Checkpoint c;
  Err err;
  if (!EXPECT(ckpt_open(&c, path, &err))) return;
  EXPECT_INT((long long)c.num_tensors, 5);
  EXPECT_STR(ckpt_find_meta(&c, "config"), "{\"lr\":0.02}");
  EXPECT_STR(ckpt_find_meta(&c, "odd"), "tab\t quote\" \xc3\xa9");
  EXPECT(!ckpt_find_meta(&c, "none") && !ckpt_find(&c, "none"));
  const CkptTensor *w = ckpt_find(&c, "weights");
  if (EXPECT(w)) {
    EXPECT(w->type == CKPT_F32 && w->ndim == 2 && w->dims[0] == 2 && w->dims[1] == 3 && w->bytes == 24);
    EXPECT(!memcmp(w->data, (float[]){0, 1, 2, 3, 4, 5}, 24));
  }
  const CkptTensor *steps = ckpt_find(&c, "steps");
  if (EXPECT(steps)) EXPECT(steps->ndim == 0 && *(const int64_t *)steps->data == 7);
  const CkptTensor *bytes = ckpt_find(&c, "bytes");
  if (EXPECT(bytes)) EXPECT(!memcmp(bytes->data, (uint8_t[]){1, 2, 255}, 3));
  const CkptTensor *empty = ckpt_find(&c, "empty");
  if (EXPECT(empty)) EXPECT(empty->bytes == 0);
  for (size_t i = 0; i < c.num_tensors; i++)
    EXPECT_INT((long long)((uintptr_t)c.tensors[i].data % ckpt_type_size(c.tensors[i].type)), 0);
  ckpt_close(&c);
  free(path);
}

TEST(checkpoint_without_tensors) {
  char *path = scratch("nothing");
  CkptWriter w;
  Checkpoint c;
  Err err;
  if (!EXPECT(ckpt_begin(&w, path, &err)) || !EXPECT(ckpt_commit(&w, &err))) return;
  if (EXPECT(ckpt_open(&c, path, &err))) {
    EXPECT(c.num_tensors == 0 && c.num_meta == 0 && !ckpt_find(&c, "x"));
    ckpt_close(&c);
  }
  free(path);
}

TEST(checkpoint_abort_leaves_what_stood_there) {
  char *path = scratch("abort");
  write_sample(path);
  CkptWriter w;
  Err err;
  if (!EXPECT(ckpt_begin(&w, path, &err))) return;
  ckpt_tensor(&w, "weights", CKPT_F32, 1, (int64_t[]){1});
  ckpt_data(&w, (float[]){9});
  ckpt_abort(&w);
  Checkpoint c;
  if (EXPECT(ckpt_open(&c, path, &err))) {
    EXPECT_INT((long long)c.num_tensors, 5);
    ckpt_close(&c);
  }
  free(path);
}

TEST(checkpoint_full_disk_is_reported) {
  FILE *full = fopen("/dev/full", "wb");
  if (!full) {
    test_skip("no /dev/full");
    return;
  }
  char *path = scratch("full");
  CkptWriter w;
  Err err;
  if (EXPECT(ckpt_begin(&w, path, &err))) {
    fclose(w.file.f);
    w.file.f = full;
    float *values = xcalloc(1 << 16, sizeof *values); // more than any stream buffers
    ckpt_tensor(&w, "x", CKPT_F32, 1, (int64_t[]){1 << 16});
    ckpt_data(&w, values);
    if (EXPECT(!ckpt_commit(&w, &err))) EXPECT(strstr(err.msg, path));
    EXPECT(!path_is_file(path));
    free(values);
  }
  free(path);
}

// safetensors.numpy.save of the Python package 0.8.0:
//   {"w": float32 [[1.5, -2, .25]], "steps": int64 7, "half": float16 [65504, 6e-8, -inf], "u8": uint8 [1, 2, 255],
//    "none": float32 of shape (0, 4)}, metadata {"note": 'a"b\c\né😀'}
static const char golden[] =
    "\x48\x01\0\0\0\0\0\0{\"__metadata__\":{\"note\":\"a\\\"b\\\\c\\n\xc3\xa9\xf0\x9f\x98\x80\"},\"steps\":{\"dtype\":"
    "\"I64\",\"shape\":[],\"data_offsets\":[0,8]},\"none\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[8,8]},"
    "\"w\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[8,20]},\"half\":{\"dtype\":\"F16\",\"shape\":[3],"
    "\"data_offsets\":[20,26]},\"u8\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[26,29]}}  "
    "\x07\0\0\0\0\0\0\0\0\0\xc0?\0\0\0\xc0\0\0\x80>\xff{\x01\0\0\xfc\x01\x02\xff";
enum { GOLDEN = sizeof golden - 1 };

TEST(checkpoint_reads_the_reference_implementation) {
  char *path = scratch("golden");
  write_bytes(path, golden, GOLDEN);
  Checkpoint c;
  Err err;
  if (!EXPECT(ckpt_open(&c, path, &err))) return;
  float v[3];
  EXPECT_STR(ckpt_find_meta(&c, "note"), "a\"b\\c\n\xc3\xa9\xf0\x9f\x98\x80");
  const CkptTensor *w = ckpt_find(&c, "w"), *half = ckpt_find(&c, "half"), *steps = ckpt_find(&c, "steps");
  if (EXPECT(w && half && steps)) {
    EXPECT(ckpt_read_floats(w, v) && v[0] == 1.5f && v[1] == -2 && v[2] == 0.25f);
    EXPECT(ckpt_read_floats(half, v) && v[0] == 65504 && v[1] == 0x1p-24f && v[2] == -INFINITY);
    EXPECT(!ckpt_read_floats(steps, v));
  }
  ckpt_close(&c);
  free(path);
}

TEST(checkpoint_rejects_every_truncation) {
  char *path = scratch("cut");
  Err err;
  for (size_t n = 0; n < GOLDEN; n++) {
    write_bytes(path, golden, n);
    if (!EXPECT(!opens(path, &err))) printf("cut to %zu bytes\n", n);
    EXPECT(strstr(err.msg, path) && !strchr(err.msg, '\n'));
  }
  char longer[GOLDEN + 1];
  memcpy(longer, golden, GOLDEN);
  longer[GOLDEN] = 0;
  write_bytes(path, longer, sizeof longer);
  if (EXPECT(!opens(path, &err))) EXPECT(strstr(err.msg, "the last 1 bytes belong to no tensor"));
  free(path);
}

// Any one byte changed: no crash (sanitizers watch), and where the file is accepted all of its bytes can be read.
TEST(checkpoint_survives_every_changed_byte) {
  static const char changes[] = {0, '"', '\\', '{', '}', '9', '-', (char)0xff};
  char bytes[GOLDEN];
  unsigned sum = 0;
  for (int i = 0; i < GOLDEN; i++) {
    for (int k = 0; k < COUNT(changes); k++) {
      memcpy(bytes, golden, GOLDEN);
      bytes[i] = changes[k];
      Checkpoint c = {0};
      Err err;
      if (!ckpt_parse(&c, bytes, GOLDEN, "FILE", &err)) {
        EXPECT(!strchr(err.msg, '\n'));
        continue;
      }
      for (size_t t = 0; t < c.num_tensors; t++)
        for (size_t b = 0; b < c.tensors[t].bytes; b++) sum += ((const unsigned char *)c.tensors[t].data)[b];
      ckpt_close(&c);
    }
  }
  EXPECT(sum > 0);
}

TEST(checkpoint_rejects_bad_headers) {
  static const struct {
    const char *header;
    size_t payload;
    const char *complaint;
  } cases[] = {
      {"", 0, "byte 8: expected '{'"},
      {"null", 0, "byte 8: expected '{'"},
      {"[1]", 0, "byte 8: expected '{'"},
      {"{", 0, "byte 9: expected a string"},
      {"{} x", 0, "byte 11: expected the end of the header"},
      {"{\"x\"}", 0, "byte 12: expected ':'"},
      {"{\"x\":1}", 0, "byte 13: expected '{'"},
      {"{\"x\":{}}", 0, "tensor \"x\" lacks one of dtype, shape, data_offsets"},
      {"{\"__metadata__\":{\"a\":1}}", 0, "byte 29: expected a string"},
      {"{\"__metadata__\":{\"a\":\"b\"},}", 0, "expected a string"},
      {"{\"__metadata__\":{\"a\":\"b\",\"c\":\"\",\"a\":\"d\"}}", 0, "its metadata contain \"a\" twice"},
      {"{\"__metadata__\":{\"a\":\"b\\q\"}}", 0, "expected a JSON escape sequence"},
      {"{\"__metadata__\":{\"a\":\"\\u00g0\"}}", 0, "expected four hexadecimal digits"},
      {"{\"__metadata__\":{\"a\":\"\\ud800\"}}", 0, "expected the second half of a surrogate pair"},
      {"{\"__metadata__\":{\"a\":\"\\udc00\"}}", 0, "expected a character other than NUL and lone surrogates"},
      {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "expected a character other than NUL and lone surrogates"},
      {"{\"__metadata__\":{\"a\":\"line\n\"}}", 0, "expected the end of a string"},
      {"{\"__metadata__\":{\"caf\xe9\":\"a\"}}", 0, "byte 29: expected UTF-8"},
      {"{\"__metadata__\":{\"a\":\"\xed\xa0\x80\"}}", 0, "expected UTF-8"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "byte 42: expected __metadata__ once"},
      {"{\"a\\nb\":{}}", 0, "expected a tensor's name without control characters"},
      {"{\"x\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"x\" has a type that is not supported"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
       "\"x\" has offsets that do not match its type and shape"},
      {"{\"x\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
       "\"x\" has offsets that do not match its type and shape"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "\"x\" ends past the end of the file"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "\"x\" ends before it begins"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "\"x\" has a gap before it"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "the last 4 bytes belong to no tensor"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "a non-negative whole number"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]}}", 4, "a number without leading zeros"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "expected ',' or ']'"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]}}", 4, "a non-negative whole number"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "expected '['"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
       "at most eight dimensions"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, "expected two numbers"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "expected two numbers"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775808]}}", 4, "a number below 2^63"},
      // 2^62 · 4 elements are 0 in 64 bits, and 2^62 elements of 4 bytes are 0 bytes
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
       "more elements than fit"},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "more bytes than fit"},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"shape\":[1]}}", 1,
       "has an unknown or duplicate member"},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"stride\":[1]}}", 1,
       "has an unknown or duplicate member"},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
       3, "\"y\" overlaps another"},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
       "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
       2, ": not a valid file of weights: it contains tensor \"x\" twice"},
  };
  char *path = scratch("header");
  Err err;
  for (int i = 0; i < COUNT(cases); i++) {
    write_file(path, cases[i].header, cases[i].payload);
    if (EXPECT(!opens(path, &err)) && strstr(err.msg, cases[i].complaint) && strstr(err.msg, path)) continue;
    EXPECT_STR(err.msg, cases[i].complaint); // shows the header's message and the one it should contain
  }
  free(path);
}

TEST(checkpoint_accepts_what_the_format_allows) {
  char *path = scratch("allowed");
  Err err;
  write_file(path,
             "{ \"x\" : {\"shape\": [ 2 ,1 ], \"data_offsets\":[1 , 3],\"dtype\":\"BF16\"},\n"
             "\"\\u0079\\/\\ud83d\\uDE00\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]}}  ",
             1 + 2);
  EXPECT(!opens(path, &err)); // two values of two bytes are four
  write_file(path,
             "{ \"x\" : {\"shape\": [ 1 ,1 ], \"data_offsets\":[1 , 3],\"dtype\":\"BF16\"},\n"
             "\"\\u0079\\/\\ud83d\\uDE00\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]}}  ",
             1 + 2);
  Checkpoint c;
  if (!EXPECT(ckpt_open(&c, path, &err))) return;
  float v = 1;
  const CkptTensor *x = ckpt_find(&c, "x");
  EXPECT(x && ckpt_read_floats(x, &v) && v == 0); // at an odd address
  EXPECT(ckpt_find(&c, "y/\xf0\x9f\x98\x80"));
  ckpt_close(&c);
  free(path);
}

TEST(checkpoint_missing_or_no_file) {
  Err err;
  EXPECT(!opens("/nonexistent/x.safetensors", &err));
  EXPECT_STR(err.msg, "cannot read /nonexistent/x.safetensors: No such file or directory");
  EXPECT(!opens(test_tmp(), &err));
  CkptWriter w;
  EXPECT(!ckpt_begin(&w, "/nonexistent/x.safetensors", &err));
}

static void expect_no_room(void *of) {
  const char *path = of;
  Err err;
  const struct rlimit none = {1 << 20, 1 << 20}; // the process has more already, so that nothing more is mapped
  CHECK(!setrlimit(RLIMIT_AS, &none));
  const bool refused =
      !opens(path, &err) && err_exit(&err) == EXIT_RUN && strstr(err.msg, "out of memory: cannot allocate 1.0 MB");
  _exit(refused ? 0 : 1);
}

// What does not fit into memory are no bad weights.
TEST(checkpoint_without_room_is_out_of_memory) {
  if (!allocations_counted()) {
    test_skip("a sanitizer has an allocator of its own");
    return;
  }
  char *path = scratch("sparse");
  write_file(path, "{}", 1000000);
  const char *said;
  if (!EXPECT_INT(run_in_child(expect_no_room, path, &said), 0)) printf("    %s\n", said);
  free(path);
}

TEST(checkpoint_floats_of_every_half) {
  // Every binary16 value by its definition (IEEE 754-2019, 3.4), as a double, which holds them all exactly.
  uint16_t *bits = xmalloc(65536 * sizeof *bits);
  float *got = xmalloc(65536 * sizeof *got);
  for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
  CkptTensor t = {.type = CKPT_F16, .elements = 65536, .bytes = 65536 * 2, .data = bits};
  EXPECT(ckpt_read_floats(&t, got));
  int wrong = 0;
  for (int i = 0; i < 65536; i++) {
    int e = i >> 10 & 31, f = i & 1023;
    double v = e == 31 ? INFINITY : e ? (1 + f / 1024.0) * pow(2, e - 15) : f / 1024.0 * pow(2, -14);
    if (e == 31 && f)
      wrong += !isnan(got[i]);
    else
      wrong += got[i] != (i >> 15 ? -v : v) || !signbit(got[i]) != !(i >> 15);
  }
  EXPECT_INT(wrong, 0);
  t.type = CKPT_BF16;
  EXPECT(ckpt_read_floats(&t, got));
  EXPECT(got[0x3f80] == 1 && got[0xc040] == -3 && isnan(got[0x7fc0]));
  const double doubles[2] = {0.1, 1e300};
  t = (CkptTensor){.type = CKPT_F64, .elements = 2, .bytes = 16, .data = doubles};
  EXPECT(ckpt_read_floats(&t, got) && got[0] == 0.1f && got[1] == INFINITY);
  free(bits);
  free(got);
}
