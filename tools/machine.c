// Prints when, by which build and on which machine it runs, as every benchmark's record has it (base/machine.h): for
// the scripts of test/peers, and for records that are put together by hand.
#include "base/machine.h"
#include <stdio.h>
#include "base/cli.h"
#include "nn/device.h"

int main(int argc, char **argv) {
  const char *device = "auto";
  Option options[] = {
      {.name = "device", .kind = OPT_STRING, .target = &device, .arg = "NAME", .help = "cpu, cuda:N, or auto"},
  };
  Cli cli = {.usage = "[--device NAME]",
             .about = "Prints the machine and the build as a record.",
             .options = options,
             .num_options = COUNT(options)};
  cli_parse_or_exit(&cli, argc, argv);
  Err err;
  Device *dev = device_open(device, &err);
  if (!dev) die(EXIT_USAGE, "%s", err.msg);
  commit_warn();
  Record r = {0};
  record_begin(&r);
  device_origin(dev, &r);
  puts(record_end(&r));
  record_free(&r);
  device_close(dev);
  return 0;
}
