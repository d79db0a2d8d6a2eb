// How messages name the programs: as whoever reads them can call them.
#pragma once

// "maskrcnn train" in a program that the command maskrcnn has started; else by its path from the source tree, "./train"
// or "build/doctor". `program` is one of train, infer, doctor, cocoeval, inspect and report.
const char *command_name(const char *program);
