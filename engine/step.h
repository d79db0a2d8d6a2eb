// What a training step queues, for who times its parts. The steps themselves are engine/engine.h's.
#pragma once
#include "engine/engine.h"

void queue_step(Engine *e, Network *n); // forward, backward and the update, on inputs that the device has
