// Catches a run's page that is blank, or that blames the wrong file, when files are missing or cut.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "page/page_draw.h"
#include "test/harness/test.h"

static char *path_in(const char *folder, const char *name) { return xasprintf("%s/%s/%s", test_tmp(), folder, name); }

static void write_file(const char *folder, const char *name, const char *text) {
  char *path = path_in(folder, name), *slash = strrchr(path, '/');
  *slash = '\0';
  CHECK(dirs_make(path, NULL));
  *slash = '/';
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
  free(path);
}

// The page of a folder of the test, drawn into the folder itself.
static char *draw(const char *folder) {
  char *path = xasprintf("%s/%s", test_tmp(), folder), *page = path_in(folder, PAGE_FILE);
  Err err;
  if (!EXPECT(page_draw(NULL, path, &err))) printf("    %s\n", err.msg);
  char *text = file_read(page, &(size_t){0}, NULL);
  CHECK(text);
  free(path);
  free(page);
  return text;
}

// The contents of the facts script: must be JSON without anything that ends a script. Caller frees.
static char *facts_of(const char *page) {
  static const char begin[] = "<script type=\"application/json\" id=\"facts\">";
  const char *from = strstr(page, begin);
  CHECK(from);
  from += sizeof begin - 1;
  const char *to = strstr(from, "</script>");
  CHECK(to);
  Json j;
  json_open(&j, "facts", from, (size_t)(to - from));
  json_skip(&j);
  if (!EXPECT(json_done(&j))) printf("    %s\n", j.err.msg);
  json_close(&j);
  char *facts = xasprintf("%.*s", (int)(to - from), from);
  EXPECT(!strchr(facts, '<'));
  return facts;
}

static void expect_facts(const char *folder, const char *const *parts, int n) {
  char *page = draw(folder), *facts = facts_of(page);
  for (int i = 0; i < n; i++)
    if (!EXPECT(strstr(facts, parts[i]))) printf("    %s\n    %.2000s\n", parts[i], facts);
  free(facts);
  free(page);
}

TEST(run_facts_of_a_whole_folder) {
  static const char *const parts[] = {"\"name\":\"facts-whole\"",
                                      "\"run\":{\"state\":\"complete\",\"data\":\"\\u003c/script>\"}",
                                      "\"best\":{\"best-bbox\":{\"bbox_AP\":0.5,\"step\":2}}",
                                      "\"evaluation\":{\"step\":2}",
                                      "\"weights\":[\"best-bbox.safetensors\",\"model.safetensors\"]",
                                      "\"locked\":false",
                                      "\"x\":[1,2]",
                                      "\"faults\":[]",
                                      "\"pictures\":\"\""};
  write_file("facts-whole", "run.json", "{\"state\":\"complete\",\"data\":\"</script>\"}\n");
  write_file("facts-whole", "best.json", "{\"best-bbox\":{\"bbox_AP\":0.5,\"step\":2}}\n");
  write_file("facts-whole", "evaluation.json", "{\"step\":2}\n");
  write_file("facts-whole", "model.safetensors", "");
  write_file("facts-whole", "best-bbox.safetensors", "");
  write_file("facts-whole", "log.jsonl",
             "{\"step\":1,\"kind\":\"train\",\"loss\":2}\n{\"step\":2,\"kind\":\"train\",\"loss\":1}\n");
  expect_facts("facts-whole", parts, COUNT(parts));
}

// One file that is cut takes none of the others with it, and is named.
TEST(run_facts_of_files_that_are_cut) {
  static const char *const parts[] = {"\"run\":null",          "\"evaluation\":{\"step\":2}",
                                      "facts-cut/run.json:1:", "\"cut\":true",
                                      "\"unread\":1",          "\"records\":2"};
  write_file("facts-cut", "run.json", "{\"state\":\"compl");
  write_file("facts-cut", "evaluation.json", "{\"step\":2}");
  write_file(
      "facts-cut", "log.jsonl",
      "{\"step\":1,\"kind\":\"train\",\"loss\":2}\n{\"step\":2,\"ki\n{\"step\":3,\"kind\":\"train\",\"loss\":null}\n"
      "{\"step\":4,\"kind\":\"tra");
  expect_facts("facts-cut", parts, COUNT(parts));
}

// A folder of version 1.1 is not read; one that a newer version has resumed is.
TEST(run_facts_of_older_versions) {
  char *folder = xasprintf("%s/facts-older", test_tmp());
  write_file("facts-older", "report/session.json", "{\"state\":\"stopped\"}");
  write_file("facts-older", "run.json", "{\"top1\":0.5}");
  EXPECT(run_is_older(folder));
  write_file("facts-older", "run.json", "{\"state\":\"complete\"}");
  EXPECT(!run_is_older(folder));
  free(folder);
}

static const char with_pictures[] = "{\"step\":1,\"pictures\":[[\"The "
                                    "worst\",\"a.png\",\"says\",\"pictures/one-truth.jpg\",\"pictures/../secret.jpg\"],"
                                    "[\"The worst\",\"b.png\",7,\"/etc/passwd\",null],"
                                    "[\"pictures/linked.jpg\",\"pictures/one-truth.jpg\"]]}";

// Pictures of the folder alone are put into a page, each once and none by a link, and a page elsewhere finds them.
TEST(run_facts_have_pictures) {
  Err err;
  write_file("pictured", "evaluation.json", with_pictures);
  write_file("pictured", "pictures/one-truth.jpg", "abc");
  write_file("pictured", "secret.jpg", "secret");
  write_file("elsewhere/deep", "here", "");
  char *linked = path_in("pictured", "pictures/linked.jpg");
  unlink(linked);
  CHECK(!symlink("../secret.jpg", linked));
  free(linked);
  char *folder = xasprintf("%s/pictured", test_tmp()), *out = path_in("elsewhere/deep", "p.html");
  const PageRun run = {.folder = folder, .name = "n"};
  for (int single = 0; single < 2; single++) {
    if (!EXPECT(page_of_runs(out, &run, 1, single, &err))) printf("    %s\n", err.msg);
    char *page = file_read(out, &(size_t){0}, NULL), *facts = facts_of(page);
    EXPECT(strstr(facts, "\"pictures\":\"../../pictured/\""));
    static const char embedded[] = "\"pictures/one-truth.jpg\":\"data:image/jpeg;base64,YWJj\"";
    const char *one = strstr(facts, embedded);
    EXPECT(single == !!one && !(one && strstr(one + 1, embedded)));
    EXPECT(!strstr(facts, "c2VjcmV0") && !strstr(facts, "root:"));
    free(facts);
    free(page);
  }
  free(folder);
  free(out);
}

// No text of a folder becomes a part of the page, and no two pages mark their scripts alike.
TEST(document_forbids_what_is_foreign) {
  Err err;
  Document d;
  char *path = path_in(".", "document.html"), nonce[2][40];
  for (int i = 0; i < 2; i++) {
    CHECK(document_begin(&d, path, "<b>&\"", &err));
    document_jsons(&d, "[\"</script><script>\"]");
    CHECK(document_end(&d, (const char *const *const[]){NULL}, &err));
    char *text = file_read(path, &(size_t){0}, NULL);
    EXPECT(strstr(text, "<title>&lt;b>&amp;\"</title>") && strstr(text, "default-src 'none'; script-src 'nonce-"));
    EXPECT(!strstr(text, "unsafe") && strstr(text, "[\"\\u003c/script>\\u003cscript>\"]"));
    snprintf(nonce[i], sizeof nonce[i], "%.32s", strstr(text, "nonce=\"") + strlen("nonce=\""));
    free(text);
  }
  EXPECT(strlen(nonce[0]) == 32 && strcmp(nonce[0], nonce[1]));
  free(path);
}
