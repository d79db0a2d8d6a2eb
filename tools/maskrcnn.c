// The one command that is installed: `maskrcnn train …` runs the program train, which is in ../libexec/maskrcnn/ or, in
// a build folder, next to this program.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/basics.h"
#include "base/machine.h"
#include "base/output.h"

// The programs' argv[0], which their messages begin with.
static const struct {
  const char *name, *argv0, *about;
} programs[] = {{"train", "maskrcnn train", "train a detector or classifier and evaluate it"},
                {"infer", "maskrcnn infer", "run a model on images, or evaluate it on a data set"},
                {"doctor", "maskrcnn doctor", "check a data set and suggest training options"},
                {"import", "maskrcnn import", "turn the annotations of labelme, CVAT, YOLO and others into COCO"},
                {"export", "maskrcnn export", "turn detections into files of labelme or YOLO, to be corrected"},
                {"cocoeval", "maskrcnn cocoeval", "compute COCO metrics from files of annotations and detections"},
                {"inspect", "maskrcnn inspect", "list the metadata and tensors of a weights file"},
                {"report", "maskrcnn report", "write an HTML page of one or several training runs"}};

static void print_help(void) {
  puts("usage: maskrcnn COMMAND [options]; maskrcnn COMMAND --help lists its options\n");
  for (int i = 0; i < COUNT(programs); i++) printf("  %-10s%s\n", programs[i].name, programs[i].about);
}

// The folder of this program, with links resolved.
static char *own_folder(void) {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) die(EXIT_RUN, "cannot find the folder it is installed in: /proc is not mounted");
  self[length] = '\0';
  *strrchr(self, '/') = '\0';
  return xstrdup(self);
}

static NORETURN void run(int i, char **argv) {
  const char *folder = own_folder(), *name = programs[i].name;
  char *installed = xasprintf("%s/../libexec/maskrcnn/%s", folder, name), *built = xasprintf("%s/%s", folder, name);
  argv[0] = (char *)programs[i].argv0;
  execv(installed, argv);
  if (errno == ENOENT) execv(built, argv);
  die(EXIT_RUN, "cannot run %s: %s; install maskrcnn.c again", installed, strerror(errno));
}

int main(int argc, char **argv) {
  const char *asked = argc > 1 ? argv[1] : "";
  for (int i = 0; i < COUNT(programs); i++)
    if (!strcmp(asked, programs[i].name)) run(i, argv + 1);
  const bool help = !strcmp(asked, "--help") || !strcmp(asked, "-h"), version = !strcmp(asked, "--version");
  if (!help && !version && *asked) die(EXIT_USAGE, "unknown command %.100s; maskrcnn --help lists the commands", asked);
  if (!help && !version) die(EXIT_USAGE, "no command given; maskrcnn --help lists the commands");
  if (help)
    print_help();
  else
    printf("maskrcnn.c %s, commit %s\n", build_version, build_commit);
  stdout_close();
  return 0;
}
