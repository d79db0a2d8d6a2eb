// How messages name the programs: as whoever reads them can call them.
#pragma once

// "maskrcnn train" in a program that the command maskrcnn has started; else by its path from the source tree, "./train"
// or "build/doctor". `program` is one of train, infer, doctor, import, export, cocoeval, inspect and report.
const char *command_name(const char *program);
// A command line without these options, "--lr 0.1 --amend", then with them. All its words but the first are options and
// their values. malloc'ed.
char *command_with(const char *command, const char *options);
