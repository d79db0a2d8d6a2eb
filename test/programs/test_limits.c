// Catches sizes at which a program hangs, takes memory beyond its plan, or ends without a message.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/memory.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

// CPU time of the children so far, which other load on the machine does not change.
static double children_seconds(void) {
  struct rusage use;
  CHECK(getrusage(RUSAGE_CHILDREN, &use) == 0);
  return seconds_of(use.ru_utime) + seconds_of(use.ru_stime);
}

// A data set whose annotation file says that all n annotations are of one image.
static const char *one_image(const char *name, int n) {
  const char *dir = in_tmp(name);
  EXPECT_INT(command(NULL,
                     "mkdir -p %s/train %s/annotations && %s --out %s/annotations/instances_train.json "
                     "--images 3 --points 3 --same-image --annotations %d",
                     dir, dir, tool("large_coco"), dir, n),
             0);
  return dir;
}

static void expect_one_image_refused(const char *name, int n, double most_seconds) {
  const char *said, *dir = one_image(name, n);
  char want[200];
  snprintf(want, sizeof want,
           "instances_train.json: image 4 (000000000004.jpg) has %d of the %d annotations; at most 10000 per image are "
           "supported: check their image_id\n",
           n, n);
  const double before = children_seconds();
  EXPECT_INT(command(&said, "%s --data %s --model tiny --iters 1 --out %s/run", tool("train"), dir, dir), 2);
  if (!EXPECT(strstr(said, "train: ") == said && strstr(said, want))) printf("%s\n", said);
  EXPECT_INT(command(NULL, "test ! -e %s/run", dir), 0);
  EXPECT_INT(command(&said, "%s --data %s", tool("doctor"), dir), 1);
  if (!EXPECT(strstr(said, "at most 10000 per image are"))) printf("%s\n", said);
  const double taken = children_seconds() - before;
  if (!EXPECT(taken < most_seconds)) printf("  %.1f CPU seconds\n", taken);
}

TEST_TIER(limits_of_annotations_in_an_image, 1) { expect_one_image_refused("one-image", 20000, 10); }
TEST_TIER(limits_of_a_million_annotations_in_an_image, 2) { expect_one_image_refused("one-image-1e6", 1000000, 20); }

// As many as may be, of one name. The doctor once compared each with all.
TEST_TIER(limits_of_categories, 2) {
  const char *said, *dir = in_tmp("most-categories");
  EXPECT_INT(
      command(&said,
              "mkdir -p %s/train %s/annotations && : >%s/train/x && { printf "
              "'{\"images\":[{\"id\":1,\"file_name\":\"x\",\"width\":8,"
              "\"height\":8}],\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,4,4],"
              "\"area\":16,\"iscrowd\":0}],\"categories\":['; seq -s, -f '{\"id\":%%.0f,\"name\":\"c\"}' 99999; echo "
              "']}'; } >%s/annotations/instances_train.json",
              dir, dir, dir, dir),
      0);
  const double before = children_seconds();
  EXPECT_INT(command(&said, "%s --decode=false --data %s", tool("doctor"), dir), 0);
  const double taken = children_seconds() - before;
  if (!EXPECT(taken < 3)) printf("  %.1f CPU seconds\n%s\n", taken, said);
}

// The number of a record's member.
static double member(const char *record, const char *key) {
  const char *at = strstr(record, key);
  return at ? atof(at + strlen(key)) : NAN;
}

// Polygons of eight points, a hundred annotations per image.
static void expect_indexed(int images, int annotations, double most_seconds, double most_mb) {
  const char *said, *dir = in_tmp("many-annotations");
  EXPECT_INT(command(&said, "mkdir -p %s && %s --out %s/a.json --images %d --annotations %d --points 8", dir,
                     tool("large_coco"), dir, images, annotations),
             0);
  EXPECT_INT(command(&said, "sleep 0.2; %s --read %s/a.json --index %s", tool("bench_index"), dir, dir), 0);
  EXPECT_INT(member(said, "\"annotations\":"), annotations);
  EXPECT(strstr(said, "cached in"));
  if (!EXPECT(member(said, "\"cpu_seconds\":") < most_seconds && member(said, "\"peak_mb\":") < most_mb))
    printf("%s\n", said);
  EXPECT_INT(command(&said, "%s --read %s/a.json --index %s", tool("bench_index"), dir, dir), 0);
  EXPECT(strstr(said, "\"from index-"));
  if (!EXPECT(member(said, "\"peak_mb\":") < 100)) printf("%s\n", said); // mapped, not copied
  EXPECT_INT(command(&said, "rm -r %s", dir), 0);
}

// A hundredth of what the next one has, of its memory as well: neither may grow faster than the file.
TEST_TIER(limits_of_annotations, 1) { expect_indexed(1000, 100000, 1.2 + 1, 80 + 20); }

// 120 seconds of wall time on two cores; CPU time is less than that of both.
TEST_TIER(limits_of_ten_million_annotations, 2) {
  struct statvfs disk;
  CHECK(statvfs(test_tmp(), &disk) == 0);
  if ((double)disk.f_bavail * (double)disk.f_frsize < 7e9 || memory_left("") < (size_t)9e9) {
    test_skip("needs 7 GB of disk space and 9 GB of memory");
    return;
  }
  expect_indexed(100000, 10000000, 120, 8000);
}

// As a user who may start no thread: OpenMP would end the program with a line of its own.
static int alone(const char **said, const char *line) {
  const int user = 1000000 + getpid(); // of whom there is no other process
  return command(said,
                 "OMP_NUM_THREADS=4 setpriv --reuid %d --regid %d --clear-groups --inh-caps -all,+dac_override "
                 "--ambient-caps -all,+dac_override prlimit --nproc=1 %s",
                 user, user, line);
}

TEST_TIER(limits_of_processes, 1) {
  const char *said;
  if (alone(&said, "true")) {
    test_skip("needs root, setpriv and prlimit");
    return;
  }
  char *set = xasprintf("%s", shapes_set()), *out = xstrdup(in_tmp("limits-alone"));
  char *works[] = {
      xasprintf("%s --data %s", tool("doctor"), set),
      xasprintf("%s --out %s/set --train 2 --val 2 --size 32", tool("shapes"), out),
      xasprintf("%s --gt %s/annotations/instances_val.json --dt %s/none.json", tool("cocoeval"), set, out),
  };
  char *ends[] = {
      xasprintf("%s --data %s --model tiny --size 64 --iters 1 --device cpu --out %s/run", tool("train"), set, out),
      xasprintf("%s --weights %s/w.safetensors %s/val --device cpu --out %s/found", tool("infer"), out, set, out),
  };
  CHECK(!command(NULL, "mkdir -p %s && echo '[]' >%s/none.json", out, out));
  CHECK(!train_shapes("", "limits-alone-w", "--iters 1") &&
        !command(NULL, "cp %s/model.safetensors %s/w.safetensors", in_tmp("limits-alone-w"), out));
  for (int i = 0; i < COUNT(works); i++)
    if (!EXPECT_INT(alone(&said, works[i]), 0)) printf("%s: %s\n", works[i], said);
  for (int i = 0; i < COUNT(ends); i++) {
    const int status = alone(&said, ends[i]);
    const char *line = strstr(said, ": cannot start decoder thread 1 of ");
    if (!EXPECT(status == 1 && line && strstr(line, "raise the limit of processes (ulimit -u)") &&
                !strstr(said, "gomp")))
      printf("%s: %d %s\n", ends[i], status, said);
  }
  for (int i = 0; i < COUNT(works); i++) free(works[i]);
  for (int i = 0; i < COUNT(ends); i++) free(ends[i]);
  free(set);
  free(out);
}
