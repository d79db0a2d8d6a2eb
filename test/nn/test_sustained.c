// Catches sustained speeds and energies computed from the wrong steps.
#include <math.h>
#include "base/clock.h"
#include "nn/sustained.h"
#include "test/harness/test.h"

// A hundred watts, counted in steps of 20 ms, as a GPU counts them.
static const double made_up_watts = 100, made_up_step = 0.02;
static double last_look, longest_gap; // between two looks
static void look(double now) {
  longest_gap = last_look > 0 ? MAX(longest_gap, now - last_look) : 0;
  last_look = now;
}
static bool made_up_read(void *meter, MeterReading *r) {
  const double now = now_seconds();
  look(now);
  *r = (MeterReading){made_up_watts * made_up_step * floor(now / made_up_step), *(const int *)meter};
  return true;
}
static bool stopped_read(void *meter, MeterReading *r) {
  *r = (MeterReading){5, *(const int *)meter};
  return true;
}

typedef struct Work {
  double seconds;
  int calls;
} Work;
static void work(void *context) {
  Work *w = context;
  w->calls++;
  for (const double end = now_seconds() + w->seconds; now_seconds() < end;) continue;
}

static Sustained measure(Work *w, bool (*read)(void *, MeterReading *), int mhz) {
  static const SustainedTimes times = {.rest = 0.01, .settle = 0.02, .window = 0.3};
  Sustained s = {0};
  Err err;
  Device *cpu = device_open("cpu", &err);
  if (!EXPECT(cpu != NULL)) return s;
  Memory memory = *cpu->memory;
  Timing timing = *memory.timing;
  timing.meter_read = read;
  memory.timing = &timing;
  Device metered = *cpu;
  metered.memory = &memory;
  s = sustained_measure(&metered, read ? &mhz : NULL, &times, work, w);
  device_close(cpu);
  return s;
}

// A step happens between two looks, and the clock is looked at before a third: either end of the 0.3 s is late by two
// gaps at most.
TEST(sustained_reads_the_meter_at_its_steps) {
  Work w = {.seconds = 2e-4};
  last_look = 0;
  const Sustained s = measure(&w, made_up_read, 1500);
  EXPECT(s.calls > 1 && s.calls < w.calls);
  EXPECT(s.seconds >= w.seconds && s.cold >= w.seconds);
  look(now_seconds());
  EXPECT(s.seconds * s.calls >= 0.3 - longest_gap);
  EXPECT(fabs(s.watts / made_up_watts - 1) <= 2 * longest_gap / 0.3);
  EXPECT(s.joules == s.watts * s.seconds);
  EXPECT(s.mhz == 1500);
}

TEST(sustained_without_a_meter_tells_the_time) {
  Work w = {.seconds = 2e-3};
  const Sustained s = measure(&w, NULL, 0);
  EXPECT(s.seconds >= w.seconds && s.calls >= 2);
  EXPECT(isnan(s.watts) && isnan(s.joules) && isnan(s.mhz));
}

TEST(sustained_knows_a_clock_that_the_meter_tells) {
  Work w = {.seconds = 2e-4};
  const Sustained s = measure(&w, made_up_read, 0);
  EXPECT(s.watts > 0 && isnan(s.mhz));
}

// Never again after a second, whoever keeps the count.
TEST(sustained_does_not_believe_a_meter_that_stands) {
  Work w = {.seconds = 1e-3};
  const Sustained s = measure(&w, stopped_read, 1500);
  EXPECT(s.seconds >= w.seconds);
  EXPECT(isnan(s.watts) && isnan(s.joules));
}
