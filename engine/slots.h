// Slots: host memory for the results of training steps that are still in flight.
#pragma once
#include "engine/reduction.h"
#include "models/model.h"

// Steps whose results the host keeps apart: one that it hands out, two that the device may still compute, and one whose
// batch is being staged.
enum { STEPS_UNDER_WAY = 4 };

typedef struct StepSlot { // of one step
  void *real;             // page-locked; what it holds:
  int *count;             // page-locked: the model's counters
  uint64_t *step;         // page-locked: its number
  int *index;             // [images] of the data set
  double forward_seconds, backward_seconds, update_seconds, transfer_seconds, wait_seconds;
} StepSlot;

// What a slot's reals are.
enum {
  REAL_STATS,
  REAL_SCALE = REAL_STATS + 2,
  REAL_HYPER = REAL_SCALE + 3,
  REAL_ASK = REAL_HYPER + 4, // of this rank, by index into the reduced values: AGREED_STOP, AGREED_VOID
  REAL_AGREED = REAL_ASK + AGREED - AGREED_STOP,
  SLOT_REALS = REAL_AGREED + AGREED
};

size_t slots_bytes(const Device *dev); // of all
// slot[STEPS_UNDER_WAY], for steps of so many images; false with a message when memory is out.
bool slots_allocate(StepSlot *slot, Device *dev, int images, Err *err);
void slots_free(StepSlot *slot, Device *dev); // all zero or whatever slots_allocate left
// Real i of a slot, from REAL_STATS on: where it stands, and its value.
void *slot_at(const Device *dev, const StepSlot *s, int i);
double slot_real(const Device *dev, const StepSlot *s, int i);
void slot_set(const Device *dev, StepSlot *s, int i, float v);
