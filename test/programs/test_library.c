// Catches a library with other symbols than its header, that does not install, or that C++ cannot call.
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/team.h"
#include "data/images/png.h"
#include "include/maskrcnn.h"
#include "test/harness/allocations.h"
#include "test/harness/command.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

// A picture of library_image's, as a PNG file.
static const char *picture(int width, int height) {
  Err err;
  const char *path = in_tmp("library.png");
  maskrcnn_image image = library_image(width, height, 0, 4);
  if (!png_write(path, &(Image){.h = height, .w = width, .rgb = (uint8_t *)image.data}, PNG_FAST, &err))
    die(EXIT_RUN, "%s", err.msg);
  library_free(&image);
  return path;
}

// What the library draws over it, with these weights.
static Image expected(const char *weights, int width, int height) {
  Image drawn = image_alloc(height, width);
  maskrcnn_options o = library_options();
  o.weights = weights;
  maskrcnn *m = library_open(&o);
  maskrcnn_image image = library_image(width, height, 0, 4);
  maskrcnn_results *r = NULL;
  maskrcnn_picture *p = NULL;
  EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK);
  if (EXPECT_INT(maskrcnn_draw(m, &image, r->images[0], &p, &why), MASKRCNN_OK) &&
      EXPECT(p->width == width && p->height == height))
    memcpy(drawn.rgb, p->rgb, 3 * (size_t)width * (size_t)height);
  EXPECT(!r->images[0]->detections || memcmp(drawn.rgb, image.data, 3 * (size_t)width * (size_t)height)); // it is drawn
  maskrcnn_picture_free(p);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&image);
  return drawn;
}

// What `line` and the arguments behind it draw, of a detector and of a classifier.
static void expect_pictures(const char *line) {
  Err err;
  const char *said;
  char *of[] = {xstrdup(library_weights(NORM_FROZEN_BN)), xstrdup(library_classifier())};
  char *out = xstrdup(in_tmp("drawn.png"));
  for (int i = 0; i < COUNT(of); i++) {
    Image got, want = expected(of[i], 100, 70);
    if (!EXPECT_INT(command(&said, "OMP_NUM_THREADS=1 %s %s %s %s cpu", line, of[i], picture(100, 70), out), 0))
      printf("    %s\n", said);
    if (EXPECT(image_load(&got, out, &err)))
      EXPECT(got.h == want.h && got.w == want.w && !memcmp(got.rgb, want.rgb, (size_t)(3 * want.h * want.w)));
    image_free(&got);
    image_free(&want);
    free(of[i]);
  }
  free(out);
}

// Python with the package of the tree and the library of this build; NULL, and the test is skipped: there is no numpy.
static char *python_with_package(void) {
  const char *named = getenv("PYTHON"), *python = named && *named ? named : "python3";
  if (!command(NULL, "%s -c 'import numpy'", python))
    return xasprintf("OPENBLAS_NUM_THREADS=1 PYTHONPATH=python MASKRCNN_LIBRARY=%s %s", tool("libmaskrcnn.so"), python);
  test_skip("numpy is not installed for $PYTHON, or python3");
  return NULL;
}

static void run_python(const char *script, const char *pictures_and_more) {
  const char *said;
  char *python = python_with_package(), *weights = xstrdup(library_weights(NORM_FROZEN_BN));
  if (python && !EXPECT_INT(command(&said, "%s test/lib/%s %s %s", python, script, weights, pictures_and_more), 0))
    printf("%s\n", said);
  free(weights);
  free(python);
}

// Of a command that takes WEIGHTS PHOTO OUT DEVICE.
static void expect_example(const char *line) {
  const char *said;
  char *weights = xstrdup(library_weights(NORM_FROZEN_BN)), *out = xstrdup(in_tmp("drawn.png"));
  const char *const bad[] = {in_tmp("cut.png"), in_tmp("empty.png"), "/nowhere.jpg", "examples/detect.c"};
  expect_pictures(line);
  CHECK(!command(NULL, "head -c 1000 %s >%s && : >%s", in_tmp("library.png"), bad[0], bad[1]));
  for (int i = 0; i < COUNT(bad); i++) {
    EXPECT_INT(command(&said, "%s %s %s %s cpu", line, weights, bad[i], out), 1);
    EXPECT(strchr(said, '\n') == said + strlen(said) - 1 && strstr(said, bad[i])); // a line that names the file
  }
  EXPECT_INT(command(&said, "%s /nowhere/w.pth %s %s cpu", line, picture(100, 70), out), 1);
  EXPECT(strstr(said, "/nowhere/w.pth"));
  EXPECT_INT(command(&said, "%s %s %s /nowhere/out.png cpu", line, weights, picture(100, 70)), 1);
  EXPECT(strstr(said, "cannot write /nowhere/out.png"));
  EXPECT(command(&said, "%s", line) > 0);
  EXPECT(strstr(said, "usage: "));
  free(weights);
  free(out);
}

TEST(library_example_in_c) { expect_example(tool("example_c")); }

TEST(library_example_in_cpp) {
  if (access(tool("example_cpp"), X_OK))
    test_skip("it is not built: there is no C++ compiler");
  else
    expect_example(tool("example_cpp"));
}

// Tier 1, as the following: Python loads no library that is compiled for a sanitizer.
TEST_TIER(library_example_in_python, 1) {
  char *python = python_with_package(), *line = xasprintf("%s examples/detect.py", python ? python : "");
  if (python) expect_example(line);
  free(line);
  free(python);
}

TEST_TIER(library_as_a_python_package, 1) {
#define SIZE(name) #name, sizeof(maskrcnn_##name)
  char *more = xasprintf("%s %s %s %s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu,%s=%zu",
                         library_classifier(), picture(100, 70), test_tmp(), SIZE(error), SIZE(size), SIZE(options),
                         SIZE(description), SIZE(image), SIZE(rle), SIZE(detections), SIZE(classes), SIZE(result),
                         SIZE(results), SIZE(picture));
  run_python("package.py", more);
  free(more);
}

TEST_TIER(library_serves_good_and_bad_clients, 1) { run_python("serve.py", picture(60, 60)); }

// Examples are short: it is what they show.
TEST(library_examples_are_short) {
  static const struct {
    const char *file;
    int lines;
  } most[] = {
      {"examples/detect.c", 30}, {"examples/detect.cpp", 30}, {"examples/detect.py", 30}, {"examples/serve.py", 120}};
  for (int i = 0; i < COUNT(most); i++) {
    size_t size;
    int lines = 0;
    char *text = file_read(most[i].file, &size, NULL);
    for (char *p = text; p && (p = strchr(p, '\n')); p++) lines++;
    if (!EXPECT(text && lines <= most[i].lines)) printf("    %s: %d lines\n", most[i].file, lines);
    free(text);
  }
}

// The functions that the header declares, and nothing else, from both.
TEST(library_exports_its_header) {
  const char *said;
  EXPECT_INT(command(&said, "grep -oE '\\bmaskrcnn_[a-z_]+\\(' include/maskrcnn.h | tr -d '(' | sort -u >%s",
                     in_tmp("declared")),
             0);
  EXPECT_INT(command(&said,
                     "nm -D --defined-only %s | grep -v ' A MASKRCNN_' | sed 's/.* T //; s/@@.*//' | "
                     "sort | diff %s -",
                     tool("libmaskrcnn.so"), in_tmp("declared")),
             0);
  EXPECT_STR(said, "");
  if (path_is_file(tool("libmaskrcnn.a"))) {
    EXPECT_INT(command(&said, "nm -g --defined-only %s | sed -n 's/.* [A-Z] //p' | sort | diff %s -",
                       tool("libmaskrcnn.a"), in_tmp("declared")),
               0);
    EXPECT_STR(said, "");
  }
  EXPECT_INT(command(&said, "readelf -d %s | grep -c 'SONAME.*libmaskrcnn.so.2'", tool("libmaskrcnn.so")), 0);
}

// Nothing is lost, used after it was freed or read before it was written.
static void expect_clean_under_valgrind(const char *line) {
  const char *said;
  if (!allocations_counted() || command(&said, "valgrind --version")) {
    test_skip("valgrind is not installed, or a sanitizer watches already");
    return;
  }
  // The wait policy: a program that sets it would begin again, unwatched. No GPU: its driver is not watched well.
  const int status = command(&said,
                             "CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive valgrind -q "
                             "--leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite "
                             "--error-exitcode=9 %s",
                             line);
  if (strstr(said, "unhandled DW_FORM"))
    test_skip("valgrind does not read the debugging information of this compiler");
  else if (strstr(said, "Illegal opcode"))
    test_skip("valgrind does not know this processor's instructions; make MARCH=x86-64-v3 builds without them");
  else if (!EXPECT_INT(status, 0))
    printf("    %s\n", said);
}

TEST_TIER(library_under_valgrind, 1) {
  char *weights = xstrdup(library_weights(NORM_FROZEN_BN));
  char *line = xasprintf("%s %s %s %s cpu", tool("example_c"), weights, picture(60, 60), in_tmp("drawn.png"));
  expect_clean_under_valgrind(line);
  free(line);
  free(weights);
}

// The tests of threads, by this very program.
TEST_TIER(library_threads_under_valgrind, 2) {
  char *line = xasprintf("%s library_four_threads library_submits_and_takes library_handle_moves", tool("test_all"));
  test_limit(1800);
  expect_clean_under_valgrind(line);
  free(line);
}

// ---- memory that runs out -------------------------------------------------------------------------------------------

// The C example, of whose allocations one is refused, or all are counted.
static int example_with(const char *variable, const char *value, const char **said) {
  static char *weights, *program;
  if (!weights) {
    weights = xstrdup(library_weights(NORM_FROZEN_BN));
    program = xstrdup(tool("example_c"));
  }
  return command(said, "OMP_NUM_THREADS=1 %s=%s LD_PRELOAD=$PWD/%s %s %s %s %s cpu", variable, value,
                 tool("allocations.so"), program, weights, picture(60, 60), in_tmp("drawn.png"));
}

// One line and a status, whichever it is: memory of an engine that is half built, too, is given back as it is.
TEST_TIER(library_refused_memory_says_so, 1) {
  const char *said;
  char number[32];
  size_t size;
  if (!allocations_counted() || !team_sleeps()) {
    test_skip("a sanitizer has an allocator of its own, and clang's OpenMP aborts when it has no memory");
    return;
  }
  EXPECT_INT(example_with("COUNT_TO", in_tmp("count"), &said), 0);
  char *text = file_read(in_tmp("count"), &size, NULL);
  const long count = text ? atol(text) : 0;
  free(text);
  EXPECT(count > 500);
  for (long n = 1; n <= count; n += n < 40 ? 1 : count / 60) {
    snprintf(number, sizeof number, "%ld", n);
    const int status = example_with("FAIL_AT", number, &said);
    const char *end = strchr(said, '\n');
    if (!EXPECT(status == 0 || (status == 1 && end && !end[1])))
      printf("    allocation %ld: %d, %s\n", n, status, said);
  }
}

// ---- a GPU that fails -----------------------------------------------------------------------------------------------

// The C example on the stand-in: a line, and an end of its own choice.
static void expect_fault(const char *fault, int status, const char *want) {
  const char *said;
  char *weights = xstrdup(library_weights(NORM_FROZEN_BN)), *folder = xstrdup(tool("faulty"));
  const int got = command(&said, "FAULT=%s OMP_NUM_THREADS=1 LD_LIBRARY_PATH=%s %s %s %s %s cuda:0", fault, folder,
                          tool("example_c"), weights, picture(60, 60), in_tmp("drawn.png"));
  if (!EXPECT_INT(got, status) || !EXPECT(strstr(said, want))) printf("    %s: %s\n", fault, said);
  EXPECT(!strchr(said, '\n') || strchr(said, '\n') == said + strlen(said) - 1); // the example's line alone
  free(weights);
  free(folder);
}

TEST(library_outlives_a_gpu) {
  expect_fault("kernel:3:cudaErrorIllegalAddress", 1, "the handle can only be closed");
  expect_fault("mark_reached:1:cudaErrorLaunchFailure", 1, "a kernel failed");
  expect_fault("stage:1:cudaErrorECCUncorrectable", 1, "ECC error");
  expect_fault("open:1:cudaErrorNoDevice", 1, "device cuda:0");
}
