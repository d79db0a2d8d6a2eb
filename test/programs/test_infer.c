// Catches infer overwriting the user's files, or losing detections when it is stopped or the disk is full.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/lock.h"
#include "data/coco/coco.h"
#include "data/images/png.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"

// A copy of the set of shapes; its folder under test_tmp().
static void copy_set(const char *name) { CHECK(!command(NULL, "cp -r %s %s/%s", shapes_set(), test_tmp(), name)); }

// Whatever would be overwritten is refused by what it is, not by its name.
TEST_TIER(infer_spares_what_it_reads, 1) {
  char image[512], *set = xstrdup(in_tmp("spared"));
  static const char reads[] = " is an input of this run and would be overwritten; choose another output file or folder";
  copy_set("spared");
  snprintf(image, sizeof image, "%s", in_tmp("spared/val/000001.png"));
  expect_refused(reads, image, "spared/val", "%s", image);
  EXPECT(access(in_tmp("spared/val/lock"), F_OK) != 0);
  expect_refused(reads, infer_weights(), "spared-out", "--json %s %s", infer_weights(), image);
  expect_refused(reads, image, "spared-out", "--json %s %s", image, image);
  CHECK(!symlink(image, in_tmp("spared.json")));
  expect_refused(reads, image, "spared-out", "--json %s %s", in_tmp("spared.json"), image);
  expect_refused(reads, in_tmp("spared/annotations/instances_val.json"), "spared-out",
                 "--force --data %s --json %s/annotations/instances_val.json", set, set);
  expect_refused(reads, image, "spared-out", "--force --data %s --json %s", set, image);
  // The folder of the images, with overlays or without.
  expect_refused(" is the folder of the input images; choose another one", image, "spared/val", "--data %s", set);
  expect_refused(" is the folder of the input images; choose another one", image, "spared/val",
                 "--data %s --overlays 0", set);
  EXPECT(access(in_tmp("spared/val/lock"), F_OK) != 0);
  // The folder of images that are not read but share names with those that are.
  expect_refused(" exists and is not an overlay of this program, so it is not overwritten; choose another folder",
                 image, "spared/val", "--data %s --split train", set);
  expect_refused(" exists and is not an overlay of this program, so it is not overwritten; choose another folder",
                 image, "spared/val", "%s/train/000001.png", set);
  CHECK(!command(NULL, "rm -f %s/val/lock %s/val/index-*", set, set));
  // A folder below that, which file_name leads to.
  CHECK(!command(NULL, "cd %s && mkdir val/sub && mv val/*.png val/sub && sed -i 's|\"0000|\"sub/0000|g' %s", set,
                 "annotations/instances_val.json"));
  expect_refused(reads, in_tmp("spared/val/sub/000001.png"), "spared/val/sub", "--data %s", set);
  free(set);
  expect_refused("--out has an empty value", infer_weights(), "spared-out", "--out '' x.png");
}

// A link of an overlay's name is refused, and none is followed; names that several files share are told apart.
TEST_TIER(infer_writes_overlays_of_its_own, 1) {
  const char *said;
  char line[2048], a[512], *outside = xstrdup(in_tmp("outside.png"));
  snprintf(a, sizeof a, "%s", in_tmp("its-own"));
  CHECK(!command(NULL, "mkdir -p %s/a %s/b %s/out && cp %s/val/000001.png %s/a/x.png", a, a, a, shapes_set(), a));
  CHECK(!command(NULL, "cd %s && cp a/x.png b/x.png && cp a/x.png a/x-2.png && cp a/x.png %s", a, outside));
  CHECK(!command(NULL, "ln -s %s %s/out/x.png && ln -s %s %s/out/overlay.tmp", outside, a, outside, a));
  snprintf(line, sizeof line, "%s/a/x.png %s/b/x.png %s/a/x-2.png", a, a, a);
  expect_refused("/out/x.png exists and is not an overlay of this program", outside, "its-own/out", "%s", line);
  CHECK(!unlink(in_tmp("its-own/out/x.png")));
  if (!EXPECT_INT(command(&said, "%s %s", infer_line("its-own/out"), line), 0)) fprintf(stderr, "%s\n", said);
  EXPECT(strstr(said, "image 1 of 3\n")); // progress
  static const char *const names[] = {"its-own/out/x.png", "its-own/out/x-2.png", "its-own/out/x-3.png"};
  struct stat st;
  for (int i = 0; i < COUNT(names); i++)
    EXPECT(is_picture(in_tmp(names[i])) && !lstat(in_tmp(names[i]), &st) && S_ISREG(st.st_mode));
  EXPECT(same_file(outside, in_tmp("its-own/a/x.png")));
  EXPECT(access(in_tmp("its-own/out/overlay.tmp"), F_OK) != 0);
  free(outside);
}

// An overlay that cannot be written is one line and a failure; the detections are all there.
TEST_TIER(infer_goes_on_without_an_overlay, 1) {
  const char *said;
  char *name = xasprintf("%s/%0252d", test_tmp(), 1), *good = xasprintf("%s/val/000001.png", shapes_set());
  CHECK(!command(NULL, "cp %s %s", good, name));
  EXPECT_INT(command(&said, "%s %s %s", infer_line("nameless"), name, good), 1);
  if (!EXPECT(strstr(said, "overlay left out: ") && strstr(said, "File name too long\n") &&
              strstr(said, "\n1 overlays could not be written\n")))
    fprintf(stderr, "%s\n", said);
  EXPECT(is_picture(in_tmp("nameless/000001.png")));
  int all = results_in(in_tmp("nameless/detections.json"));
  // A disk that takes the results and not the pictures.
  EXPECT_INT(command(&said, "ulimit -f 8; %s --score 0.9 %s", infer_line("pictureless"), good), 1);
  EXPECT(strstr(said, "\n1 overlays could not be written\n"));
  EXPECT(all > 0 && results_in(in_tmp("pictureless/detections.json")) >= 0);
  EXPECT(access(in_tmp("pictureless/000001.png"), F_OK) != 0);
  EXPECT(access(in_tmp("pictureless/overlay.tmp"), F_OK) != 0);
  EXPECT_INT(command(&said, "ulimit -f 8; %s --score 0.9 --data %s", infer_line("pictureless"), shapes_set()), 1);
  EXPECT(strstr(said, "\n6 overlays could not be written\n"));
  free(name);
  free(good);
}

// A disk that is full before the end: what fitted is there under a name of its own, and the results of before stay.
TEST_TIER(infer_keeps_what_it_found_on_a_full_disk, 1) {
  const char *said;
  char line[1024];
  snprintf(line, sizeof line, "--overlays 0 --data %s", shapes_set());
  if (!EXPECT_INT(command(&said, "%s %s", infer_line("brim"), line), 0)) return;
  struct stat st;
  CHECK(!stat(in_tmp("brim/detections.json"), &st));
  int all = results_in(in_tmp("brim/detections.json"));
  CHECK(!command(NULL, "cp %s %s", in_tmp("brim/detections.json"), in_tmp("brim-before")));
  EXPECT_INT(command(&said, "ulimit -f %lld; %s %s", (long long)st.st_size * 2 / 3 / 512, infer_line("brim"), line), 1);
  if (!EXPECT(strstr(said, "detections.json.partial: File too large (") &&
              strstr(said, "detections.json.partial holds the detections of ") && strstr(said, " of 6 images)\n")))
    fprintf(stderr, "%s\n", said);
  int some = results_in(in_tmp("brim/detections.json.partial"));
  EXPECT(some > 0 && some < all);
  EXPECT(same_file(in_tmp("brim/detections.json"), in_tmp("brim-before")));
  // The next run keeps them.
  EXPECT_INT(command(&said, "%s %s", infer_line("brim"), line), 0);
  EXPECT(strstr(said, "detections.json.partial, left by a run that did not finish, was renamed to ") &&
         strstr(said, "brim/detections.json.partial-1\n"));
  EXPECT_INT(results_in(in_tmp("brim/detections.json.partial-1")), some);
  EXPECT(access(in_tmp("brim/detections.json.partial"), F_OK) != 0);
}

// The same where pictures go to a disk of their own, in a file system that only this command sees: it is said once, for
// the next picture has no room either, and the results so far stay.
TEST_TIER(infer_ends_where_pictures_fill_the_disk, 1) {
  const char *said;
  char *disk = xstrdup(in_tmp("small-disk"));
  static const char *const options[] = {"--overlays 0 --labels", "--json $r --out"};
  CHECK(dirs_make(disk, NULL));
  if (command(NULL, "unshare -m mount -t tmpfs tmpfs %s", disk) != 0) {
    test_skip("no rights to mount");
    free(disk);
    return;
  }
  for (int i = 0; i < COUNT(options); i++) {
    char out[32], *partial;
    snprintf(out, sizeof out, "full-%d", i);
    partial = xasprintf("%s/%s/detections.json.partial", test_tmp(), out);
    EXPECT_INT(command(&said,
                       "unshare -m sh -c 'mount -t tmpfs -o size=64k tmpfs %1$s; mkdir -p %2$s/%3$s; r=%2$s/%3$s/"
                       "detections.json; mkdir %1$s/to; touch %1$s/to/lock; "
                       "head -c 1000000 /dev/zero >%1$s/filler 2>/dev/null; (%4$s %5$s %1$s/to %6$s/val)'",
                       disk, test_tmp(), out, infer_line(out), options[i], shapes_set()),
               1);
    const char *full = strstr(said, ": No space left on device: free space there, or choose another folder (");
    if (!EXPECT(full && !strstr(full + 3, "No space left") && strstr(full, "partial holds the detections of ") &&
                !strstr(said, "left out") && results_in(partial) > 0))
      fprintf(stderr, "%s\n", said);
    free(partial);
  }
  free(disk);
}

// Images that it is long busy with, as arguments; malloc'ed.
static char *many_images(void) {
  char *two = xasprintf("%s/val/000001.png %s/val/000002.png", shapes_set(), shapes_set()), *many = xstrdup("");
  for (int i = 0; i < 200; i++) {
    char *more = xasprintf("%s %s", many, two);
    free(many);
    many = more;
  }
  free(two);
  return many;
}

static char *large_set(void) {
  char *set = xstrdup(in_tmp("infer-set"));
  CHECK(!command(NULL, "%s --out %s --train 1 --val 400 --size 64 --seed 3", tool("shapes"), set));
  char *arguments = xasprintf("--data %s", set);
  free(set);
  return arguments;
}

// Starts it in the background, until some images are done; what it says is not read.
static pid_t start_long(const char *out, const char *arguments) {
  char *line = xasprintf("%s --overlays 0 %s >%s/%s.said 2>&1", infer_line(out), arguments, test_tmp(), out);
  char *partial = xasprintf("%s/%s/detections.json.partial", test_tmp(), out);
  const pid_t pid = command_start(line);
  double begin = now_seconds();
  struct stat st;
  while ((stat(partial, &st) != 0 || st.st_size < 1000) && now_seconds() - begin < 60) usleep(1000);
  free(line);
  free(partial);
  return pid;
}

// At the second try where the first one cut a write, which takes microseconds of the milliseconds of an image.
TEST_TIER(infer_survives_being_killed, 1) {
  int found = -1;
  char *images = many_images();
  for (int i = 0; i < 2 && found < 0; i++) {
    int status;
    CHECK(!command(NULL, "rm -rf %s", in_tmp("killed")));
    pid_t pid = start_long("killed", images);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFSIGNALED(status));
    found = results_in(in_tmp("killed/detections.json.partial"));
  }
  free(images);
  EXPECT(found > 0);
  EXPECT(access(in_tmp("killed/detections.json"), F_OK) != 0);
}

TEST_TIER(infer_stops_when_asked, 1) {
  static const int asked[] = {SIGINT, SIGTERM, SIGHUP, SIGTERM}; // the last while it is at a data set
  for (int i = 0; i < COUNT(asked); i++) {
    int status;
    size_t size;
    char out[16];
    snprintf(out, sizeof out, "asked-%d", i);
    char *arguments = i < 3 ? many_images() : large_set();
    pid_t pid = start_long(out, arguments);
    kill(pid, asked[i]);
    CHECK(waitpid(pid, &status, 0) == pid);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    char *partial = xasprintf("%s/%s/detections.json.partial", test_tmp(), out);
    char *file = xasprintf("%s/%s.said", test_tmp(), out), *said = file_read(file, &size, NULL);
    EXPECT(results_in(partial) > 0);
    EXPECT(said && strstr(said, "\nstopped: ") && strstr(said, ".partial holds the detections of "));
    char *all[] = {partial, file, said, arguments};
    for (int k = 0; k < COUNT(all); k++) free(all[k]);
  }
}

// What the first rank leaves is what one rank leaves, byte for byte, but for the times.
TEST_TIER(infer_shares_out_a_data_set, 1) {
  char *scores[2];
  for (int i = 0; i < 2; i++) {
    const char *said, *line = infer_line(i ? "shared-out" : "one-rank");
    const int status = command(&said, "%s --data %s --eval --batch 1 --threads 1 --overlays 3 --gpus %d", line,
                               shapes_set(), i ? 3 : 1);
    if (!EXPECT_INT(status, 0)) printf("    %s\n", said);
    EXPECT(
        strstr(said, i ? "\nlatency: no batches remain after warm-up" : " batches of 1, from decoded images to masks"));
    const char *from = strstr(said, "\nbbox\n"), *last = from ? strstr(from, " images\n") : NULL;
    scores[i] = last ? xasprintf("%.*s", (int)(last - from), from) : xstrdup("");
  }
  EXPECT(*scores[0] && !strcmp(scores[0], scores[1]));
  EXPECT(
      !command(NULL, "cd %s && rm -f */lock */index-* && diff -r -x evaluation.html one-rank shared-out", test_tmp()));
  free(scores[0]);
  free(scores[1]);
}

// Its page shows the scores that it prints, and takes no file's place that is read.
TEST_TIER(infer_scores_on_a_page, 1) {
  size_t size;
  const char *said, *line = infer_line("scored");
  EXPECT_INT(command(&said, "%s --data %s --eval --overlays 0", line, shapes_set()), 0);
  EXPECT(strstr(said, "\npage: ") || !strncmp(said, "page: ", 6));
  const char *ap = strstr(said, "bbox AP ");
  char *page = file_read(in_tmp("scored/evaluation.html"), &size, NULL), *wanted = ap ? xasprintf("%.13s ", ap) : NULL;
  if (EXPECT(page && wanted))
    EXPECT(strstr(page, wanted) && strstr(page, "\"kind\":\"scores\"") && strstr(page, "\"pictures/scores-"));
  free(page);
  free(wanted);
  EXPECT_INT(command(&said, "%s --data %s --overlays 0", infer_line("unscored"), shapes_set()), 0);
  EXPECT(access(in_tmp("unscored/evaluation.html"), F_OK) != 0);
  EXPECT_INT(command(&said, "mkdir -p %s && ln -s %s %s/evaluation.html", in_tmp("page-linked"), infer_weights(),
                     in_tmp("page-linked")),
             0);
  expect_refused(" is an input of this run and would be overwritten; choose another output file or folder",
                 infer_weights(), "page-linked", "--force --eval --data %s", shapes_set());
}

TEST_TIER(infer_on_ranks_stops_when_asked, 1) {
  int status;
  char *set = large_set(), *arguments = xasprintf("%s --gpus 2", set);
  const pid_t pid = start_long("asked-ranks", arguments);
  kill(pid, SIGTERM);
  CHECK(waitpid(pid, &status, 0) == pid);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT(results_in(in_tmp("asked-ranks/detections.json.partial")) > 0);
  EXPECT(!command(NULL, "grep -c '^stopped: .*partial holds the detections of ' %s | grep -qx 1",
                  in_tmp("asked-ranks.said")));
  free(arguments);
  free(set);
}

// The rank that is killed is named once, and what was found stays.
TEST_TIER(infer_on_ranks_ends_with_one_of_them, 1) {
  int status;
  char *set = large_set(), *arguments = xasprintf("%s --gpus 2", set);
  const pid_t pid = start_long("killed-rank", arguments);
  EXPECT(!command(NULL, "kill -9 $(cut -d ' ' -f 2 /proc/%d/task/%d/children)", (int)pid, (int)pid));
  CHECK(waitpid(pid, &status, 0) == pid);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
  EXPECT(results_in(in_tmp("killed-rank/detections.json.partial")) > 0);
  EXPECT(!command(NULL, "grep -c '^infer: rank 1 on .* was killed by SIGKILL' %s | grep -qx 1",
                  in_tmp("killed-rank.said")));
  free(arguments);
  free(set);
}

// Whichever rank could not write it: the first writes and scores the results, and the supervisor adds no word.
TEST_TIER(infer_on_ranks_counts_overlays_left_out, 1) {
  const char *said, *line = infer_line("no-overlay");
  CHECK(dirs_make(in_tmp("no-overlay/000002.png"), NULL));
  EXPECT_INT(command(&said, "%s --data %s --batch 1 --threads 1 --gpus 2 --eval", line, shapes_set()), 1);
  if (!EXPECT(strstr(said, "overlay left out: ") && strstr(said, "1 overlays could not be written") &&
              strstr(said, "\nbbox AP ") && !strstr(said, "infer: ")))
    printf("%s\n", said);
  EXPECT(results_in(in_tmp("no-overlay/detections.json")) > 0 && path_is_file(in_tmp("no-overlay/scores.json")));
}

// Six images are a batch of four and one of two, of which each rank has one.
TEST_TIER(infer_on_ranks_is_timed_together, 1) {
  const char *said, *line = infer_line("timed-ranks");
  EXPECT_INT(command(&said, "%s --data %s --batch 4 --threads 1 --gpus 2 --benchmark 4", line, shapes_set()), 0);
  const char *record = strstr(said, "\"world\":2,");
  EXPECT(record && strstr(record, "\"images\":24,") && !strstr(record + 1, "\"world\""));
}

TEST_TIER(infer_of_images_is_for_one_rank, 1) {
  expect_refused("--gpus needs --data DIR: named images are processed on one GPU", infer_weights(), "images-ranks",
                 "--gpus 2 %s/val/000001.png", shapes_set());
}

// Two in one folder would share its files.
TEST_TIER(infer_takes_its_folder_alone, 1) {
  Err err;
  CHECK(dirs_make(in_tmp("alone"), &err) && folder_lock(in_tmp("alone"), &err));
  expect_refused("is in use by process ", infer_weights(), "alone", "%s/val/000001.png", shapes_set());
}

// An image whose canvas takes more memory than there is costs the others nothing, and is named.
TEST_TIER(infer_leaves_out_what_does_not_fit, 1) {
#ifdef __SANITIZE_ADDRESS__
  test_skip("its shadow memory needs all there is");
#else
  Image strip = image_alloc(16, 512);
  Err err;
  const char *said, *path = in_tmp("strip.png"), *good = in_tmp("good.png");
  CHECK(png_write(path, &strip, PNG_FAST, &err));
  image_free(&strip);
  CHECK(!command(NULL, "cp %s/val/000001.png %s", shapes_set(), good));
  EXPECT_INT(command(&said, "ulimit -v 400000; %s --size 512 --max-size 16384 %s %s %s", infer_line("strip"), good,
                     path, good),
             2);
  if (!EXPECT(strstr(said, "strip.png: too little memory: ") && strstr(said, "\ninfer: 1 of 3 images left out\n")))
    fprintf(stderr, "%s\n", said);
  EXPECT(results_in(in_tmp("strip/detections.json")) > 0 && is_picture(in_tmp("strip/good-2.png")));
#endif
}

// What is no regular file is refused, not waited for; a name reaches the terminal without its control characters;
// results that nobody can read are no success.
TEST_TIER(infer_of_odd_files, 1) {
  const char *said;
  char line[1024];
  CHECK(!mkfifo(in_tmp("fifo"), 0600));
  expect_refused("not a regular file", infer_weights(), "odd", "%s", in_tmp("fifo"));
  expect_refused(": not a valid file of weights: it is empty or not a regular file", infer_weights(), "odd",
                 "--weights %s x.png", in_tmp("fifo"));
  CHECK(!command(NULL, "cp %s/val/000001.png \"%s/$(printf 'a\\033[2Jb').png\"", shapes_set(), test_tmp()));
  EXPECT_INT(command(&said, "%s %s/a*b.png", infer_line("odd"), test_tmp()), 0);
  EXPECT(strstr(said, "/a?[2Jb.png: ") && !strchr(said, '\033'));
  snprintf(line, sizeof line, "%s/val/000001.png", shapes_set());
  EXPECT_INT(command(&said, "%s %s >/dev/full", infer_line("unheard"), line), 1);
  EXPECT(results_in(in_tmp("unheard/detections.json")) > 0);
  // What is no file gets the detections as they come, and may fail at the first.
  EXPECT_INT(command(&said, "%s --json /dev/full %s", infer_line("unheard"), line), 1);
  EXPECT(strstr(said, "cannot write /dev/full: ") && strstr(said, "(no detections yet)\n"));
}
