// Prints date, build and machine as every benchmark's record has them (base/machine.h), for the scripts of test/peers
// and for records that are assembled by hand.
#include "base/machine.h"
#include <stdio.h>
#include "base/cli.h"
#include "base/output.h"
#include "nn/device.h"

// clang-format off
#define MACHINE_OPTIONS(X)                                                                                             \
  X(STRING, device, "auto", "NAME", "cpu, cuda:N, or auto: a GPU if there is one")
// clang-format on

typedef struct MachineOptions {
  OPTION_FIELDS(MACHINE_OPTIONS)
} MachineOptions;

int main(int argc, char **argv) {
  MachineOptions o = {OPTION_DEFAULTS(MACHINE_OPTIONS)};
  OPTION_TABLE(table, MachineOptions, MACHINE_OPTIONS);
  Cli cli = {.usage = "[--device NAME]",
             .about = "Prints the machine and the build as a record.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  Err err;
  Device *dev = device_open(o.device, &err);
  if (!dev) die(EXIT_USAGE, "%s", err.msg);
  if (*dev->why_cpu) device_print(dev, stderr);
  commit_warn();
  Record r = {0};
  record_begin(&r);
  device_origin(dev, &r);
  puts(record_end(&r));
  record_free(&r);
  device_close(dev);
  stdout_close();
  return 0;
}
