// Catches files of other formats that are named wrongly or not at all, and files of ours that are taken for others'.
#include "base/alloc.h"
#include "base/foreign.h"
#include "base/json.h"
#include "data/images/image.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

#define FILE_OF(bytes) bytes, sizeof bytes - 1

static const struct {
  const char *bytes;
  size_t size;
  const char *what; // NULL: nothing known
} files[] = {
    {FILE_OF("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n"),
     "a Git LFS pointer; run `git lfs pull`"},
    {FILE_OF("<!DOCTYPE html><html><head>"), "an HTML page; download the file itself"},
    {FILE_OF("\xEF\xBB\xBF\r\n  <HTML lang=en>"), "an HTML page; download the file itself"},
    {FILE_OF("<!-- saved from url -->\n<!doctype html>"), "an HTML page; download the file itself"},
    {FILE_OF("<?xml version=\"1.0\"?>\n<Error><Code>NoSuchKey</Code></Error>"),
     "an XML file, perhaps a server's error message; download the file again"},
    {FILE_OF("\x1f\x8b\x08\x08\x12\x34\x56\x78\x02\x03weights.pth\0"), "a gzip file; unpack it with gunzip"},
    {FILE_OF("BZh91AY&SY"), "a bzip2 file; unpack it with bunzip2"},
    {FILE_OF("\xfd"
             "7zXZ\0\0\4"),
     "an xz file; unpack it with unxz"},
    {FILE_OF("\x28\xb5\x2f\xfd\x24"), "a zstd file; unpack it with unzstd"},
    {FILE_OF("7z\xbc\xaf\x27\x1c\0\4"), "a 7z archive; unpack it"},
    {FILE_OF("Rar!\x1a\x07\1\0"), "a RAR archive; unpack it"},
    // as `gzip -n` writes it, whose first eight bytes are a possible length of a safetensors header
    {FILE_OF("\x1f\x8b\x08\0\0\0\0\0\2\3\x4b\4\0\x43\xbe\xb7\xe8\1\0\0\0"), "a gzip file; unpack it with gunzip"},
    {FILE_OF("\xff\xfe{\0\"\0i\0m\0a\0g\0e\0s\0\"\0:\0[\0]\0}\0"),
     "UTF-16 text, not UTF-8; convert it or download it again"},
    {FILE_OF("\xfe\xff\0[\0]"), "UTF-16 text, not UTF-8; convert it or download it again"},
    {FILE_OF("{\0\"\0a\0\"\0:\0\x31\0}\0"), "UTF-16 text, not UTF-8; convert it or download it again"},
    {FILE_OF("\0[\0\x31\0]"), "UTF-16 text, not UTF-8; convert it or download it again"},
    {FILE_OF("\xff\xfe\0\0{\0\0\0"), NULL},         // UTF-32
    {FILE_OF("[\0\1\0\0\0\0\0{\"a\":"), NULL},      // a safetensors header of 0x1005b bytes, cut short
    {FILE_OF("\xff\xfe\0\0\0\0\0\0{\"a\":"), NULL}, // one of 0xfeff bytes
    {FILE_OF("version https://git"), NULL},         // too short
    {FILE_OF("<htm"), NULL},
    {FILE_OF("\x1f\x8b"), NULL},
    {FILE_OF("{\"a\""), NULL},
    {FILE_OF(""), NULL},
};

TEST(foreign_files_are_named) {
  for (int i = 0; i < COUNT(files); i++) {
    void *exact = memcpy(xmalloc(files[i].size), files[i].bytes, files[i].size);
    const char *what = foreign_file(exact, files[i].size);
    if (!EXPECT(!files[i].what == !what) || (what && !EXPECT_STR(what, files[i].what))) printf("    file %d\n", i);
    free(exact);
  }
  EXPECT_STR(foreign_file("PK\3\4", 4), "a zip archive; unpack it"); // but PyTorch's are zip archives
  const char tar[262] = {[257] = 'u', 's', 't', 'a', 'r'};
  EXPECT_STR(foreign_file(tar, sizeof tar), "a tar archive; unpack it");
  EXPECT(!foreign_file(tar, sizeof tar - 1));
}

// What a reader says of a file: for all three readers it is one line that begins with the file's name.
static void expect_named(const char *reader, const char *begins, const char *what, const char *message) {
  char *wanted = xasprintf("%s%s", begins, what);
  if (!EXPECT_STR(message, wanted)) printf("    %s\n", reader);
  free(wanted);
}

TEST(foreign_files_are_named_by_every_reader) {
  for (int i = 0; i < COUNT(files); i++) {
    if (!files[i].what) continue;
    unsigned char *exact = memcpy(xmalloc(files[i].size), files[i].bytes, files[i].size);
    Err err = {""};
    Image im;
    Checkpoint c = {0};
    Json j;
    EXPECT(!image_decode(&im, exact, files[i].size, "FILE", &err));
    expect_named("image", "FILE: cannot read the image: ", files[i].what, err.msg);
    EXPECT(!ckpt_parse(&c, exact, files[i].size, "FILE", &err));
    expect_named("weights", "FILE: not a weights file, but ", files[i].what, err.msg);
    json_open(&j, "FILE", (const char *)exact, files[i].size);
    json_skip(&j);
    EXPECT(!json_done(&j));
    expect_named("JSON", "FILE: not JSON, but ", files[i].what, j.err.msg);
    json_close(&j);
    free(exact);
  }
}
