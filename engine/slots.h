// Slots: host memory for the results of training steps that are still in flight.
#pragma once
#include "engine/reduction.h"
#include "models/model.h"

// Number of steps with separate slots: one being handed out, two that the device may still be computing, and one whose
// batch is being staged.
enum { STEPS_UNDER_WAY = 4 };

typedef struct StepSlot { // the results of one step
  void *real;             // page-locked; its contents:
  int *count;             // page-locked: the model's counters
  uint64_t *step;         // page-locked: the step's number
  int *index;             // [images] of the data set
  double forward_seconds, backward_seconds, update_seconds, transfer_seconds, wait_seconds;
} StepSlot;

// Indices of a slot's reals.
enum {
  REAL_STATS,
  REAL_SCALE = REAL_STATS + 2,
  REAL_HYPER = REAL_SCALE + 3,
  REAL_TOWARDS = REAL_HYPER + 4, // by which share the averages move
  REAL_ASK = REAL_TOWARDS + 1,   // this rank's values to be reduced: AGREED_STOP, AGREED_VOID
  REAL_AGREED = REAL_ASK + AGREED - AGREED_STOP,
  SLOT_REALS = REAL_AGREED + AGREED
};

size_t slots_bytes(const Device *dev); // of all
// Allocates slot[STEPS_UNDER_WAY] for steps of `images` images; false with a message if out of memory.
bool slots_allocate(StepSlot *slot, Device *dev, int images, Err *err);
void slots_free(StepSlot *slot, Device *dev); // also if all zero, or after slots_allocate failed
// The address and the value of real i of a slot.
void *slot_at(const Device *dev, const StepSlot *s, int i);
double slot_real(const Device *dev, const StepSlot *s, int i);
void slot_set(const Device *dev, StepSlot *s, int i, float v);
