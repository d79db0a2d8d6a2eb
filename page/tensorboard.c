#include "page/tensorboard.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json_lines.h"
#include "base/log_read.h"
#include "base/proto.h"
#include "base/run_folder.h"

// Field numbers of tensorboard/compat/proto/{event,summary}.proto.
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2 };

// ---- records --------------------------------------------------------------------------------------------------------

// CRC-32C (Castagnoli), rotated and shifted as TensorFlow's record_writer.h has it.
static uint32_t masked_crc(const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n; i++) {
    crc ^= p[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void write_number(FILE *f, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) fputc((int)(value >> 8 * i & 255), f);
}

// Its length, the length's checksum, the event, the event's checksum. Frees the event.
static void write_event(FILE *f, Proto *event) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)event->n >> 8 * i);
  fwrite(length, 1, sizeof length, f);
  write_number(f, masked_crc(length, sizeof length), 4);
  fwrite(event->bytes, 1, event->n, f);
  write_number(f, masked_crc(event->bytes, event->n), 4);
  proto_free(event);
}

// ---- a log ----------------------------------------------------------------------------------------------------------

typedef struct EventWriter {
  FILE *f;
  double begun;        // Unix time
  double before, last; // seconds of the sessions before; of the last record, in its session
} EventWriter;

static void add_scalar(Proto *summary, const char *kind, const char *name, double value) {
  Proto scalar = {0};
  char *tag = xasprintf("%s/%s", kind, name);
  proto_text(&scalar, VALUE_TAG, tag);
  proto_float(&scalar, VALUE_SIMPLE, (float)value);
  proto_message(summary, SUMMARY_VALUE, &scalar);
  free(tag);
}

// The member `at` of an evaluation's clock: when its scores were done, in seconds since its session began.
static double clock_at(Json *j) {
  double at = 0;
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      const bool is_at = !strcmp(key, "at");
      if (is_at && json_peek(j) == JSON_NUMBER)
        at = json_number(j);
      else
        json_skip(j);
    }
  return at;
}

// Members that are not figures of a run's progress.
static bool is_curve(const char *name) { return strcmp(name, "scored_set") && strcmp(name, "max_dets"); }

// The record of a step: its numbers are scalars of one event. A resumed run's seconds begin again at 0.
static bool write_record(Json *j, void *context) {
  EventWriter *w = context;
  Proto event = {0}, summary = {0};
  double step = 0, seconds = -1, at = 0;
  char *kind = xstrdup("run"), *name = NULL;
  const char *key;
  if (json_begin_object(j))
    while ((key = json_key(j))) {
      free(name);
      name = xstrdup(key);
      const JsonType type = json_peek(j);
      if (type == JSON_STRING && !strcmp(name, "kind")) {
        free(kind);
        kind = xstrdup(json_string(j, NULL));
      } else if (type == JSON_OBJECT && !strcmp(name, "clock")) {
        at = clock_at(j);
      } else if (type != JSON_NUMBER) {
        json_skip(j);
      } else {
        const double value = json_number(j);
        if (!strcmp(name, "step"))
          step = value;
        else if (!strcmp(name, "seconds"))
          seconds = value;
        else if (is_curve(name))
          add_scalar(&summary, kind, name, value);
      }
    }
  if (seconds >= 0) {
    if (seconds < w->last) w->before += w->last;
    w->last = at = seconds;
  }
  if (summary.n) {
    proto_double(&event, EVENT_TIME, w->begun + w->before + at);
    proto_int(&event, EVENT_STEP, (int64_t)step);
    proto_message(&event, EVENT_SUMMARY, &summary);
    write_event(w->f, &event);
  }
  free(name);
  free(kind);
  return true;
}

// When a log began, if it was written last with the last of its seconds, and no time passed between its sessions.
static double log_begun(const char *log) {
  static const char *const key[] = {"seconds"};
  struct stat st;
  Curve seconds = {0};
  double begun = stat(log, &st) == 0 ? (double)st.st_mtime : 0;
  if (curves_read(log, key, 1, &seconds, NULL))
    for (int i = 0; i < seconds.n; i++)
      if (i + 1 == seconds.n || seconds.y[i + 1] < seconds.y[i]) begun -= seconds.y[i];
  curves_free(&seconds, 1);
  return begun;
}

static bool write_log(FILE *f, const char *log, Err *err) {
  EventWriter w = {.f = f, .begun = log_begun(log)};
  Proto version = {0};
  proto_double(&version, EVENT_TIME, w.begun);
  proto_text(&version, EVENT_VERSION, "brain.Event:2");
  write_event(f, &version);
  return json_lines(log, write_record, &w, err);
}

// One folder, inside of the one that is written. Owned.
static char *folder_name(const char *run) {
  char *name = xstrdup(run);
  for (size_t n = strlen(name); n > 0 && name[n - 1] == '/'; n--) name[n - 1] = '\0';
  for (char *p = name; *p; p++)
    if (*p == '/') *p = '-';
  if (strcmp(name, "") && strcmp(name, ".") && strcmp(name, "..")) return name;
  free(name);
  return xstrdup("run");
}

static bool write_run(const char *dir, const PageRun *run, Err *err) {
  char *log = run->log ? xstrdup(run->log) : xasprintf("%s/" RUN_LOG, run->folder);
  char *name = folder_name(run->name), *folder = xasprintf("%s/%s", dir, name);
  char *path = xasprintf("%s/events.out.tfevents.maskrcnn", folder);
  AtomicFile file;
  bool ok = dirs_make(folder, err) && file_begin(&file, path, err);
  if (ok && !write_log(file.f, log, err)) {
    file_abort(&file);
    ok = false;
  } else if (ok) {
    ok = file_commit(&file, err);
  }
  free(path);
  free(folder);
  free(name);
  free(log);
  return ok;
}

static bool names_differ(const PageRun *run, int n, Err *err) {
  bool differ = true;
  for (int i = 1; i < n && differ; i++) {
    char *name = folder_name(run[i].name);
    for (int k = 0; k < i && differ; k++) {
      char *other = folder_name(run[k].name);
      if (!strcmp(name, other)) differ = err_set(err, "two runs are called %s; name them, as in first=DIR", name);
      free(other);
    }
    free(name);
  }
  return differ;
}

bool tensorboard_write(const char *dir, const PageRun *run, int n, Err *err) {
  if (!names_differ(run, n, err)) return false;
  for (int i = 0; i < n; i++)
    if (!write_run(dir, &run[i], err)) return false;
  return true;
}
