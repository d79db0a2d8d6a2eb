// Catches PyTorch files that are misread, run code, or crash the reader.
//
// Files written by torch.save are read, nothing in a file is executed, and bad files are refused. The files in
// test/corpus/torch are made by test/peers/make_weights_corpus.py.
#include "base/alloc.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"
#include "weights/zip.h"

static const char *corpus(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "test/corpus/%s", name);
  return path;
}

// A copy without a byte behind it, so that sanitizers see every step too far.
static unsigned char *read_exactly(const char *path, size_t *size) {
  Err err;
  char *text = file_read(path, size, &err);
  if (!text) die(EXIT_RUN, "%s; tests run from the root of the tree", err.msg);
  unsigned char *bytes = memcpy(xmalloc(*size), text, *size);
  free(text);
  return bytes;
}

static bool parses(const void *bytes, size_t size, Err *err) {
  Checkpoint c = {0};
  err->msg[0] = '\0';
  if (!ckpt_parse(&c, bytes, size, "FILE", err)) return false;
  ckpt_close(&c);
  return true;
}

// ---- files of PyTorch -----------------------------------------------------------------------------------------------

static void expect_tensor(const Checkpoint *c, const char *name, CkptType type, int ndim, const int64_t *dims,
                          const void *values) {
  const CkptTensor *t = ckpt_find(c, name);
  if (!EXPECT(t && t->type == type && t->ndim == ndim)) {
    printf("    %s\n", name);
    return;
  }
  for (int i = 0; i < ndim; i++) EXPECT_INT(t->dims[i], dims[i]);
  if (!EXPECT(!memcmp(t->data, values, t->bytes))) printf("    %s\n", name);
}

// The same tensors in three files.
TEST(torch_reads_every_type_of_tensor) {
  static const char *const files[] = {"torch/plain-zip.pth", "torch/plain-legacy.pth", "safetensors/plain.safetensors"};
  for (int i = 0; i < COUNT(files); i++) {
    Checkpoint c;
    Err err = {""};
    if (!EXPECT(ckpt_open(&c, corpus(files[i]), &err))) printf("    %s\n", err.msg);
    EXPECT_INT((long long)c.num_tensors, 11);
    EXPECT(!c.note);
    expect_tensor(&c, "f32", CKPT_F32, 2, (int64_t[]){1, 3}, (float[]){1.5f, -2, 0.25f});
    expect_tensor(&c, "f64", CKPT_F64, 1, (int64_t[]){2}, (double[]){0.1, -3});
    expect_tensor(&c, "f16", CKPT_F16, 1, (int64_t[]){2}, (uint16_t[]){0x7bff, 0xb800});
    expect_tensor(&c, "bf16", CKPT_BF16, 1, (int64_t[]){2}, (uint16_t[]){0x3f80, 0xc040});
    expect_tensor(&c, "i64", CKPT_I64, 0, NULL, (int64_t[]){7});
    expect_tensor(&c, "u8", CKPT_U8, 1, (int64_t[]){3}, (uint8_t[]){1, 2, 255});
    expect_tensor(&c, "none", CKPT_F32, 2, (int64_t[]){0, 4}, "");
    expect_tensor(&c, "parameter", CKPT_F32, 1, (int64_t[]){2}, (float[]){8, 9});
    expect_tensor(&c, "transposed", CKPT_F32, 2, (int64_t[]){3, 2}, (float[]){0, 3, 1, 4, 2, 5});
    expect_tensor(&c, "window", CKPT_F32, 1, (int64_t[]){3}, (float[]){2, 3, 4});
    expect_tensor(&c, "column", CKPT_F32, 1, (int64_t[]){3}, (float[]){1, 5, 9});
    ckpt_close(&c);
  }
}

TEST(torch_finds_the_dict_of_tensors) {
  static const char *const files[] = {"torch/nested-zip.pth", "torch/nested-zip64.pth", "torch/nested-legacy.pth"};
  for (int i = 0; i < COUNT(files); i++) {
    Checkpoint c;
    Err err;
    if (!EXPECT(ckpt_open(&c, corpus(files[i]), &err))) continue;
    EXPECT_STR(c.note, "using the tensors of its member \"model\"");
    EXPECT_INT((long long)c.num_tensors, 7);
    expect_tensor(&c, "0.weight", CKPT_F32, 4, (int64_t[]){2, 1, 1, 1}, (float[]){3, 3});
    expect_tensor(&c, "1.num_batches_tracked", CKPT_I64, 0, NULL, (int64_t[]){0});
    ckpt_close(&c);
  }
}

TEST(torch_reads_what_python_2_wrote) {
  Checkpoint c;
  Err err;
  if (!EXPECT(ckpt_open(&c, corpus("torch/python2-legacy.pth"), &err))) return;
  EXPECT_INT((long long)c.num_tensors, 2);
  expect_tensor(&c, "a", CKPT_F32, 2, (int64_t[]){1, 2}, (float[]){1, 2});
  expect_tensor(&c, "b", CKPT_F32, 1, (int64_t[]){1}, (float[]){3});
  ckpt_close(&c);
}

static const char *const all_files[] = {"torch/plain-zip.pth",     "torch/plain-legacy.pth",  "torch/nested-zip.pth",
                                        "torch/nested-zip64.pth",  "torch/nested-legacy.pth", "torch/names-legacy.pth",
                                        "torch/python2-legacy.pth"};

TEST(torch_rejects_every_truncation) {
  for (int i = 0; i < COUNT(all_files); i++) {
    size_t size;
    unsigned char *whole = read_exactly(corpus(all_files[i]), &size);
    for (size_t n = 0; n < size; n++) {
      unsigned char *cut = memcpy(xmalloc(n), whole, n);
      Err err;
      if (!EXPECT(!parses(cut, n, &err))) printf("    %s cut to %zu bytes\n", all_files[i], n);
      EXPECT(strstr(err.msg, "FILE") && !strchr(err.msg, '\n'));
      free(cut);
    }
    free(whole);
  }
}

// Any one byte changed: no crash (sanitizers watch), and where the file is accepted all of its bytes can be read.
TEST(torch_survives_every_changed_byte) {
  static const unsigned char changes[] = {0, 1, 0x7f, 0x80, 0xff, '(', 't', 'R', 'b', '.'};
  unsigned sum = 0;
  for (int i = 0; i < COUNT(all_files); i++) {
    size_t size;
    unsigned char *bytes = read_exactly(corpus(all_files[i]), &size);
    for (size_t at = 0; at < size; at++) {
      unsigned char was = bytes[at];
      for (int k = 0; k < COUNT(changes); k++) {
        Checkpoint c = {0};
        Err err = {""};
        bytes[at] = changes[k];
        if (!ckpt_parse(&c, bytes, size, "FILE", &err)) {
          EXPECT(!strchr(err.msg, '\n'));
          continue;
        }
        for (size_t t = 0; t < c.num_tensors; t++)
          for (size_t b = 0; b < c.tensors[t].bytes; b++) sum += ((const unsigned char *)c.tensors[t].data)[b];
        ckpt_close(&c);
      }
      bytes[at] = was;
    }
    free(bytes);
  }
  EXPECT(sum > 0);
}

// ---- made up pickles ------------------------------------------------------------------------------------------------

#define HEAD "\x80\2\x8a\12l\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3."
#define LITTLE "\x80\2}U\15little_endian\x88s."
#define STORAGE(count) "(U\7storagectorch\nFloatStorage\nU\1kU\3cpuK" count "NtQ"
#define TENSOR(count, offset, size, stride)                                                                            \
  "ctorch._utils\n_rebuild_tensor\n(" STORAGE(count) offset "(" size "t(" stride "ttR"
#define REBUILD_V2(state) "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("\2") "K\0(K\2t(K\1t\x89}" state "tR"
#define ROOT(name, tensor) "\x80\2}U\1" name tensor "s."
#define KEYS "\x80\2]U\1ka."
#define TWO_FLOATS "\2\0\0\0\0\0\0\0\0\0\x80?\0\0\0@" // a count, then 1 and 2
#define CASE(bytes, complaint)                                                                                         \
  { bytes, sizeof bytes - 1, complaint }
#define BODY(object, complaint) CASE(HEAD LITTLE object KEYS TWO_FLOATS, complaint)

typedef struct Case {
  const char *bytes;
  size_t size;
  const char *complaint; // NULL: the file is good
} Case;

static void check_cases(const Case *cases, int n) {
  for (int i = 0; i < n; i++) {
    unsigned char *bytes = memcpy(xmalloc(cases[i].size), cases[i].bytes, cases[i].size);
    Err err = {""};
    bool ok = parses(bytes, cases[i].size, &err);
    const char *complaint = cases[i].complaint;
    if (!EXPECT(complaint ? !ok && strstr(err.msg, complaint) : ok))
      printf("    case %d: \"%s\" instead of \"%s\"\n", i, err.msg, complaint ? complaint : "");
    free(bytes);
  }
}

TEST(torch_runs_nothing) {
  static const Case cases[] = {
      BODY("\x80\2cposix\nsystem\nU\7echo hi\x85R.",
           ": contains posix.system, which is not executed: only tensors in plain containers are read from PyTorch "
           "files; save model.state_dict()"),
      BODY("\x80\2c__builtin__\neval\nU\1x\x85R.",
           ": contains __builtin__.eval, which is not executed: only tensors in plain containers are read from PyTorch "
           "files; save model.state_dict()"),
      BODY("\x80\2cos\nsys\ttem\n.", ": contains os.sys?tem, which is not executed: only tensors in plain containers "
                                     "are read from PyTorch files; save model.state_dict()"),
      BODY("\x80\2ctorch\nload\n.", ": contains torch.load, which is not executed: only tensors in plain containers "
                                    "are read from PyTorch files; save model.state_dict()"),
      BODY("\x80\2ctorch.models\nNet\n)\x81}b.",
           ": contains torch.models.Net, which is not executed: only tensors in plain containers are read from PyTorch "
           "files; save model.state_dict()"),
      BODY("\x80\4\x8c\5posix\x8c\6system\x93.", "FILE: saved with pickle protocol 4, but only 2"),
      BODY("\x80\2U\5posixU\6system\x93.", "an opcode that torch.save does not write"),
      BODY("\x80\2(S'x'\nios\nsystem\n.", "an opcode that torch.save does not write"),
  };
  check_cases(cases, COUNT(cases));
}

TEST(torch_rejects_bad_pickles) {
  static const Case cases[] = {
      BODY(ROOT("a", TENSOR("\2", "K\0", "K\2", "K\1")), NULL),
      BODY(ROOT("a", TENSOR("\2", "K\1q\3", "h\3", "h\3")), NULL), // 1, remembered as number 3
      BODY(ROOT("a", TENSOR("\2", "K\1r\0\1\0\0", "j\0\1\0\0", "j\0\1\0\0")), NULL),
      BODY("\x80\2.", "a value is missing"),
      BODY("\x80\2(.", "a value is missing"),
      BODY("\x80\2t.", "a mark is missing"),
      BODY("\x80\2e.", "a mark is missing"),
      BODY("\x80\2)(\x85.", "a value is missing"),
      BODY("\x80\2K\1K\1a.", "items are added to an object that is not a container"),
      BODY("\x80\2}(K\1u.", "a key without a value"),
      BODY("\x80\2h\0.", "it refers to a missing memo entry"),
      BODY("\x80\2q\0.", "a value is missing"),
      BODY("\x80\2}r\xff\xff\xff\xff.", "its memo is too large"),
      BODY("\x80\2K\1)R.", "a call of an object that is not a function"),
      BODY("\x80\2ctorch\nFloatStorage\nK\1R.", "a call of an object that is not a function"),
      BODY("\x80\2\x8a\11\1\2\3\4\5\6\7\10\11.", "an integer above 64 bits"),
      BODY("\x80\2U\1\0.", "a string with a NUL in it"),
      BODY("\x80\2cos\nsys\0tem\n.", "a string with a NUL in it"),
      BODY("\x80\2co\0s\nsystem\n.", "a string with a NUL in it"),
      BODY("\x80\2ccollections\nOrderedDict\n]K\1a\x85R.", "an OrderedDict with unexpected contents"),
      CASE(HEAD LITTLE "\x80\2X\xff\xff\xff\x7fx", "it is truncated"),
      CASE(HEAD LITTLE "\x80\2ccollections", "it is truncated"),
      CASE(HEAD "\x80\2}U\15little_endian\x89s.", "it is big-endian"),
      CASE(HEAD "\x80\2}.", "its byte order is not recorded"),
  };
  check_cases(cases, COUNT(cases));
}

TEST(torch_rejects_bad_tensors) {
  static const Case cases[] = {
      BODY("\x80\2}.", "it holds no tensors"),
      BODY("\x80\2" STORAGE("\2") ".", "it contains no dict of tensors; save model.state_dict()"),
      // a dict in itself, and the same tensor under two names
      BODY("\x80\2}q\0U\1xh\0sU\1a" TENSOR("\2", "K\0", "K\2", "K\1") "s.", NULL),
      BODY("\x80\2}U\1a" TENSOR("\2", "K\0", "K\2", "K\1") "q\0sU\1bh\0s.", NULL),
      BODY("\x80\2}U\1a" TENSOR("\2", "K\0", "K\2", "K\1") "q\0sU\1ah\0s.",
           ": not a valid file of weights: it contains tensor \"a\" twice"),
      BODY(ROOT("\n", TENSOR("\2", "K\0", "K\2", "K\1")), "name has control characters"),
      BODY(ROOT("a", TENSOR("\2", "K\1", "K\1", "K\1")), NULL),
      BODY(ROOT("a", TENSOR("\2", "K\1", "K\2", "K\1")), "\"a\" ends past its storage"),
      BODY(ROOT("a", TENSOR("\2", "K\0", "K\2", "K\2")), "\"a\" ends past its storage"),
      BODY(ROOT("a", TENSOR("\2", "K\1", "K\3", "K\1")), "\"a\" ends past its storage"),
      // torch._neg_view: {"neg": True} behind the hooks
      BODY(ROOT("a", REBUILD_V2("}U\3neg\x88s")), "is the negative of what is stored; save its resolve_neg()"),
      BODY(ROOT("a", REBUILD_V2("}")), NULL),
      BODY(ROOT("a", REBUILD_V2("N")), NULL),
      // expanded: 2^26 floats of one; 2^62 of them are more bytes than 64 bits count
      BODY(ROOT("a", TENSOR("\2", "K\1", "J\0\0\0\4", "K\0")), "larger than their storages by more than 64 MiB"),
      BODY(ROOT("a", TENSOR("\2", "K\0", "\x8a\10\0\0\0\0\0\0\0@", "K\0")), "more bytes than fit in 64 bits"),
      BODY(ROOT("a", TENSOR("\2", "K\0", "K\2K\2", "K\1")), "\"a\" has an impossible size"),
      BODY(ROOT("a", TENSOR("\2", "J\xff\xff\xff\xff", "K\2", "K\1")), "\"a\" has an impossible size"),
      BODY(ROOT("a", TENSOR("\2", "K\0", "J\xff\xff\xff\xff", "K\1")), "\"a\" has an impossible size"),
      BODY(ROOT("a", TENSOR("\2", "K\0", "K\1K\1K\1K\1K\1K\1K\1K\1K\1", "K\1")), "more than eight dimensions"),
      // 2^62 · 4 elements are 0 in 64 bits; a stride of 2^63 - 1 that no step takes is fine, one that is taken is not
      BODY(ROOT("a", TENSOR("\2", "K\0", "\x8a\10\0\0\0\0\0\0\0@K\4", "K\1K\1")), "more elements than fit in 64 bits"),
      BODY(ROOT("a", TENSOR("\2", "K\0", "K\1K\2", "\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7fK\1")), NULL),
      BODY(ROOT("a", TENSOR("\2", "K\1", "K\2", "\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7f")), "ends past its storage"),
      BODY(ROOT("a", "ctorch._utils\n_rebuild_tensor\n)R"), "it holds no tensors"),
      BODY("\x80\2}U\1a" STORAGE("\2") "sU\1bctorch._utils\n_rebuild_tensor\n)Rs.",
           "is not built by a known tensor constructor"),
      BODY(ROOT("a", TENSOR("\3", "K\0", "K\2", "K\1")), "storage k has 8 bytes, but should have 3 F32"),
      BODY("\x80\2}U\1a" TENSOR("\2", "K\0", "K\2", "K\1") "sU\1b" TENSOR("\1", "K\0", "K\1", "K\1") "s.",
           "two tensors disagree about their storage"),
      BODY("\x80\2}U\1aK\1Qs.", "it refers to an object that is not a storage"),
      CASE(HEAD LITTLE ROOT("a", TENSOR("\2", "K\0", "K\2", "K\1")) "\x80\2].", "storage k is missing"),
      CASE(HEAD LITTLE ROOT("a", TENSOR("\2", "K\0", "K\2", "K\1")) "\x80\2]U\1xa." TWO_FLOATS,
           "it has a storage that no tensor uses"),
      CASE(HEAD LITTLE ROOT("a", TENSOR("\2", "K\0", "K\2", "K\1")) KEYS "\2\0\0\0\0\0\0\0", "truncated?"),
      CASE(HEAD LITTLE ROOT("a", TENSOR("\2", "K\0", "K\2", "K\1")) KEYS TWO_FLOATS "x",
           "it continues after its storages"),
  };
  check_cases(cases, COUNT(cases));
}

// What expand() leaves, with a stride of 0, and windows that overlap.
TEST(torch_reads_expanded_tensors) {
  static const char bytes[] = HEAD LITTLE "\x80\2}U\1a" TENSOR("\2", "K\1", "K\3K\2", "K\0K\0") "sU\1b" TENSOR(
      "\2", "K\0", "K\3K\2", "K\0K\1") "s." KEYS TWO_FLOATS;
  Checkpoint c = {0};
  Err err = {""};
  if (!EXPECT(ckpt_parse(&c, bytes, sizeof bytes - 1, "FILE", &err))) {
    printf("    %s\n", err.msg);
    return;
  }
  expect_tensor(&c, "a", CKPT_F32, 2, (int64_t[]){3, 2}, (float[]){2, 2, 2, 2, 2, 2});
  expect_tensor(&c, "b", CKPT_F32, 2, (int64_t[]){3, 2}, (float[]){1, 2, 1, 2, 1, 2});
  ckpt_close(&c);
}

// The first bytes of a file in the older format, by pickle_protocol; what follows is not reached.
TEST(torch_names_other_protocols) {
#define NUMBER "\x8a\12l\xfc\x9c\x46\xf9 j\xa8P\x19."
  static const Case cases[] = {
      CASE("L119547037146038801333356L\n.I1001\n.(dp0\n", "not protocol 2, torch.save's default; save it without"),
      CASE("L119547037146038801333356L\n.M\xe9\3.}q\0(", "not protocol 2, torch.save's default; save it without"),
      CASE("\x80\3" NUMBER "\x80\3M\xe9\3.\x80\3}q\0", "FILE: saved with pickle protocol 3, but only 2"),
      CASE("\x80\4\x95\15\0\0\0\0\0\0\0" NUMBER "\x80\4", "FILE: saved with pickle protocol 4, but only 2"),
      CASE("\x80\5\x95\15\0\0\0\0\0\0\0" NUMBER "\x80\5", "FILE: saved with pickle protocol 5, but only 2"),
      CASE("\x80\2" NUMBER "\x80\2M\xea\3.\x80\2}q\0", "not a valid PyTorch file"),
  };
  check_cases(cases, COUNT(cases));
}

// Memory does not grow with what a file claims: a million steps of a hostile pickle end in time.
TEST(torch_bounds_a_long_pickle) {
  enum { STEPS = 3 << 20 };
  size_t head = sizeof HEAD LITTLE "\x80\2" - 1;
  char *bytes = xmalloc(head + STEPS);
  memcpy(bytes, HEAD LITTLE "\x80\2", head);
  memset(bytes + head, ']', STEPS);
  Err err;
  EXPECT(!parses(bytes, head + STEPS, &err) && strstr(err.msg, "it is too long"));
  free(bytes);
}

// ---- archives -------------------------------------------------------------------------------------------------------

static size_t find(const unsigned char *bytes, size_t size, const char *what, size_t n) {
  for (size_t i = 0; i + n <= size; i++)
    if (!memcmp(bytes + i, what, n)) return i;
  return size;
}

// Changes the directory of an archive that is good otherwise, behind the first `place` in it.
static void check_directory(const char *directory, size_t offset, const char *with, size_t n, const char *complaint) {
  size_t size;
  unsigned char *bytes = read_exactly(corpus("torch/plain-zip.pth"), &size);
  size_t first = find(bytes, size, "PK\1\2", 4);
  size_t at = first + find(bytes + first, size - first, directory, strlen(directory)) + offset;
  if (EXPECT(at + n < size)) memcpy(bytes + at, with, n);
  Err err = {""};
  if (!EXPECT(!parses(bytes, size, &err) && strstr(err.msg, complaint))) printf("    %s\n", err.msg);
  free(bytes);
}

// Of its first entry.
static void check_entry(size_t offset, const char *with, size_t n, const char *complaint) {
  check_directory("PK\1\2", offset, with, n, complaint);
}

TEST(torch_rejects_bad_archives) {
  check_entry(8, "\1", 1, "is encrypted");
  check_entry(10, "\10", 1, "is compressed, unlike what torch.save writes");
  check_entry(20, "\1\0\0", 3, "is compressed, unlike what torch.save writes");
  check_entry(42, "\1", 1, "is not where the directory points");
  check_entry(46, "\1", 1, "name has control characters");
  check_entry(46, "X", 1, "is missing"); // the description alone is in the folder X
  check_entry(20, "\xff\xff\xff\x7f\xff\xff\xff\x7f", 8, "ends past the end of the file");
  check_entry(20, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "lacks its 64-bit size");
  check_directory("plain-zip/data/0", strlen("plain-zip/data/"), "1", 1, "member \"plain-zip/data/1\" occurs twice");
}

// A changed bit in any member is found, if by nothing else by its CRC-32; and so is one in the CRC itself, unless it is
// 0 then, as torch.save leaves it on demand.
TEST(torch_compares_checksums) {
  size_t size;
  unsigned char *bytes = read_exactly(corpus("torch/plain-zip.pth"), &size);
  Zip z;
  Err err = {""};
  if (EXPECT(zip_open(&z, bytes, size, "FILE", &err))) {
    EXPECT(z.n > 5);
    for (size_t i = 0; i < z.n; i++)
      for (size_t k = 0; k < z.members[i].size; k++) {
        unsigned char *at = bytes + (z.members[i].data - bytes) + k, bit = (unsigned char)(1 << (k % 8));
        *at ^= bit;
        EXPECT(!parses(bytes, size, &err));
        if (!EXPECT(strstr(err.msg, "FILE: corrupt: the checksum of \"plain-zip/"))) printf("    %s\n", err.msg);
        *at ^= bit;
      }
    zip_close(&z);
  }
  const size_t entry = find(bytes, size, "PK\1\2", 4), crc = entry + 16;
  bytes[crc] ^= 1;
  EXPECT(!parses(bytes, size, &err));
  memset(bytes + crc, 0, 4);
  EXPECT(parses(bytes, size, &err));
  // All members made one of nearly the whole file: each would be read once a name.
  const uint32_t offset = 0, grown = (uint32_t)entry - 200;
  for (size_t at = entry; at + 46 <= size; at++) {
    if (memcmp(bytes + at, "PK\1\2", 4)) continue;
    memcpy(bytes + at + 20, &grown, 4);
    memcpy(bytes + at + 24, &grown, 4);
    memcpy(bytes + at + 42, &offset, 4);
  }
  EXPECT(!parses(bytes, size, &err) && strstr(err.msg, " overlaps another"));
  free(bytes);
}

// A member of three bytes, with every size and place in 64 bits and a comment at the end.
TEST(zip_64) {
  static const char archive[] = "PK\3\4\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\0nabc"
                                "PK\1\2\x2d\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\1\0\x20\0"
                                "\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xffn\x77\x77\0\0\1\0\x18\0"
                                "\3\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                "PK\6\6\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
                                "\x4f\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0"
                                "PK\6\7\0\0\0\0\x71\0\0\0\0\0\0\0\1\0\0\0"
                                "PK\5\6\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\2\0hi";
  Zip z;
  Err err = {""};
  if (!EXPECT(zip_open(&z, (const unsigned char *)archive, sizeof archive - 1, "FILE", &err))) {
    printf("    %s\n", err.msg);
    return;
  }
  const ZipMember *m = zip_find(&z, "n");
  EXPECT(m && m->size == 3 && !memcmp(m->data, "abc", 3));
  EXPECT(!zip_find(&z, "m"));
  zip_close(&z);
}
