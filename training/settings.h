// The settings of a run, which are its resolved options, as they are told: with where each comes from.
#pragma once
#include "nn/device.h"
#include "training/options.h"

// "  --flip=0.5  (default)", a line each; without sources "  --flip=0.5". What is not known yet, or has nothing to say,
// is left out.
void settings_print(const TrainSpec *o, bool sources, FILE *out);
// The lines without sources; malloc'ed.
char *settings_text(const TrainSpec *o);
// The options that were given and differ from their defaults, as words that a shell takes back:
// "options: --data coco --batch 4". Lines of `columns` columns, a backslash at the end of all but the last.
void settings_print_given(const TrainSpec *o, int columns, FILE *out);
// Adds "settings": {"flip": {"value": 0.5, "from": "default"}, …}. The device is the one that
// is open.
void settings_record(Record *j, const TrainSpec *o, const Device *dev);

// Whether the options of two ranks, as settings_text has them, ask for the same run. They may differ in where files are
// and in what each machine has. As comm_agree calls it: false names the first that differs.
bool settings_same(const char *of_first, const char *other, Err *err);
