#include "base/command.h"
#include <string.h>
#include "base/basics.h"
#include "base/error.h"

extern char *__progname; // the last part of argv[0]

static const struct {
  const char *program, *built, *installed;
} commands[] = {{"train", "./train", "maskrcnn train"},           {"infer", "./infer", "maskrcnn infer"},
                {"doctor", "build/doctor", "maskrcnn doctor"},    {"cocoeval", "build/cocoeval", "maskrcnn cocoeval"},
                {"inspect", "build/inspect", "maskrcnn inspect"}, {"report", "build/report", "maskrcnn report"}};

const char *command_name(const char *program) {
  const bool installed = !strncmp(__progname, "maskrcnn ", strlen("maskrcnn "));
  for (int i = 0; i < COUNT(commands); i++)
    if (!strcmp(commands[i].program, program)) return installed ? commands[i].installed : commands[i].built;
  return program;
}
