// Catches bugs that a fuzzer has already found once.
//
// Runs the fuzzers' functions on their seeds and on earlier findings (files named found-…). A bad one ends the program;
// the sanitizers of make test-asan detect the rest.
#include <dirent.h>
#include <stdint.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/test.h"

typedef int Target(const uint8_t *bytes, size_t size);
Target corpus_cli, corpus_coco, corpus_holdout, corpus_idx, corpus_image, corpus_import, corpus_index, corpus_json,
    corpus_records, corpus_results, corpus_rle, corpus_safetensors, corpus_torch, corpus_wire; // test/fuzz/fuzz_X.c

static void feed_folder(const char *folder, Target *target) {
  DIR *dir = opendir(folder);
  if (!EXPECT(dir)) return;
  int files = 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char *path = xasprintf("%s/%s", folder, entry->d_name);
    size_t size;
    char *text = path_is_file(path) ? file_read(path, &size, NULL) : NULL;
    if (text) {
      uint8_t *bytes = memcpy(xmalloc(size), text, size); // without the NUL, so that a step too far is seen
      EXPECT_INT(target(bytes, size), 0);
      files++;
      free(bytes);
    }
    free(text);
    free(path);
  }
  closedir(dir);
  EXPECT(files > 0);
}

TEST(corpus_cli) { feed_folder("test/corpus/cli", corpus_cli); }
TEST(corpus_coco) { feed_folder("test/corpus/coco", corpus_coco); }
TEST(corpus_holdout) { feed_folder("test/corpus/holdout", corpus_holdout); }
TEST(corpus_idx) { feed_folder("test/corpus/idx", corpus_idx); }
TEST(corpus_image) { feed_folder("test/corpus/image", corpus_image); }
TEST(corpus_import) { feed_folder("test/corpus/import", corpus_import); }
TEST(corpus_index) { feed_folder("test/corpus/index", corpus_index); }
TEST(corpus_json) { feed_folder("test/corpus/json", corpus_json); }
TEST(corpus_records) { feed_folder("test/corpus/records", corpus_records); }
TEST(corpus_results) { feed_folder("test/corpus/results", corpus_results); }
TEST(corpus_rle) { feed_folder("test/corpus/rle", corpus_rle); }
TEST(corpus_safetensors) { feed_folder("test/corpus/safetensors", corpus_safetensors); }
TEST(corpus_torch) { feed_folder("test/corpus/torch", corpus_torch); }
TEST(corpus_wire) { feed_folder("test/corpus/wire", corpus_wire); }
