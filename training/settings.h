// A run's settings: its resolved options with their sources, as text and as JSON.
#pragma once
#include "nn/device.h"
#include "training/options.h"

// "  --flip=0.5  (default)", a line each; without sources "  --flip=0.5". Omits options that are not known yet or do
// not apply.
void settings_print(const TrainSpec *o, bool sources, FILE *out);
// The lines without sources; malloc'ed.
char *settings_text(const TrainSpec *o);
// The options that were given and differ from their defaults, quoted for a shell: "options: --data coco --batch 4".
// Wraps at `columns` columns; all lines but the last end in a backslash.
void settings_print_given(const TrainSpec *o, int columns, FILE *out);
// Adds "settings": {"flip": {"value": 0.5, "from": "default"}, …}. `device`: the open device.
void settings_record(Record *j, const TrainSpec *o, const Device *dev);

// Whether the options of two ranks, in settings_text's form, ask for the same run. Paths and machine-specific options
// may differ. For comm_agree: false names the first that differs.
bool settings_same(const char *of_first, const char *other, Err *err);
