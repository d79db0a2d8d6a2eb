// Catches runs that end, or lose files, on file systems that do not support a call (network shares, FUSE, object
// stores).
#include <errno.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { NOT_SUPPORTED = 524 }; // the kernel's ENOTSUPP

static char *path_in(const char *out, const char *file) { return xasprintf("%s/%s/%s", test_tmp(), out, file); }

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, what)); at++) n++;
  return n;
}

// ./train with evaluations, best states and numbered checkpoints on such a file system; its output.
static int train(const char *refuse, const char *out, const char *more, const char **said) {
  char *shim = xstrdup(tool("refusing.so"));
  const int status =
      command(said,
              "env OMP_NUM_THREADS=1 REFUSE=%s LD_PRELOAD=%s %s --data %s --out %s/%s --model tiny --size 64 "
              "--batch 2 --iters 4 --limit 8 --val-limit 2 --eval-every 2 --checkpoint-every 2 --keep 2 --seed 5 "
              "--detections 10 "
              "--threads 1 --device cpu %s",
              refuse, shim, tool("train"), shapes_set(), test_tmp(), out, more);
  free(shim);
  return status;
}

static void expect_same(const char *a, const char *b, const char *file) {
  char *x = path_in(a, file), *y = path_in(b, file);
  EXPECT(same_file(x, y));
  free(x);
  free(y);
}

// No temporary files are left.
static void expect_clean(const char *out) {
  const char *said;
  EXPECT_INT(
      command(&said, "ls -A %s/%s %s/%s/pictures | grep -E '[.]tmp|lock[.]try'", test_tmp(), out, test_tmp(), out), 1);
}

TEST_TIER(file_systems_without_a_call, 1) {
  static const struct {
    const char *call;
    int reason;
    const char *named;
  } cases[] = {
      {"link", NOT_SUPPORTED, "hard links ("},
      {"sync", EINVAL, "fsync ("},
      {"sync_folder", EOPNOTSUPP, "fsync of folders ("},
      {"rename", ENOSYS, "rename ("},
      {"lock", EPERM, "locks ("},
      {"map", ENODEV, "mmap ("},
      {"truncate", EACCES, "ftruncate ("},
  };
  static const char *const files[] = {"model.safetensors",
                                      "checkpoint.safetensors",
                                      "checkpoint-previous.safetensors",
                                      "checkpoint-00000002.safetensors",
                                      "best-bbox.safetensors",
                                      "best.json"};
  const char *said;
  CHECK(!train("", "fs-whole", "", &said));
  for (int i = 0; i < COUNT(cases); i++) {
    char *refuse = xasprintf("%s:%d", cases[i].call, cases[i].reason), *out = xasprintf("fs-%d", i);
    for (int part = 0; part < 2; part++) { // stopped, and gone on with
      bool ok = EXPECT_INT(train(refuse, out, part ? "--resume" : "--stop-after 2", &said), 0);
      ok &= EXPECT_INT(count(said, "note: "), 1);
      ok &= EXPECT(strstr(said, cases[i].named));
      if (!ok) printf("%s\n", said);
    }
    for (int k = 0; k < COUNT(files); k++) expect_same(out, "fs-whole", files[k]);
    expect_clean(out);
    free(refuse);
    free(out);
  }
}

// What a disk says for good ends a run before it begins, and leaves what was there.
TEST_TIER(file_systems_with_a_fault, 1) {
  static const char *const faults[] = {"sync:5", "sync_folder:5", "rename:30", "link:5", "lock:5"}; // EIO, EROFS
  const char *said;
  CHECK(!train("", "fs-fault", "--stop-after 2", &said));
  CHECK(!command(NULL, "cp -r %s/fs-fault %s/fs-before", test_tmp(), test_tmp()));
  for (int i = 0; i < COUNT(faults); i++) {
    EXPECT_INT(train(faults[i], "fs-fault", "--resume", &said), 2);
    if (!EXPECT(strstr(said, "cannot write in ") && count(said, "\n") == 1)) printf("%s\n", said);
    expect_same("fs-fault", "fs-before", "checkpoint.safetensors");
    expect_same("fs-fault", "fs-before", "log.jsonl");
  }
  EXPECT_INT(train("", "fs-fault", "--resume", &said), 0);
}

// The other programs, where nothing is supported.
TEST_TIER(file_systems_of_other_programs, 1) {
  const char *said, *set = shapes_set();
  if (!EXPECT_INT(train("", "fs-programs", "", &said), 0)) printf("%s\n", said);
  char *run = path_in("fs-programs", ""), *found = path_in("fs-found", "detections.json");
  char *const lines[] = {
      xasprintf(
          "%s --weights %s/model.safetensors --data %s --eval --out %s/fs-found --limit 2 --device cpu --overlays 1",
          tool("infer"), run, set, test_tmp()),
      xasprintf("%s --gt %s/annotations/instances_val.json --dt %s --curves %s/fs-pr", tool("cocoeval"), set, found,
                test_tmp()),
      xasprintf("%s --data %s --html %s/fs-doctor.html", tool("doctor"), set, test_tmp()),
      xasprintf("%s %s --out %s/fs-report.html", tool("report"), run, test_tmp()),
  };
  for (int i = 0; i < COUNT(lines); i++) {
    const int status = command(&said,
                               "env REFUSE=link:38,sync:22,sync_folder:95,rename:1,lock:95,map:19,truncate:1 "
                               "LD_PRELOAD=%s %s",
                               tool("refusing.so"), lines[i]);
    bool ok = EXPECT(status == 0 || (i == 2 && status == 1));
    ok &= EXPECT_INT(count(said, "does not support"), 1);
    if (!ok) printf("%s\n%s\n", lines[i], said);
    free(lines[i]);
  }
  static const char *const made[] = {"fs-found/detections.json", "fs-doctor.html", "fs-report.html"};
  for (int i = 0; i < COUNT(made); i++) {
    char *path = path_in(".", made[i]);
    EXPECT(file_length(path) > 0);
    free(path);
  }
  free(run);
  free(found);
}
