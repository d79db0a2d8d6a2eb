// For engine/engine.c: what engine/step.c needs of it when an engine is opened and closed.
#pragma once
#include "engine/engine.h"

size_t slots_bytes(const Engine *e);
bool slots_allocate(Engine *e, Err *err); // false when memory is out
void slots_free(Engine *e);
void measure_update(Engine *e);         // workspace of what a step does outside its graph
void queue_step(Engine *e, Network *n); // forward, backward and the update, on inputs that the device has
