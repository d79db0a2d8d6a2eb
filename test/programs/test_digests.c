// Catches a damaged checkpoint or weights file that a program loads, and a run that cannot go on from a whole one.
#define _GNU_SOURCE // memmem
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

#define FOLDER "damage to a run's folder"

static char *path_of(const char *out, const char *name) { return xasprintf("%s/%s", in_tmp(out), name); }

static int train(const char *out, const char *more, const char **said) {
  return command(said,
                 "%s --data %s --model tiny --size 64 --batch 1 --lr 0.01 --seed 5 --device cpu --threads 1 --iters 6 "
                 "--eval-every never --checkpoint-every 2 --keep 3 --out \"%s\" %s",
                 tool("train"), shapes_set(), in_tmp(out), more);
}

static unsigned char *read_all(const char *out, const char *name, size_t *n) {
  char *path = path_of(out, name), *bytes = file_read(path, n, NULL);
  CHECK(bytes);
  free(path);
  return (unsigned char *)bytes;
}

static void write_all(const char *out, const char *name, const unsigned char *bytes, size_t n) {
  char *path = path_of(out, name);
  FILE *f = fopen(path, "r+b"); // in place: further names of the file have the damage, too
  if (!f) f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
  free(path);
}

// Flips one bit of the last tensor.
static void damage(const char *out, const char *name) {
  size_t n;
  unsigned char *bytes = read_all(out, name, &n);
  bytes[n - 100] ^= 4;
  write_all(out, name, bytes, n);
  free(bytes);
}

// What a message suggests behind `begin`, run as it stands.
static int run_suggested(const char *said, const char *begin) {
  const char *at = strstr(said, begin);
  if (!EXPECT(at)) return -1;
  at += strlen(begin);
  char *line = xasprintf("%.*s", (int)strcspn(at, "\n"), at);
  const int code = command(&said, "%s", line);
  if (code) printf("    %s\n    %s\n", line, said);
  free(line);
  return code;
}

// The bits of the one left alone.
static void expect_finished(void) {
  char *model = path_of(FOLDER, "model.safetensors"), *whole = path_of("damage-none", "model.safetensors");
  EXPECT(same_file(model, whole));
  free(whole);
  free(model);
}

// The last checkpoint, then the one before it, then all are damaged; numbered ones are further names of these files.
TEST_TIER(digests_of_damaged_checkpoints, 1) {
  const char *said;
  char expected[1024];
  EXPECT_INT(train("damage-none", "", &said), 0);
  if (!EXPECT_INT(train(FOLDER, "--stop-after 5", &said), 0)) printf("    %s\n", said);
  EXPECT_INT(command(&said, "cp -a \"%s\" %s", in_tmp(FOLDER), in_tmp("damage-saved")), 0);
  damage(FOLDER, "checkpoint.safetensors");
  EXPECT_INT(train(FOLDER, "--resume", &said), 2);
  snprintf(expected, sizeof expected, "%s/checkpoint.safetensors: damaged, or changed by another program: the values ",
           in_tmp(FOLDER));
  EXPECT(strstr(said, expected));
  EXPECT_INT(run_suggested(said, " is intact (step 4), continue from it: "), 0);
  expect_finished();

  EXPECT_INT(command(&said, "rm -r \"%s\" && mv %s \"%s\"", in_tmp(FOLDER), in_tmp("damage-saved"), in_tmp(FOLDER)), 0);
  damage(FOLDER, "checkpoint.safetensors");
  damage(FOLDER, "checkpoint-previous.safetensors");
  EXPECT_INT(train(FOLDER, "--resume=previous", &said), 2);
  EXPECT(strstr(said, "/checkpoint-previous.safetensors: damaged, or changed by another program: the values "));
  EXPECT_INT(train(FOLDER, "--resume", &said), 2);
  EXPECT(strstr(said, "/checkpoint-00000002.safetensors is intact (step 2), continue from it: cp "
                      "--remove-destination "));
  EXPECT_INT(run_suggested(said, " is intact (step 2), continue from it: "), 0);
  expect_finished();

  EXPECT_INT(command(&said, "cd \"%s\" && for f in c*.safetensors; do truncate -s 5000 $f; done", in_tmp(FOLDER)), 0);
  EXPECT_INT(train(FOLDER, "--resume", &said), 2);
  EXPECT(strstr(said, "; no other checkpoint in ") && strstr(said, " is intact\n"));
}

// ---- weights --------------------------------------------------------------------------------------------------------

static void expect_no_loading(const char *file) {
  const char *said, *one = " --device cpu --out";
  const char *lines[] = {xasprintf("%s '%s'", tool("inspect"), file),
                         xasprintf("%s --weights '%s'%s %s %s/val/000001.png", tool("infer"), file, one,
                                   in_tmp("damage-out"), shapes_set()),
                         xasprintf("%s --weights '%s'%s %s --data %s --iters 1", tool("train"), file, one,
                                   in_tmp("damage-more"), shapes_set())};
  for (int i = 0; i < COUNT(lines); i++) {
    if (!EXPECT_INT(command(&said, "%s", lines[i]), 2)) printf("    %s\n", lines[i]);
    EXPECT(strstr(said, file) && strchr(said, '\n') == strrchr(said, '\n'));
    free((void *)lines[i]);
  }
}

// Of the kinds that test/weights/test_verify.c has by the thousand.
TEST_TIER(digests_of_damaged_weights, 1) {
  size_t n;
  const char *said;
  EXPECT_INT(train("damage-weights", "", &said), 0);
  char *file = file_read(in_tmp("damage-weights/model.safetensors"), &n, NULL),
       *path = path_of("damage-weights", "damaged.safetensors");
  const struct {
    size_t at, cut, longer;
  } cases[] = {{40, 0, 0}, {n - 8, 0, 0}, {n / 2, 0, 0}, {n / 3, 4096, 0}, {700, 0, 64}, {n - 1, 1, 0}};
  for (int i = 0; i < COUNT(cases); i++) {
    FILE *f = fopen(path, "wb");
    const size_t at = cases[i].at, kept = at + cases[i].cut, repeat = cases[i].longer;
    CHECK(f && fwrite(file, 1, at, f) == at && fwrite(file + at - repeat, 1, repeat, f) == repeat);
    if (!cases[i].cut && !repeat) CHECK(fputc(file[at] ^ 1, f) != EOF);
    const size_t rest = kept + (!cases[i].cut && !repeat);
    CHECK(fwrite(file + rest, 1, n - rest, f) == n - rest && fclose(f) == 0);
    expect_no_loading(path);
  }
  free(path);
  free(file);
}

// Makes of a file's text, of which there is one, another of the same length.
static void replace(char *file, size_t n, const char *text, const char *by) {
  char *at = memmem(file, n, text, strlen(text));
  CHECK(at && strlen(text) == strlen(by));
  memcpy(at, by, strlen(by));
}

// A run that an older version left: it goes on with a note, and its next checkpoint has digests.
TEST_TIER(digests_that_an_older_file_lacks, 1) {
  const char *said;
  size_t n;
  EXPECT_INT(train("damage-older", "--stop-after 3", &said), 0);
  char *path = path_of("damage-older", "checkpoint.safetensors"), *file = file_read(path, &n, NULL);
  CHECK(file);
  replace(file, n, "\"digest\":", "\"tsegid\":");
  replace(file, n, "\"digests\":", "\"tsegids\":");
  replace(file, n, "maskrcnn.c 2", "maskrcnn.c 1");
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(file, 1, n, f) == n && fclose(f) == 0);
  EXPECT_INT(command(&said, "%s '%s'", tool("inspect"), path), 0);
  EXPECT(strstr(said, "it has no digests, so damage would go unnoticed") && strstr(said, "; not verified: it has no"));
  EXPECT_INT(train("damage-older", "--resume", &said), 0);
  EXPECT(strstr(said, "/checkpoint.safetensors: it has no digests, so damage would go unnoticed"));
  EXPECT_INT(command(&said, "%s '%s'", tool("inspect"), path), 0);
  EXPECT(strstr(said, "; whole: the header and all tensors match their digests"));
  free(file);
  free(path);
}
