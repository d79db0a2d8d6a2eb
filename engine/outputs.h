// Outputs: how a network's results are copied to the host. Each model's row points to its implementation.
#pragma once
#include "models/model.h"

struct Engine; // engine/engine.h

// For an engine that runs inference.
typedef struct Outputs {
  // The host memory of results: `plan` adds its rows to Engine.memory and keeps its data in Engine.results; `allocate`
  // allocates it, false with a message if out of memory; `close` frees both, at any point.
  void (*plan)(struct Engine *e);
  bool (*allocate)(struct Engine *e, Err *err);
  // For engine_make_room; `pixels` per image; false if out of memory.
  bool (*make_room)(struct Engine *e, int64_t pixels);
  size_t (*room_bytes)(const struct Engine *e, int64_t pixels); // that it would take more than there is now
  void (*close)(struct Engine *e);
  // Approximate memory of the results of a set of images with the maximum of detections, and of their scores.
  size_t (*result_bytes)(const ModelConfig *c, int images);
  // Queues the computations on the network's results; part of the recorded program.
  void (*queue)(struct Engine *e, const Network *n);
  const char *pixels; // name, in a benchmark's record, of an image's pixels in all masks; NULL: no masks
} Outputs;
