// Catches diagrams of the course that no longer show the code's constants.
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

TEST_TIER(course_diagrams_are_those_of_the_code, 1) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return;
  }
  if (!EXPECT_INT(command(&said, "python3 lab/course_diagrams.py --check"), 0)) puts(said);
  const char *root = in_tmp("diagrams");
  CHECK(!command(&said,
                 "mkdir -p %s && cp --parents -t %s cuda/*.cu* cuda/conv/*.cu* cuda/conv/lessons/* "
                 "nn/ops.h engine/reduction.c docs/course/*.svg docs/course/conv/*.svg "
                 "results/scaling-model.json results/profile-b4-h200.txt && "
                 "sed -i 's/TILE = 64/TILE = 32/' %s/cuda/nms.cu",
                 root, root, root));
  EXPECT_INT(command(&said, "python3 lab/course_diagrams.py --root %s --check", root), 1);
  if (!EXPECT(!strncmp(said, "docs/course/nms.svg:1: differs", 30) && !strstr(said + 30, ".svg"))) puts(said);
  CHECK(!command(&said,
                 "cp cuda/nms.cu %s/cuda && "
                 "sed -i 's/PITCH = VECTORS + 1/PITCH = VECTORS/' %s/cuda/conv/lessons/04_vector_loads.cu",
                 root, root));
  EXPECT_INT(command(&said, "python3 lab/course_diagrams.py --root %s --check", root), 1);
  if (!EXPECT(!strncmp(said, "docs/course/conv/04_vector_loads.svg:1: differs", 47) && !strstr(said + 47, ".svg")))
    puts(said);
  CHECK(!command(&said, "sed -i 's/STAGES = 3/DEPTH = 3/' %s/cuda/nms.cu", root));
  EXPECT_INT(command(&said, "python3 lab/course_diagrams.py --root %s --check", root), 2);
  if (!EXPECT(strstr(said, "cuda/nms.cu: no constant STAGES"))) puts(said);
}
