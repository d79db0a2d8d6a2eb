// Benchmark: step times and their breakdown.
#pragma once
#include "base/trace.h"
#include "engine/engine.h"

// What was measured: the members that every record of a benchmark has.
typedef struct BenchSetting {
  const char *bench; // "train", "infer"
  const char *amp, *conv;
  bool tf32, full_masks;
  bool same_images; // every rank loads the same images
  int steps;        // measured steps, after half as many for warm-up
  bool profile;     // also print a row per node
  double energy;    // inference: also measure each node's energy, running it for this many seconds; 0: not measured
  Trace *trace;     // receives the steps that are timed node by node; NULL = none
} BenchSetting;

// Measurements of steps, loader included: sums over the steps whose results have arrived, in seconds. All times except
// `wait` are only of steps that are timed node by node.
typedef struct BenchStep {
  int images;                // images in the batch; slots may be empty
  double wait;               // for the loader
  double transfer;           // copying the batch to the device
  double update;             // updating the parameters; training
  double results;            // converting the device's results to those of files; inference
  double pixels;             // pixels of all masks; inference
  int counter[MAX_COUNTERS]; // the model's counters
} BenchStep;
typedef struct Stepper {
  // Makes step i, counted from 0. Results may arrive later; `wait`: waits for those of all steps so far.
  bool (*step)(void *context, int64_t i, bool wait, BenchStep *out, Err *err);
  // Calls what(engine, argument) in the engine's thread; NULL: the engine belongs to this thread.
  bool (*on_engine)(void *context, void (*what)(Engine *e, void *argument), void *argument, Err *err);
  void *context;
  Comm *comm; // the ranks that make steps together; NULL: a single rank
  // Steps overlap, so their time is not their latency: latency is measured in as many further steps, one at a time.
  bool overlapped;
} Stepper;

// Warms up, measures images per second, then times a tenth as many steps node by node, for the time of each part. Rank
// 0 prints the record, for the images of all ranks, on stdout. Every rank calls it. False if a step failed.
bool benchmark_run(Engine *e, const BenchSetting *s, const Stepper *stepper, Err *err);
// Prints the profiles of all graphs that were timed, on stdout.
void benchmark_print_nodes(const Engine *e);
