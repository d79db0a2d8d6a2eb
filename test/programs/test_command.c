// Catches an installed command that runs the wrong program, or one that calls itself by a name that cannot be typed.
#include <stdlib.h>
#include <string.h>
#include "base/basics.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

TEST_TIER(command_runs_the_programs, 1) {
  static const char *const programs[] = {"train",  "infer",    "doctor",  "import",
                                         "export", "cocoeval", "inspect", "report"};
  const char *said;
  EXPECT_INT(command(&said, "%s --help", tool("maskrcnn")), 0);
  for (int i = 0; i < COUNT(programs); i++) EXPECT(strstr(said, programs[i]) != NULL);
  for (int i = 0; i < COUNT(programs); i++) {
    char usage[64];
    snprintf(usage, sizeof usage, "usage: maskrcnn %s ", programs[i]);
    EXPECT_INT(command(&said, "%s %s --help", tool("maskrcnn"), programs[i]), 0);
    EXPECT(!strncmp(said, usage, strlen(usage)));
  }
  EXPECT_INT(command(&said, "%s train --no-such-option", tool("maskrcnn")), 2);
  EXPECT(!strncmp(said, "maskrcnn train: unknown option", strlen("maskrcnn train: unknown option")));
}

TEST(command_refuses_what_it_does_not_know) {
  const char *said;
  EXPECT_INT(command(&said, "%s nosuch", tool("maskrcnn")), 2);
  EXPECT_STR(said, "maskrcnn: unknown command nosuch; maskrcnn --help lists the commands\n");
  EXPECT_INT(command(&said, "%s", tool("maskrcnn")), 2);
  EXPECT_STR(said, "maskrcnn: no command given; maskrcnn --help lists the commands\n");
}

// As it is installed: programs in another folder, links followed.
TEST(command_finds_programs_that_are_installed) {
  const char *said;
  EXPECT_INT(command(&said,
                     "at=$(mktemp -d) && mkdir -p $at/bin $at/libexec/maskrcnn && cp %s $at/bin && "
                     "ln -s ../bin/maskrcnn $at/libexec/mr && "
                     "printf '#!/bin/sh\\necho ran \"$@\"\\n' >$at/libexec/maskrcnn/doctor && "
                     "chmod +x $at/libexec/maskrcnn/doctor && $at/libexec/mr doctor --data 'a b'; rm -rf $at",
                     tool("maskrcnn")),
             0);
  EXPECT_STR(said, "ran --data a b\n");
}
