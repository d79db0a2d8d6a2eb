// Catches predictions of scaling that do not follow from the model or its records.
//
// lab/scaling.py, its model and its tables: test/lab/scaling_checks.py has the cases.
#include "test/harness/command.h"
#include "test/harness/test.h"

TEST(scaling_predicts_and_tells_losses_apart) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return;
  }
  if (!EXPECT_INT(command(&said, "python3 test/lab/scaling_checks.py"), 0)) printf("%s\n", said);
}
