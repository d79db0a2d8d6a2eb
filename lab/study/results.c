#include "lab/study/results.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/machine.h"
#include "base/text.h"
#include "lab/study/found.h"
#include "lab/study/template.h"

// All of a line by one call of the system, as far as that takes it; a piece is cut off again.
static bool add_line(const StudyResults *r, const char *line, Err *err) {
  char *text = xasprintf("%s\n", line);
  const off_t begin = lseek(r->file, 0, SEEK_END);
  const size_t size = strlen(text);
  size_t done = 0;
  while (done < size) {
    const ssize_t n = write(r->file, text + done, size - done);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) done += (size_t)n;
  }
  free(text);
  if (done == size && fsync(r->file) == 0) return true;
  const int reason = errno;
  if (begin >= 0 && ftruncate(r->file, begin) != 0) return err_set(err, "cannot mend %s: %s", r->path, strerror(errno));
  return err_set(err, "cannot write %s: %s", r->path, strerror(reason));
}

// What stands behind the last newline goes. *plan: the text of the last plan in it; malloc'ed, NULL: there is none.
static bool mend(const StudyResults *r, char **plan, Err *err) {
  size_t size;
  *plan = NULL;
  char *text = file_read(r->path, &size, err);
  if (!text) return false;
  size_t whole = size;
  while (whole > 0 && text[whole - 1] != '\n') whole--;
  const bool ok = whole == size || ftruncate(r->file, (off_t)whole) == 0 ||
                  err_set(err, "cannot write %s: %s", r->path, strerror(errno));
  for (const char *at = text, *end; at < text + whole; at = end + 1) {
    end = memchr(at, '\n', (size_t)(text + whole - at));
    if (strncmp(at, "{\"kind\":\"plan\"", 14)) continue;
    StudyFound f = study_find(at, (size_t)(end - at), "text");
    free(*plan);
    *plan = f.text;
  }
  free(text);
  return ok;
}

bool study_results_open(StudyResults *r, const StudyPlan *p, const char *folder, Err *err) {
  *r = (StudyResults){.path = xasprintf("%s/results.jsonl", folder)};
  r->file = open(r->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (r->file < 0) return err_set(err, "cannot write %s: %s", r->path, strerror(errno));
  char *before;
  if (!mend(r, &before, err)) return false;
  const bool same = before && !strcmp(before, p->text.text);
  free(before);
  if (same) return true;
  Record j = {0};
  record_begin(&j);
  record_str(&j, "kind", "plan");
  record_str(&j, "file", p->text.path);
  record_str(&j, "text", p->text.text);
  record_origin(&j, NULL);
  const bool ok = add_line(r, record_end(&j), err);
  record_free(&j);
  return ok;
}

// By build/machine, which lies beside this program: it asks the GPU, and ends. Where it is not there, what the system
// tells. malloc'ed.
static char *ask_machine(void) {
  char self[4096], line[8192] = "";
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[MAX(n, 0)] = '\0';
  char *slash = strrchr(self, '/');
  if (slash) *slash = '\0';
  char *command = xasprintf("'%s/machine' 2>/dev/null", self);
  FILE *f = slash ? popen(command, "r") : NULL;
  const bool read = f && fgets(line, sizeof line, f);
  const bool ok = f && pclose(f) == 0 && read && *line == '{';
  free(command);
  StudyFound machine = study_find(line, strlen(line), "machine.cpu");
  free(machine.text);
  const char *begin = strstr(line, "\"machine\":{"), *end = begin ? strchr(begin, '}') : NULL;
  if (ok && machine.there && begin && end) return xasprintf("%.*s", (int)(end - begin - 9), begin + 10);
  Record j = {0};
  record_begin(&j);
  record_origin(&j, NULL);
  const char *text = strstr(record_end(&j), "\"machine\":{");
  char *host = xasprintf("%.*s", (int)strlen(text) - 11, text + 10);
  record_free(&j);
  return host;
}

static bool any_has(const StudyVerdict *v, const char *path) {
  for (int i = 0; i < v->num_records; i++) {
    StudyFound f = study_find(v->records[i], strlen(v->records[i]), path);
    free(f.text);
    if (f.there) return true;
  }
  return false;
}

// The origin is what the study knows itself: its own build's commit is none of the measured program's, and is only
// there where no record has one.
static void add_origin(StudyResults *r, const StudyVerdict *v, Record *j) {
  Record origin = {0};
  record_begin(&origin);
  record_origin(&origin, NULL);
  const char *text = record_end(&origin);
  StudyFound date = study_find(text, strlen(text), "date");
  record_str(j, "date", date.text);
  free(date.text);
  record_free(&origin);
  if (!any_has(v, "commit")) record_str(j, "commit", build_commit);
  if (any_has(v, "machine")) return;
  if (!r->machine) r->machine = ask_machine();
  record_raw(j, "machine", r->machine);
}

static void add_cell(const StudyPlan *p, const StudyCell *cell, Record *j) {
  Record settings = {0};
  record_begin(&settings);
  for (int s = 1; s < p->num_settings; s++)
    if (cell->value[s] >= 0 && !p->settings[s].path)
      record_str(&settings, p->settings[s].name, study_value_name(p, cell, s));
  record_str(j, "command", study_value_name(p, cell, STUDY_COMMAND));
  record_raw(j, "settings", record_end(&settings));
  record_free(&settings);
}

static void add_records(const StudyVerdict *v, Record *j) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fputc('[', f);
  for (int i = 0; i < v->num_records; i++) fprintf(f, "%s%s", i ? "," : "", v->records[i]);
  fputc(']', f);
  text_close(f);
  record_raw(j, "records", text);
  free(text);
}

bool study_results_add(StudyResults *r, const StudyPlan *p, const StudyCell *cell, int repeat, int order,
                       const char *name, const StudyOutcome *o, const StudyVerdict *v, Err *err) {
  Record j = {0};
  char *ran = study_template_kept(p, cell, repeat);
  const int sweep = study_swept(p, cell);
  record_begin(&j);
  record_str(&j, "kind", "run");
  add_cell(p, cell, &j);
  record_int(&j, "repeat", repeat);
  record_str(&j, "state", study_states[v->state]);
  record_str(&j, "why", v->why);
  record_int(&j, "exit", o->exit);
  record_int(&j, "signal", o->signal);
  record_num(&j, "seconds", o->seconds);
  record_int(&j, "seed", p->seed);
  record_int(&j, "order", order);
  record_str(&j, "ran", ran);
  if (sweep != STUDY_COMMAND) record_str(&j, "swept", p->settings[sweep].values[cell->value[sweep]].text);
  record_str(&j, "files", name);
  add_origin(r, v, &j);
  add_records(v, &j);
  const bool ok = add_line(r, record_end(&j), err);
  record_free(&j);
  free(ran);
  return ok;
}

bool study_results_leave(StudyResults *r, const StudyPlan *p, const StudyCell *cell, int repeat, const char *name,
                         const char *why, Err *err) {
  Record j = {0};
  record_begin(&j);
  record_str(&j, "kind", "left");
  add_cell(p, cell, &j);
  record_int(&j, "repeat", repeat);
  record_str(&j, "why", why);
  record_str(&j, "files", name);
  const bool ok = add_line(r, record_end(&j), err);
  record_free(&j);
  return ok;
}

void study_results_close(StudyResults *r) {
  if (r->file >= 0) close(r->file);
  free(r->path);
  free(r->machine);
  *r = (StudyResults){.file = -1};
}
