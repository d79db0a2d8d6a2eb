// Benchmark: step times, and a breakdown of them.
#pragma once
#include "base/trace.h"
#include "engine/engine.h"

// What was measured, as every record of a benchmark names it.
typedef struct BenchSetting {
  const char *bench; // "train", "infer"
  const char *amp, *conv;
  bool tf32, full_masks;
  bool same_images; // on every rank
  int steps;        // measured, after half as many that are not
  bool profile;     // and a row per node
  double energy;    // of inference: and what each node takes when it runs for so many seconds; 0: not measured
  Trace *trace;     // of the steps that are timed node by node; NULL = none
} BenchSetting;

// What making a step brought to light, loader included: sums over the steps whose results came. Seconds; all but wait
// only of steps that are timed node by node.
typedef struct BenchStep {
  int images;                // that the batch held: slots may be empty
  double wait;               // for the loader
  double transfer;           // of the batch to the device
  double update;             // of the parameters; training
  double results;            // from what the device computed to what files hold; inference
  double pixels;             // of all masks; inference
  int counter[MAX_COUNTERS]; // the model's
} BenchStep;
typedef struct Stepper {
  // i counts from 0. Results come later; `wait` is for all of the steps so far.
  bool (*step)(void *context, int64_t i, bool wait, BenchStep *out, Err *err);
  // Does what(engine, argument) where the engine is another thread's; NULL: it is this one's.
  bool (*on_engine)(void *context, void (*what)(Engine *e, void *argument), void *argument, Err *err);
  void *context;
  Comm *comm;      // the ranks that make steps together; NULL: alone
  bool overlapped; // one step's time says nothing of its latency: as many are taken again, one at a time
} Stepper;

// Warms up, measures images per second, then takes a tenth as many steps node by node, for the time of each part, and
// prints the record on stdout, of the images of all ranks, where this is the first. Every rank calls it. False when a
// step failed.
bool benchmark_run(Engine *e, const BenchSetting *s, const Stepper *stepper, Err *err);
// The profiles of all graphs that ran timed, on stdout.
void benchmark_print_nodes(const Engine *e);
