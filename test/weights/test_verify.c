// Catches damage to a weights file that is read without a word.
#include "base/alloc.h"
#include "base/digest.h"
#include "base/rng.h"
#include "test/harness/test.h"
#include "weights/verify.h"

// ---- files ----------------------------------------------------------------------------------------------------------

typedef struct Bytes {
  unsigned char *at;
  size_t n;
} Bytes;

static char *scratch(const char *name) { return xasprintf("%s/verify-%s.safetensors", test_tmp(), name); }

static Bytes read_bytes(const char *path) {
  Bytes b;
  CHECK((b.at = (unsigned char *)file_read(path, &b.n, NULL)));
  return b;
}

// With the metadata of a checkpoint and tensors of up to `most` values, some of them constant, some empty.
static Bytes make_state(int tensors, int most) {
  CkptWriter w;
  Err err;
  char name[64], *path = scratch("state");
  float *values = xcalloc((size_t)most, sizeof *values);
  CHECK(ckpt_begin(&w, path, &err));
  ckpt_meta(&w, "format", ckpt_format);
  for (int i = 0; i < 40; i++) {
    snprintf(name, sizeof name, "config.field_%d", i);
    ckpt_meta(&w, name, i % 2 ? "37" : "0.25,0.5");
  }
  for (const char *const *key = verify_keys; *key; key++)
    if (strncmp(*key, "digest", 6)) ckpt_meta(&w, *key, "{\"seed\":1,\"list\":[1,2,3]}");
  for (int i = 0; i < tensors; i++) {
    snprintf(name, sizeof name, "backbone.body.layer%d.0.conv1.weight", i);
    ckpt_tensor(&w, name, CKPT_F32, 2, (int64_t[]){1, i * 13 % (most + 1)});
  }
  ckpt_tensor(&w, "backbone.body.bn1.num_batches_tracked", CKPT_I64, 0, NULL);
  for (int i = 0; i < tensors; i++) {
    for (int k = 0; k < most; k++) values[k] = i % 3 ? rng_uniform((uint64_t)i, (uint64_t)k) : i % 2 ? 0.0f : -0.0f;
    ckpt_data(&w, values);
  }
  ckpt_data(&w, &(int64_t){12});
  CHECK(ckpt_commit(&w, &err));
  const Bytes b = read_bytes(path);
  free(values);
  free(path);
  return b;
}

static bool is_read(const unsigned char *bytes, size_t n, Err *err) {
  Checkpoint c = {0};
  *err->msg = '\0';
  if (!ckpt_parse(&c, bytes, n, "FILE", err)) {
    EXPECT(!strncmp(err->msg, "FILE: ", 6) && !strchr(err->msg, '\n'));
    return false;
  }
  ckpt_close(&c);
  return true;
}

TEST(verify_of_what_is_written) {
  const Bytes b = make_state(40, 500), again = make_state(40, 500);
  Checkpoint c = {0};
  Err err;
  EXPECT(b.n == again.n && !memcmp(b.at, again.at, b.n));
  if (EXPECT(ckpt_parse(&c, b.at, b.n, "FILE", &err))) {
    EXPECT(c.has_digests && !c.note && ckpt_find_meta(&c, "config.field_3"));
    EXPECT(!ckpt_find_meta(&c, digest_key) && !ckpt_find_meta(&c, digests_key)); // no metadata of the caller's
    for (size_t i = 0; i < c.num_tensors; i++)
      EXPECT(c.tensors[i].digest == digest_all(c.tensors[i].data, c.tensors[i].bytes));
    ckpt_close(&c);
  }
  free(b.at);
  free(again.at);
}

// A tensor of several blocks, which several threads read, and one that is not asked for.
TEST(verify_of_a_large_tensor) {
  enum { N = (9 << 20) + 5 };
  char *path = scratch("large");
  unsigned char *values = xcalloc(N, 1);
  CkptWriter w;
  Checkpoint c;
  Err err;
  CHECK(ckpt_begin(&w, path, &err));
  ckpt_tensor(&w, "some", CKPT_U8, 1, (int64_t[]){N});
  ckpt_tensor(&w, "other", CKPT_U8, 1, (int64_t[]){3});
  ckpt_data(&w, values);
  ckpt_data(&w, values);
  CHECK(ckpt_commit(&w, &err));
  const Bytes b = read_bytes(path);
  EXPECT(is_read(b.at, b.n, &err));
  for (size_t k = 0; k < 10; k++) {
    const size_t at = b.n - 4 - k * (1 << 20);
    b.at[at] ^= 1;
    EXPECT(!is_read(b.at, b.n, &err));
    EXPECT_STR(
        err.msg,
        "FILE: damaged, or changed by another program: the values of tensor \"some\" do not match their digests; "
        "use a copy of it or an earlier checkpoint");
    b.at[at] ^= 1;
  }
  b.at[b.n - 1] ^= 1;
  b.at[b.n - 9] ^= 1;
  EXPECT(!is_read(b.at, b.n, &err) && strstr(err.msg, "the values of tensor \"other\" and 1 more do not match"));
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(b.at, 1, b.n, f) == b.n && fclose(f) == 0);
  EXPECT(!ckpt_open(&c, path, &err));
  if (EXPECT(ckpt_open_header(&c, path, &err))) ckpt_close(&c);
  free(values);
  free(b.at);
  free(path);
}

// ---- damage ---------------------------------------------------------------------------------------------------------

TEST(verify_finds_every_flipped_bit) {
  const Bytes b = make_state(6, 30);
  Err err;
  size_t missed = 0;
  EXPECT(is_read(b.at, b.n, &err));
  for (size_t bit = 0; bit < 8 * b.n; bit++) {
    b.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
    if (is_read(b.at, b.n, &err) && missed++ < 5) printf("    bit %zu of byte %zu\n", bit % 8, bit / 8);
    b.at[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  EXPECT_INT((long long)missed, 0);
  free(b.at);
}

enum Damage { FLIP, CUT, REPEAT_LONGER, REPEAT_OVER, ZERO, DAMAGES };

// Writes the damaged file to `to`, which has room for the longest, and returns its length.
static size_t damage(const Bytes *b, uint64_t seed, unsigned char *to) {
  const enum Damage kind = rng_u32(seed, 0) % DAMAGES;
  const size_t where = rng_u32(seed, 1) % 3 ? b->n : MIN(b->n, 8192); // the header is the more delicate part
  const size_t at = rng_u32(seed, 2) % where;
  const size_t most = rng_u32(seed, 3) % 2 ? 4096 : 64, n = MIN(1 + rng_u32(seed, 4) % most, b->n - at);
  memcpy(to, b->at, b->n);
  switch (kind) {
  case FLIP: to[at] ^= (unsigned char)(1 << rng_u32(seed, 5) % 8); return b->n;
  case CUT: memmove(to + at, to + at + n, b->n - at - n); return b->n - n;
  case REPEAT_LONGER: memmove(to + at + n, to + at, b->n - at); return b->n + n;
  case REPEAT_OVER: memmove(to + at + n, to + at, MIN(n, b->n - at - n)); return b->n;
  default: memset(to + at, 0, n); return b->n;
  }
}

// Two headers that are longer than the damage, with many values and with few, and one that is shorter.
TEST(verify_finds_ten_thousand_damages) {
  static const struct { int tensors, most; } states[] = {{150, 300}, {60, 9}, {3, 2000}};
  enum { EACH = 4000, LONGEST = 4096 };
  int changed = 0, missed = 0;
  Err err;
  for (int s = 0; s < COUNT(states); s++) {
    const Bytes b = make_state(states[s].tensors, states[s].most);
    unsigned char *to = xmalloc(b.n + LONGEST);
    for (int i = 0; i < EACH; i++) {
      const size_t n = damage(&b, rng_key((uint64_t)s, (uint64_t)i), to);
      if (n == b.n && !memcmp(to, b.at, n)) continue;
      changed++;
      if (is_read(to, n, &err) && missed++ < 5) printf("    file %d, damage %d\n", s, i);
    }
    free(to);
    free(b.at);
  }
  EXPECT(changed >= 10000);
  EXPECT_INT(missed, 0);
}

// ---- which files are ours -------------------------------------------------------------------------------------------

// A file without tensors and with these members as its metadata.
static bool is_read_with(const char *members, const char **note, Err *err) {
  char *header = xasprintf("{\"__metadata__\":{%s}}", members);
  const size_t length = strlen(header);
  unsigned char *file = xcalloc(8 + length, 1);
  Checkpoint c = {0};
  for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(file + 8, header, length);
  const bool ok = ckpt_parse(&c, file, 8 + length, "FILE", err);
  *note = ok ? c.note : NULL;
  if (ok) EXPECT(!c.has_digests);
  if (ok) ckpt_close(&c);
  free(file);
  free(header);
  return ok;
}

static void expect_refused(const char *key, const char *value) {
  char members[256], expected[256];
  const char *note;
  Err err = {""};
  snprintf(members, sizeof members, "\"note\":\"x\",\"%s\":\"%s\"", key, value);
  snprintf(expected, sizeof expected,
           "FILE: damaged, or changed by another program: its metadata has \"%s\", as files of maskrcnn.c do, but no "
           "digests; use a copy of it or an earlier checkpoint",
           key);
  EXPECT(!is_read_with(members, &note, &err));
  EXPECT_STR(err.msg, expected);
}

TEST(verify_is_expected_of_files_of_ours) {
  const char *note;
  Err err;
  for (const char *const *key = verify_keys; *key; key++) expect_refused(*key, "5");
  expect_refused("config.size", "800");
  expect_refused("format", ckpt_format);
  expect_refused("format", "maskrcnn.c 3");
  EXPECT(is_read_with("\"format\":\"maskrcnn.c 1\",\"config.size\":\"800\",\"step\":\"5\"", &note, &err));
  EXPECT(note && strstr(note, "it has no digests"));
  EXPECT(!is_read_with("\"format\":\"maskrcnn.c 1\",\"digests\":\"\"", &note, &err));
  EXPECT(is_read_with("\"format\":\"pt\",\"epoch\":\"5\",\"configuration\":\"x\"", &note, &err) && !note);
  EXPECT(is_read_with("", &note, &err) && !note);
}

// Of a format that is yet to come, whole.
TEST(verify_of_a_later_format) {
  char *path = scratch("later");
  CkptWriter w;
  Checkpoint c;
  Err err;
  CHECK(ckpt_begin(&w, path, &err));
  ckpt_meta(&w, "format", "maskrcnn.c 3");
  CHECK(ckpt_commit(&w, &err));
  EXPECT(!ckpt_open(&c, path, &err) &&
         strstr(err.msg, ": its format is \"maskrcnn.c 3\", which this version cannot read"));
  free(path);
}
