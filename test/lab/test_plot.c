// Catches plots that leave out or move points of their records.
//
// lab/plot.py and the plots of results/: test/lab/plot_checks.py has the cases.
#include "test/harness/command.h"
#include "test/harness/test.h"

TEST(plots_are_of_their_records) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return;
  }
  if (!EXPECT_INT(command(&said, "python3 test/lab/plot_checks.py"), 0)) printf("%s\n", said);
}
