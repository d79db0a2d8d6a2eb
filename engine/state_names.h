// Names in our checkpoint files, for writers and readers.
#pragma once
#include "engine/snapshot.h"

// Prefixes of tensor names.
static const char *const state_prefix[] = {
    [SNAPSHOT_MASTER] = "", [SNAPSHOT_MOMENTUM] = "momentum.", [SNAPSHOT_SECOND] = "second_moment."};
