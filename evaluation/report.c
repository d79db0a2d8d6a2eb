#include "evaluation/report.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "base/file.h"
#include "base/regular.h"
#include "base/run_folder.h"

// ---- in memory ------------------------------------------------------------------------------------------------------

ReportChart *report_chart_add(ReportCharts *c, const char *title) {
  c->item = xrealloc(c->item, ((size_t)c->n + 1) * sizeof *c->item);
  c->item[c->n] = (ReportChart){.title = xstrdup(title)};
  return &c->item[c->n++];
}

ReportCurve *report_curve_add(ReportChart *c, const char *label, int points) {
  CHECK(c->n < REPORT_CURVES);
  c->curve[c->n] = (ReportCurve){.label = label,
                                 .x = xcalloc((size_t)points, sizeof(double)),
                                 .y = xcalloc((size_t)points, sizeof(double)),
                                 .n = points};
  return &c->curve[c->n++];
}

static void free_charts(ReportCharts *c) {
  for (int i = 0; i < c->n; i++) {
    for (int k = 0; k < c->item[i].n; k++) {
      free(c->item[i].curve[k].x);
      free(c->item[i].curve[k].y);
    }
    free(c->item[i].title);
  }
  free(c->item);
}

void report_free(EvaluationReport *r) {
  for (int i = 0; i < r->categories; i++) free(r->category[i].name);
  free(r->category);
  for (int i = 0; i < r->columns; i++) free(r->column[i]);
  free_charts(&r->charts);
  free_charts(&r->category_charts);
  free(r->rule);
  for (int i = 0; r->confusion.name && i < r->confusion.classes; i++) free((char *)r->confusion.name[i]);
  free((void *)r->confusion.name);
  free((void *)r->confusion.count);
  free((void *)r->confusion.cell);
  confusion_counts_free(&r->scores.counts);
  for (int i = 0; i < r->pictures; i++) {
    free(r->picture[i].file);
    free(r->picture[i].caption);
    free(r->picture[i].truth.bytes);
    free(r->picture[i].found.bytes);
  }
  free(r->picture);
  *r = (EvaluationReport){0};
}

// ---- writing --------------------------------------------------------------------------------------------------------

// Writes a JSON string: takes it from an object with one member.
static void write_string(FILE *f, const char *text) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "", text);
  fputs(r.text + strlen("{\"\":"), f);
  record_free(&r);
}

static void write_number(FILE *f, double value) {
  char text[NUMBER_TEXT];
  fputs(isfinite(value) ? number_text(value, text) : "null", f);
}

static void write_numbers(FILE *f, const double *value, int n) {
  fputc('[', f);
  for (int i = 0; i < n; i++) {
    if (i) fputc(',', f);
    write_number(f, value[i]);
  }
  fputc(']', f);
}

static void write_metrics(FILE *f, const char **comma, const Metrics *m) {
  for (int i = 0; m && i < m->n; i++) {
    fputs(*comma, f);
    write_string(f, m->metric[i].name);
    fputc(':', f);
    write_number(f, m->metric[i].value);
    *comma = ",";
  }
}

static void write_categories(FILE *f, const EvaluationReport *r) {
  fputs(",\n\"columns\":[", f);
  for (int i = 0; i < r->columns; i++) {
    if (i) fputc(',', f);
    write_string(f, r->column[i]);
  }
  fputs("],\n\"categories\":[", f);
  for (int k = 0; k < r->categories; k++) {
    fputs(k ? ",\n[" : "[", f);
    write_string(f, r->category[k].name);
    for (int i = 0; i < r->columns; i++) {
      fputc(',', f);
      write_number(f, r->category[k].value[i]);
    }
    fputc(']', f);
  }
  fputc(']', f);
}

static void write_chart(FILE *f, const ReportChart *c) {
  fputs("{\"title\":", f);
  write_string(f, c->title);
  fputs(",\"x\":\"recall\",\"unit\":\"precision\",\"curves\":[", f);
  for (int i = 0; i < c->n; i++) {
    fputs(i ? ",[" : "[", f);
    write_string(f, c->curve[i].label);
    fputc(',', f);
    write_numbers(f, c->curve[i].x, c->curve[i].n);
    fputc(',', f);
    write_numbers(f, c->curve[i].y, c->curve[i].n);
    fputc(']', f);
  }
  fputs("]}", f);
}

static void write_charts(FILE *f, const char *key, const ReportCharts *c) {
  fprintf(f, ",\n\"%s\":[", key);
  for (int i = 0; i < c->n; i++) {
    if (i) fputs(",\n", f);
    write_chart(f, &c->item[i]);
  }
  fputc(']', f);
}

static void write_scores(FILE *f, const ReportScores *s, const Confusion *c) {
  fputs(",\"scores\":", f);
  write_numbers(f, s->score, s->n);
  fputs(",\"report_score\":", f);
  write_number(f, s->least);
  fputs(",\"opens_at\":", f);
  write_number(f, s->opens_at);
  fputs(",\"highest_score\":", f);
  write_number(f, s->highest);
  fputs(",\"objects\":[", f);
  ClassFigures *figures = confusion_figures(c);
  for (int i = 0; i < c->classes - 1; i++) fprintf(f, "%s%lld", i ? "," : "", (long long)figures[i].images);
  free(figures);
  fputc(']', f);
}

// Writes a cell with its count, or with the counts at each score up to the last that is not 0. False, writing nothing,
// if all are 0. `scores` is 0 for one count.
static bool write_cell(FILE *f, const char *comma, int64_t cell, int classes, const int64_t *count, int scores) {
  int n = MAX(scores, 1);
  while (n > 0 && !count[n - 1]) n--;
  if (!n) return false;
  fprintf(f, "%s[%d,%d,%s", comma, (int)(cell / classes), (int)(cell % classes), scores ? "[" : "");
  for (int k = 0; k < n; k++) fprintf(f, "%s%lld", k ? "," : "", (long long)count[k]);
  fputs(scores ? "]]" : "]", f);
  return true;
}

static void write_confusion(FILE *f, const Confusion *c, const ReportScores *s) {
  const char *comma = "";
  if (!c->count) {
    fputs(",\n\"confusion\":null", f);
    return;
  }
  fprintf(f, ",\n\"confusion\":{\"background\":%s,\"names\":[", c->background ? "true" : "false");
  for (int i = 0; i < c->classes; i++) {
    char number[CLASS_NUMBER];
    if (i) fputc(',', f);
    write_string(f, confusion_name(c, i, number));
  }
  fputc(']', f);
  if (s->n) write_scores(f, s, c);
  fputs(",\"cells\":[", f);
  const int64_t *cell = s->n ? s->counts.cell : c->cell, *count = s->n ? s->counts.count : c->count;
  const size_t cells = s->n ? s->counts.cells : c->cells;
  for (size_t i = 0; i < cells; i++, count += MAX(s->n, 1))
    if (write_cell(f, comma, cell[i], c->classes, count, s->n)) comma = ",";
  fputs("]}", f);
}

// ---- pictures -------------------------------------------------------------------------------------------------------

typedef struct PictureNames { // names of a report's files, relative to its folder; NULL: none
  char *truth, *found;
} PictureNames;

static bool write_picture(const ReportFile *to, DIR *folder, int i, const char *what, const Jpeg *jpeg, char **name,
                          Err *err) {
  if (!jpeg->bytes) return true;
  *name = xasprintf(RUN_PICTURES "/%s-%02d-%s.jpg", to->stem, i + 1, what);
  return folder_write_file(folder, *name + sizeof RUN_PICTURES, jpeg->bytes, jpeg->size) ||
         err_set(err, "cannot write %s/%s: %s", to->folder, *name, strerror(errno));
}

// Their names are on disk before the evaluation lists them.
static bool write_pictures(const ReportFile *to, const EvaluationReport *r, PictureNames *names, Err *err) {
  if (!r->pictures) return true;
  char *path = xasprintf("%s/" RUN_PICTURES, to->folder);
  DIR *folder = dirs_make(path, err) ? folder_open_own(path, err) : NULL;
  bool ok = folder;
  for (int i = 0; ok && i < r->pictures; i++)
    ok = write_picture(to, folder, i, "truth", &r->picture[i].truth, &names[i].truth, err) &&
         write_picture(to, folder, i, "found", &r->picture[i].found, &names[i].found, err);
  if (ok && !durable_sync_folder(dirfd(folder))) ok = err_set(err, "cannot write %s: %s", path, strerror(errno));
  if (folder) closedir(folder);
  free(path);
  return ok;
}

static bool is_one_of(const PictureNames *names, int n, const char *name) {
  for (int i = 0; i < n; i++) {
    const char *const both[] = {names[i].truth, names[i].found};
    for (int k = 0; k < 2; k++)
      if (both[k] && !strcmp(both[k] + sizeof RUN_PICTURES, name)) return true; // after the folder and its slash
  }
  return false;
}

// Whether this is the name of a picture of the series.
static bool is_of_series(const char *name, const char *series) {
  const char *end = strrchr(name, '-');
  static const char *const ends[] = {"-truth.jpg", "-found.jpg", "-truth.jpg.tmp", "-found.jpg.tmp"}; // of a killed run
  if (strncmp(name, series, strlen(series)) || !end) return false;
  for (int i = 0; i < COUNT(ends); i++)
    if (!strcmp(end, ends[i])) return true;
  return false;
}

static void remove_pictures(const char *folder, const char *series, const PictureNames *but, int n) {
  char *path = xasprintf("%s/" RUN_PICTURES, folder);
  DIR *dir = folder_open_own(path, NULL);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (is_of_series(entry->d_name, series) && !is_one_of(but, n, entry->d_name))
      unlinkat(dirfd(dir), entry->d_name, 0);
  if (dir) closedir(dir);
  free(path);
}

static void list_pictures(FILE *f, const EvaluationReport *r, const PictureNames *names) {
  fputs(",\n\"pictures\":[", f);
  for (int i = 0; i < r->pictures; i++) {
    const ReportPicture *p = &r->picture[i];
    const char *const part[] = {p->group, p->file, p->caption, names[i].truth, names[i].found};
    fputs(i ? ",\n[" : "[", f);
    for (int k = 0; k < COUNT(part); k++) {
      if (k) fputc(',', f);
      write_string(f, part[k]);
    }
    fputc(']', f);
  }
  fputc(']', f);
}

// ---- the file -------------------------------------------------------------------------------------------------------

static bool write_file(const ReportFile *to, const EvaluationReport *r, const PictureNames *names, Err *err) {
  AtomicFile out;
  const char *comma = "";
  char *path = xasprintf("%s/%s", to->folder, to->name);
  const bool ok = file_begin(&out, path, err);
  free(path);
  if (!ok) return false;
  FILE *f = out.f;
  const Metrics *m = to->scores;
  fprintf(f, "%s,\"images\":%d,\"left_out\":%d,", to->head->text, m->images, m->left_out);
  if (m->max_dets) fprintf(f, "\"max_dets\":%d,", m->max_dets);
  fputs("\"rule\":", f);
  write_string(f, r->rule);
  fputs(",\n\"metrics\":{", f);
  write_metrics(f, &comma, to->before);
  write_metrics(f, &comma, to->scores);
  fputc('}', f);
  write_categories(f, r);
  write_charts(f, "panels", &r->charts);
  write_charts(f, "category_panels", &r->category_charts);
  write_confusion(f, &r->confusion, &r->scores);
  list_pictures(f, r, names);
  fputs("}\n", f);
  return file_commit(&out, err);
}

bool report_write(const ReportFile *to, const EvaluationReport *r, Err *err) {
  PictureNames *names = xcalloc((size_t)r->pictures, sizeof *names);
  const bool ok = write_pictures(to, r, names, err) && write_file(to, r, names, err);
  if (ok) remove_pictures(to->folder, to->series, names, r->pictures);
  for (int i = 0; i < r->pictures; i++) {
    free(names[i].truth);
    free(names[i].found);
  }
  free(names);
  return ok;
}

void report_remove(const char *folder, const char *name, const char *series) {
  char *path = xasprintf("%s/%s", folder, name);
  unlink(path);
  free(path);
  remove_pictures(folder, series, NULL, 0);
}

int64_t report_step(const char *path) {
  int64_t step = -1;
  char line[64] = "";
  FILE *f = regular_read(path, NULL);
  if (!f) return -1;
  long long found;
  if (fgets(line, sizeof line, f) && sscanf(line, "{\"step\":%lld", &found) == 1) step = found;
  fclose(f);
  return step;
}
