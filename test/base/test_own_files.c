// Catches another program's file, or what a symbolic link leads to, that is overwritten unasked.
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/own_files.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// Each type: a text of this program's, and one that resembles it.
TEST(own_files_are_told_by_what_they_hold) {
  static const struct {
    OwnFile what;
    const char *ours, *another;
  } texts[] = {
      {OWN_LOG, "damaged\n{\"step\":1,\"kind\":\"train\"}\n", "{\"epoch\":1,\"loss\":3}\n"},
      {OWN_RECORD, "{\"state\":\"complete\",\"model\":\"tiny\"}\n", "{\"model\":\"tiny\"}\n"},
      {OWN_BEST, "{\"best-bbox\":{\"bbox_AP\":0.5,\"step\":2}}\n", "{\"epoch\":2}\n"},
      {OWN_BEST, "{}\n", "{ }\n"},
      {OWN_DAMAGED, "?\"best-box\":{\"box\":0.3,\"step\":2}}\n", "notes on the best runs\n"},
      {OWN_DAMAGED, "{\"best-box\":{\"bo", "{\"threshold\":0.3}\n"},
      {OWN_RESULTS, "[\n{\"image_id\":1,\"category_id\":2}\n]\n", "[{\"image_id\":1,\"category_id\":2}]\n"},
      {OWN_RESULTS, "[\n]\n", "[]"},
      {OWN_CSV_OBJECTS, "file_name,image_id,category,category_id,score,area,x,y,width,height\r\n", "file_name,area\n"},
      {OWN_CSV_COUNTS, "file_name,image_id,width,height,count,area\r\n", "file_name,count\n"},
      {OWN_PAGE,
       "<!DOCTYPE html>\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
       "'nonce-0'\">",
       "<!DOCTYPE html>\n<html lang=\"en\">\n"},
      {OWN_WEIGHTS, "\x10{\"__metadata__\":{\"format\":\"maskrcnn.c 2\"}}", "{\"__metadata__\":{}}"},
      {OWN_ONNX, "\b\n\x12\nmaskrcnn.c\x1a\x03", "\b\n\x12\apytorch\x1a\x03"},
  };
  char *path = xasprintf("%s/own-file", test_tmp());
  Err err;
  for (int i = 0; i < COUNT(texts); i++) {
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs(texts[i].ours, f) >= 0 && !fclose(f));
    EXPECT(output_is_own(path, texts[i].what, false, &err));
    write_text(path, texts[i].another);
    EXPECT(!output_is_own(path, texts[i].what, false, &err));
    EXPECT(strstr(err.msg, "/own-file exists and was not written by this program; ") && strstr(err.msg, "--force"));
    EXPECT(output_is_own(path, texts[i].what, true, &err));
    write_text(path, "");
    EXPECT(output_is_own(path, texts[i].what, false, &err));
  }
  write_text(path, "{\"st"); // what a kill left of the first record
  EXPECT(output_is_own(path, OWN_LOG, false, &err));
  write_text(path, "{\"so");
  EXPECT(!output_is_own(path, OWN_DAMAGED, false, &err));
  CHECK(!truncate(path, 100)); // zeros, as a crash leaves
  EXPECT(output_is_own(path, OWN_DAMAGED, false, &err));
  EXPECT(!output_is_own(path, OWN_LOG, false, &err));
  free(path);
}

TEST(own_files_of_a_folder_are_no_links_or_pipes) {
  static const OwnName names[] = {{"run.json", OWN_RECORD}};
  char *folder = xasprintf("%s/whose-folder", test_tmp()), *path = xasprintf("%s/run.json", folder);
  char *weights = xasprintf("%s/best-bbox.safetensors", folder), *other = xasprintf("%s/whose-other", test_tmp());
  Err err;
  EXPECT(folder_is_own(folder, names, 1, false, &err)); // which is not there
  CHECK(dirs_make(folder, &err) && !symlink(other, path));
  write_text(other, "");
  EXPECT(!folder_is_own(folder, names, 1, false, &err) && strstr(err.msg, "/run.json is a symbolic link to "));
  EXPECT(folder_is_own(folder, names, 1, true, &err));
  if (geteuid() == 0 && lchown(path, 65534, 65534) == 0)
    EXPECT(!folder_is_own(folder, names, 1, true, &err) && strstr(err.msg, " is a symbolic link of another user "));
  CHECK(!unlink(path) && !mkfifo(path, 0600));
  EXPECT(!folder_is_own(folder, names, 1, true, &err) && strstr(err.msg, "/run.json is a pipe, not a regular file"));
  CHECK(!unlink(path) && !symlink(other, weights));
  EXPECT(!folder_is_own(folder, names, 1, false, &err) && strstr(err.msg, "/best-bbox.safetensors is a symbolic link"));
  CHECK(!unlink(weights));
  EXPECT(folder_is_own(folder, names, 1, false, &err));
  char *all[] = {folder, path, weights, other};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}
