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
  double begun; // Unix time
} EventWriter;

static void add_scalar(Proto *summary, const char *kind, const char *name, double value) {
  Proto scalar = {0};
  char *tag = xasprintf("%s/%s", kind, name);
  proto_text(&scalar, VALUE_TAG, tag);
  proto_float(&scalar, VALUE_SIMPLE, (float)value);
  proto_message(summary, SUMMARY_VALUE, &scalar);
  free(tag);
}

// The record of a step: its numbers are scalars of one event.
static bool write_record(Json *j, void *context) {
  const EventWriter *w = context;
  Proto event = {0}, summary = {0};
  double step = 0, seconds = 0;
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
      } else if (type != JSON_NUMBER) {
        json_skip(j);
      } else {
        const double value = json_number(j);
        if (!strcmp(name, "step"))
          step = value;
        else if (!strcmp(name, "seconds"))
          seconds = value;
        else
          add_scalar(&summary, kind, name, value);
      }
    }
  if (summary.n) {
    proto_double(&event, EVENT_TIME, w->begun + seconds);
    proto_int(&event, EVENT_STEP, (int64_t)step);
    proto_message(&event, EVENT_SUMMARY, &summary);
    write_event(w->f, &event);
  }
  free(name);
  free(kind);
  return true;
}

// When a log began: its seconds count from there, and it was written last with the last of them.
static double log_begun(const char *log) {
  static const char *const key[] = {"seconds"};
  struct stat st;
  Curve seconds = {0};
  double begun = stat(log, &st) == 0 ? (double)st.st_mtime : 0;
  if (curves_read(log, key, 1, &seconds, NULL) && seconds.n) begun -= seconds.y[seconds.n - 1];
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

bool tensorboard_write(const char *dir, const PageRun *run, int n, Err *err) {
  for (int i = 0; i < n; i++)
    if (!write_run(dir, &run[i], err)) return false;
  return true;
}
