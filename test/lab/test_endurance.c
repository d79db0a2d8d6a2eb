// Catches runs that leak memory, handles, threads or files, that end otherwise when they are stopped and resumed, and
// programs that spoil each other's results in one folder tree: lab/endurance.py.
#include "test/harness/command.h"
#include "test/harness/test.h"

static void endure(const char *what, const char *folder, const char *more) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return;
  }
  const int status = command(&said, "python3 lab/endurance.py %s %s %s", what, in_tmp(folder), more);
  if (EXPECT_INT(status, 0) && EXPECT(strstr(said, "\"compared\": ")))
    command(NULL, "rm -r %s", in_tmp(folder));
  else
    printf("%s\n", said);
}

TEST_TIER(endurance_of_a_short_run, 1) {
  endure("long", "endured", "--steps 40 --evaluate-every 4 --stops 3 --pause 0.02 --compare");
}
TEST_TIER(endurance_of_a_small_crowd, 1) { endure("crowd", "crowded", "--steps 12 --evaluate-every 4"); }
TEST_TIER(endurance_of_a_longer_run, 2) {
  endure("long", "endured-longer", "--steps 2000 --evaluate-every 20 --stops 30 --pause 0.1 --compare");
}
TEST_TIER(endurance_of_a_crowd, 2) { endure("crowd", "crowded-longer", "--steps 1000 --evaluate-every 10"); }
