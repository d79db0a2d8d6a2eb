// A folder as a kill or a power cut leaves it, by the calls that changed it.
#pragma once
#include "test/harness/file_calls.h"

typedef struct CrashState {
  size_t calls;    // made before
  int64_t part;    // bytes of the next call, a write, that were made, too
  bool is_power;   // a power cut: of the calls that no fsync has put on disk,
  bool older;      // those before the last four are there,
  unsigned subset; // and these of the last four, as bits, the last call's the lowest
  uint64_t digest; // of the folder
} CrashState;

typedef struct CrashStates {
  CrashState *state;
  size_t n, cap;
  size_t all; // with those whose folder is that of an earlier one
} CrashStates;

// Adds the states of a crash after `from` to `to` calls, and in a write: with 1 byte, half and all but the last byte of
// it. An fsync of a file puts its bytes on disk and not its names, that of a folder the names in it; until then every
// subset of calls may be on disk. States with the folder of an earlier one of this call are left out.
void crash_states_add(CrashStates *s, const FileCalls *c, size_t from, size_t to);
// Makes the folder. Weights are linked from the folder `cache`, so nobody may write into them.
void crash_state_make(const CrashState *s, const FileCalls *c, const char *folder, const char *cache);
void crash_state_print(const CrashState *s, const FileCalls *c);
