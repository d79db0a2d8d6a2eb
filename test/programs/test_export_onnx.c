// Catches ONNX models that another runtime cannot read, or that find something else than we do.
#include <stdlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static bool have_onnxruntime(const char **python) {
  const char *named = getenv("PYTHON");
  *python = named && *named ? named : "python3";
  if (!command(NULL, "%s -c 'import onnx, onnxruntime, numpy, safetensors, PIL'", *python)) return true;
  test_skip("onnx, onnxruntime, safetensors or pillow is not installed: pip install them, then PYTHON=… make test");
  return false;
}

// The path of the weights of a run of a few steps; its scores are close to each other, which tests their order.
static char *weights_of(const char *name, const char *options) {
  char *path = xasprintf("%s/%s/model.safetensors", test_tmp(), name);
  EXPECT_INT(train_shapes("", name, options), 0);
  return path;
}

static void expect_agreement(const char *script, const char *weights, const char *more) {
  const char *python, *said;
  if (!have_onnxruntime(&python)) return;
  if (!EXPECT_INT(
          command(&said, "%s test/peers/%s --weights %s --build \"${B:-build}\" %s", python, script, weights, more), 0))
    printf("%s\n", said);
}

TEST_TIER(onnx_finds_what_we_find, 1) {
  char *weights = weights_of("onnx", "--iters 2 --eval-every never");
  char *more = xasprintf("--data %s --images 2 --batches 2 --sizes 96", shapes_set());
  expect_agreement("compare_onnx.py", weights, more);
  free(more);
  free(weights);
}

TEST_TIER(onnx_follows_other_conventions, 2) {
  static const char *const trained[] = {"--conventions detectron2", "--conventions mlperf", "--norm bn",
                                        "--model fasterrcnn-r18-fpn --size 128"};
  for (int i = 0; i < COUNT(trained); i++) {
    char *options = xasprintf("--iters 2 --eval-every never %s", trained[i]), *name = xasprintf("onnx-%d", i);
    char *weights = weights_of(name, options);
    char *more = xasprintf("--data %s --images 4 --batches 1,4 --sizes 128,200", shapes_set());
    expect_agreement("compare_onnx.py", weights, more);
    free(more);
    free(weights);
    free(name);
    free(options);
  }
}

TEST_TIER(onnx_export_tells_mistakes, 1) {
  const char *said;
  char *weights = weights_of("onnx-mistakes", "--iters 1 --eval-every never"), *out = xstrdup(in_tmp("model.onnx"));
  EXPECT_INT(command(&said, "%s %s --onnx %s", tool("export"), weights, out), 0);
  EXPECT(strstr(said, "written: ") && path_is_file(out));
  static const struct {
    const char *options, *says;
  } wrong[] = {{"--uint8", "--uint8 needs --onnx FILE.onnx"},
               {"--onnx /nowhere/model.onnx", "/nowhere"},
               {"--onnx model.onnx --to labels", "leave out the options for annotations"},
               {"--onnx model.onnx --score 0.3", "--set min_score=X"},
               {"--onnx model.onnx --set nms=2", "nms"}};
  for (int i = 0; i < COUNT(wrong); i++) {
    EXPECT_INT(command(&said, "%s %s %s", tool("export"), weights, wrong[i].options), 2);
    if (!EXPECT(strstr(said, wrong[i].says))) printf("    %s\n", said);
  }
  EXPECT_INT(command(&said, "%s %s --onnx %s", tool("export"), weights, weights), 2); // the weights stay
  EXPECT(strstr(said, "--onnx"));
  EXPECT_INT(command(NULL, "%s %s --onnx %s", tool("export"), weights, out), 0); // its own, again
  CHECK(!command(NULL, "printf another >%s", out));
  EXPECT_INT(command(&said, "%s %s --onnx %s", tool("export"), weights, out), 2);
  EXPECT(strstr(said, "was not written by this program"));
  EXPECT_INT(command(NULL, "%s %s --onnx %s --force", tool("export"), weights, out), 0);
  free(out);
  free(weights);
}
