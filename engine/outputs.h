// Outputs: how a network's results are copied to the host. Each model's row points to its implementation.
#pragma once
#include "models/model.h"

struct Engine; // engine/engine.h

// Of an engine that infers.
typedef struct Outputs {
  // The memory in which results are made on the host: `plan` adds its rows to Engine.memory and keeps what it knows in
  // Engine.results; `allocate` takes it, false with a message when memory is out; `close` frees both, whatever was done
  // before.
  void (*plan)(struct Engine *e);
  bool (*allocate)(struct Engine *e, Err *err);
  bool (*make_room)(struct Engine *e, int64_t pixels); // for engine_make_room: of an image; false when memory is out
  void (*close)(struct Engine *e);
  size_t (*image_bytes)(const ModelConfig *c); // about what the results of an image take, with all it may have
  // Queues what is computed of the network's results; part of the recorded program.
  void (*queue)(struct Engine *e, const Network *n);
  const char *pixels; // how a benchmark's record calls an image's pixels in all masks; NULL: there are no masks
} Outputs;
