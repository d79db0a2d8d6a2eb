// The parts of a training step, for code that times them. engine/engine.h runs whole steps.
#pragma once
#include "engine/engine.h"

void queue_step(Engine *e, Network *n); // forward, backward and the update, on inputs that are on the device
