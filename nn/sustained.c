#include "nn/sustained.h"
#include <math.h>
#include <time.h>
#include "base/clock.h"

enum {
  AHEAD = 32,         // runs that are queued while the meter is read
  WORKS_FOR = 4,      // times as long as a reading took, until the next: one may take longer than a run
  MAX_CALLS = 256,    // of a run
  STEPS_MISSED = 1000 // milliseconds without a step of the count: it is not counting
};
static const double run_seconds = 1e-3;

// Calls that are queued together, as one program where the device can record.
typedef struct Run {
  Device *dev;
  SustainedWork *queue;
  void *context, *program;
  int calls;
} Run;

static void run_once(const Run *r) {
  if (r->program)
    device_replay(r->dev, r->program);
  else
    for (int i = 0; i < r->calls; i++) r->queue(r->context);
}

// Seconds on the device's clock.
static double time_run(const Run *r, Mark *from, Mark *to) {
  const Timing *timing = r->dev->memory->timing;
  timing->mark(r->dev, from);
  run_once(r);
  timing->mark(r->dev, to);
  return timing->elapsed(r->dev, from, to);
}

// The first call of all may compile, and the first replay copies the program to the device.
static Run prepare(Device *dev, SustainedWork *queue, void *context, Mark *from, Mark *to) {
  Run r = {.dev = dev, .queue = queue, .context = context, .calls = 1};
  run_once(&r);
  const double once = time_run(&r, from, to);
  r.calls = once * MAX_CALLS < run_seconds ? MAX_CALLS : MAX((int)(run_seconds / once), 1);
  if (device_record(dev)) {
    for (int i = 0; i < r.calls; i++) queue(context);
    r.program = device_record_end(dev);
  }
  run_once(&r);
  device_sync(dev);
  return r;
}

static void rest(double seconds) {
  const struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
  nanosleep(&t, NULL);
}

// A device that is kept busy, and its meter.
typedef struct Busy {
  const Run *run;
  void *meter;
  void *done[AHEAD]; // a mark behind each of the last runs
  int64_t runs;
  MeterReading reading;
  double next; // now_seconds() before which the meter is not read again
  double mhz;  // sums over the readings
  int readings;
} Busy;

static void keep_busy(Busy *b) {
  Device *dev = b->run->dev;
  void *done = b->done[b->runs++ % AHEAD];
  device_mark_wait(dev, done);
  run_once(b->run);
  device_mark_set(dev, done);
  const double now = now_seconds();
  if (!b->meter || now < b->next || !dev->memory->timing->meter_read(b->meter, &b->reading)) return;
  b->next = now_seconds() + WORKS_FOR * (now_seconds() - now);
  b->mhz += b->reading.mhz;
  b->readings++;
}

// At least so long, then until the count goes up; false where it does not. `end`: when that was seen.
static bool busy_until_step(Busy *b, double seconds, double *end) {
  const double start = now_seconds();
  while (now_seconds() < start + seconds) keep_busy(b);
  const double before = b->reading.joules, limit = now_seconds() + 1e-3 * STEPS_MISSED;
  while (b->meter && b->reading.joules <= before && now_seconds() < limit) keep_busy(b);
  *end = now_seconds();
  return b->meter && b->reading.joules > before;
}

// The window's runs are those that are queued in it: they end so much later as they are ahead, at both ends.
static Sustained measure_busy(const Run *r, void *meter, const SustainedTimes *times, Mark *from, Mark *to) {
  const Timing *timing = r->dev->memory->timing;
  Busy b = {.run = r, .meter = meter};
  double begin, end;
  for (int i = 0; i < AHEAD; i++) b.done[i] = device_mark_open(r->dev);
  bool known = busy_until_step(&b, times->settle, &begin);
  const double joules = b.reading.joules;
  const int64_t runs = b.runs;
  b.mhz = b.readings = 0;
  timing->mark(r->dev, from);
  known &= busy_until_step(&b, times->window, &end);
  timing->mark(r->dev, to);
  Sustained s = {.calls = (b.runs - runs) * r->calls, .watts = NAN, .mhz = NAN};
  s.seconds = timing->elapsed(r->dev, from, to) / (double)s.calls;
  if (known) {
    s.watts = (b.reading.joules - joules) / (end - begin);
    if (b.mhz > 0) s.mhz = b.mhz / b.readings;
  }
  s.joules = s.watts * s.seconds;
  for (int i = 0; i < AHEAD; i++) device_mark_close(r->dev, b.done[i]);
  return s;
}

Sustained sustained_measure(Device *dev, void *meter, const SustainedTimes *times, SustainedWork *queue,
                            void *context) {
  Mark from = {0}, to = {0};
  Run r = prepare(dev, queue, context, &from, &to);
  rest(times->rest);
  const double cold = time_run(&r, &from, &to) / r.calls;
  Sustained s = measure_busy(&r, meter, times, &from, &to);
  s.cold = cold;
  if (r.program) device_forget(dev, r.program);
  dev->memory->timing->forget(dev, &from);
  dev->memory->timing->forget(dev, &to);
  return s;
}
