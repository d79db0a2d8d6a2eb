// Names and keys in our checkpoint files, for writers and readers.
#pragma once
#include "engine/snapshot.h"

static const char state_format[] = "maskrcnn.c 1";

// Prefixes of tensor names.
static const char *const state_prefix[] = {
    [SNAPSHOT_MASTER] = "", [SNAPSHOT_MOMENTUM] = "momentum.", [SNAPSHOT_SECOND] = "second_moment."};
