// Catches messages that name a program in a way that does not work with the installed command.
#include "base/command.h"
#include "test/harness/test.h"

extern char *__progname;

TEST(command_names_are_those_of_the_tree_or_of_maskrcnn) {
  char *before = __progname;
  EXPECT_STR(command_name("train"), "./train");
  EXPECT_STR(command_name("inspect"), "build/inspect");
  __progname = "maskrcnn infer";
  EXPECT_STR(command_name("train"), "maskrcnn train");
  EXPECT_STR(command_name("inspect"), "maskrcnn inspect");
  __progname = before;
}
