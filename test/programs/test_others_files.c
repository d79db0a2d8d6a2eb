// Catches a program that overwrites what another one wrote, or that a pipe in its folder holds for ever.
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

typedef enum Kind { TEXT, LINK, PIPE } Kind;

// A file in a folder that is otherwise new.
typedef struct OthersFile {
  const char *program, *arguments, *name;
  Kind kind;
  const char *said;
} OthersFile;

TEST_TIER(others_files_are_refused_by_name, 1) {
  static const char train[] = "--model tiny --size 64 --batch 2 --device cpu --iters 1";
  static const OthersFile files[] = {
      {"train", train, "log.jsonl", TEXT, " exists and was not written by this program; "},
      {"train", train, "report.html", TEXT, " exists and was not written by this program; "},
      {"train", train, "run.json", LINK, " is a symbolic link to "},
      {"train", train, "best.json", PIPE, " is a pipe, not a regular file; "},
      {"train", train, "checkpoint.safetensors", PIPE, " is a pipe, not a regular file; "},
      {"infer", NULL, "detections.json", TEXT, " exists and was not written by this program; "},
      {"infer", NULL, "detections.json", LINK, " is a symbolic link to "},
      {"infer", NULL, "detections.csv", TEXT, " exists and was not written by this program; "},
      {"infer", NULL, "counts.csv", TEXT, " exists and was not written by this program; "},
      {"infer", NULL, "scores.json", PIPE, " is a pipe, not a regular file; "},
  };
  char *precious = xstrdup(in_tmp("others-precious")), *folder = xstrdup(in_tmp("others"));
  for (int i = 0; i < COUNT(files); i++) {
    const OthersFile *f = &files[i];
    char *path = xasprintf("%s/%s", folder, f->name);
    const char *said;
    Err err;
    size_t size;
    CHECK(dirs_make(folder, &err));
    write_text(precious, "precious\n");
    if (f->kind == TEXT) write_text(path, "precious\n");
    if (f->kind == LINK) CHECK(!symlink(precious, path));
    if (f->kind == PIPE) CHECK(!mkfifo(path, 0600));
    test_limit(60);
    if (f->arguments)
      EXPECT_INT(command(&said, "%s --data %s %s --out %s", tool("train"), shapes_set(), f->arguments, folder), 2);
    else
      EXPECT_INT(command(&said, "%s --weights %s --data %s --eval --device cpu --out %s", tool("infer"),
                         infer_weights(), shapes_set(), folder),
                 2);
    if (!EXPECT(strstr(said, f->name) && strstr(said, f->said))) printf("    %s\n", said);
    char *kept = file_read(f->kind == TEXT ? path : precious, &size, &err);
    EXPECT_STR(kept, "precious\n");
    CHECK(!unlink(path));
    free(kept);
    free(path);
  }
  free(precious);
  free(folder);
}

// It says so on the page and ends.
TEST_TIER(others_pipes_do_not_hold_a_report, 1) {
  static const char *const names[] = {"run.json", "log.jsonl", "best.json", "evaluation.json", "time-to-target.json"};
  char *folder = xstrdup(in_tmp("others-reported")), *page = xasprintf("%s/report.html", folder);
  Err err;
  const char *said;
  CHECK(dirs_make(folder, &err));
  for (int i = 0; i < COUNT(names); i++) {
    char *path = xasprintf("%s/%s", folder, names[i]),
         *whole = xasprintf("%s/%s", folder, i ? "run.json" : "log.jsonl");
    write_text(whole, i ? "{\"state\":\"complete\"}\n" : "{\"step\":1,\"kind\":\"train\"}\n");
    if (strcmp(path, whole)) CHECK(!mkfifo(path, 0600));
    test_limit(60);
    const int status = command(&said, "%s %s", tool("report"), folder);
    if (!EXPECT(status == 0 || status == 2)) printf("    %s: %s\n", names[i], said);
    unlink(path);
    unlink(whole);
    unlink(page);
    free(path);
    free(whole);
  }
  CHECK(!mkfifo(page, 0600));
  EXPECT_INT(command(&said, "%s %s", tool("report"), folder), 2);
  EXPECT(strstr(said, "report.html is a pipe, not a regular file; "));
  CHECK(!unlink(page));
  free(folder);
  free(page);
}
