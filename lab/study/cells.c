#include "lab/study/cells.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "base/text.h"

void study_cells_add(StudyCells *c, const StudyCell *cell, bool skipped) {
  const size_t before = c->cap;
  array_reserve((void **)&c->cells, &c->cap, (size_t)c->num_cells + 1, sizeof *c->cells);
  if (c->cap != before) c->skipped = xrealloc(c->skipped, c->cap * sizeof *c->skipped);
  c->skipped[c->num_cells] = skipped;
  c->cells[c->num_cells++] = *cell;
}

static bool is_skipped(const StudyPlan *p, const StudyCell *cell) {
  for (int i = 0; i < p->num_skips; i++)
    if (study_conditions_hold(&p->skips[i], p, cell)) return true;
  return false;
}

// The last setting changes fastest.
static void cross(StudyCells *c, const StudyPlan *p, StudyCell *cell, int setting) {
  if (setting == p->num_settings) {
    study_cells_add(c, cell, is_skipped(p, cell));
    return;
  }
  const StudySetting *s = &p->settings[setting];
  cell->value[setting] = -1;
  if (s->path || !p->commands[cell->value[STUDY_COMMAND]].uses[setting]) {
    cross(c, p, cell, setting + 1);
    return;
  }
  for (int v = 0; v < s->num_values; v++) {
    cell->value[setting] = v;
    cross(c, p, cell, setting + 1);
  }
}

StudyCells study_cells(const StudyPlan *p) {
  StudyCells c = {0};
  StudyCell cell;
  memset(&cell, 0xff, sizeof cell);
  for (int i = 0; i < p->num_commands; i++) {
    cell.value[STUDY_COMMAND] = i;
    cross(&c, p, &cell, 1);
  }
  return c;
}

void study_cells_free(StudyCells *c) {
  free(c->cells);
  free(c->skipped);
  *c = (StudyCells){0};
}

int study_cells_find(const StudyCells *c, const StudyPlan *p, const StudyCell *cell) {
  int i = c->num_cells;
  while (--i >= 0 && !study_cell_equal(p, &c->cells[i], cell)) continue;
  return i;
}

// ---- sweeps ---------------------------------------------------------------------------------------------------------

StudyCell study_cell_unswept(const StudyPlan *p, const StudyCell *cell) {
  StudyCell c = *cell;
  const int sweep = study_swept(p, cell);
  if (sweep != STUDY_COMMAND) c.value[sweep] = -1;
  return c;
}

char *study_swept_text(const StudyPlan *p, const StudyCell *cells, int n) {
  char *text;
  size_t size;
  const int sweep = study_swept(p, cells);
  if (sweep == STUDY_COMMAND) return NULL;
  FILE *f = text_open(&text, &size);
  for (int i = 0; i < n; i++) fprintf(f, "%s%s", i ? "," : "", p->settings[sweep].values[cells[i].value[sweep]].text);
  text_close(f);
  return text;
}

// ---- names ----------------------------------------------------------------------------------------------------------

// Of one cell, or of several that differ in the swept setting.
static char *label_of(const StudyPlan *p, const StudyCell *cells, int n, bool found) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  const char *blank = "";
  for (int s = p->num_commands > 1 ? 0 : 1; s < p->num_settings; s++) {
    if (cells->value[s] < 0 || (p->settings[s].path && !found)) continue;
    if (s == STUDY_COMMAND)
      fputs(study_value_name(p, cells, s), f);
    else
      fprintf(f, "%s%s=%s", blank, p->settings[s].name, study_value_name(p, cells, s));
    for (int i = 1; i < n && s == study_swept(p, cells); i++) fprintf(f, ",%s", study_value_name(p, &cells[i], s));
    blank = " ";
  }
  if (!*blank && cells->value[STUDY_COMMAND] >= 0) fputs(study_value_name(p, cells, STUDY_COMMAND), f);
  text_close(f);
  return text;
}

char *study_cell_label(const StudyPlan *p, const StudyCell *cell, bool found) { return label_of(p, cell, 1, found); }

char *study_turn_label(const StudyPlan *p, const StudyCell *cells, int n) { return label_of(p, cells, n, false); }

// FNV-1a.
static uint64_t text_hash(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char *at = text; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
  return hash;
}

// Of all that tells a cell from others.
static uint64_t cell_hash(const StudyPlan *p, const StudyCell *cell) {
  char *label = study_cell_label(p, cell, false);
  const uint64_t hash = text_hash(label);
  free(label);
  return hash;
}

// Where a letter had to give way, the hash keeps names apart.
char *study_run_name(const StudyPlan *p, const StudyCell *cells, int n, int repeat) {
  enum { LONGEST = 180 };
  char *label = study_turn_label(p, cells, n);
  const uint64_t hash = text_hash(label);
  bool same = strlen(label) <= LONGEST && !strchr(label, '+');
  for (char *at = label; *at; at++) {
    if (isalnum((unsigned char)*at) || strchr("._+=-", *at)) continue;
    same &= *at == ' ' || *at == ',';
    *at = *at == ' ' ? '-' : *at == ',' ? '+' : '_';
  }
  char *name = same ? xasprintf("%s-%d", label, repeat)
                    : xasprintf("%.*s-%08" PRIx32 "-%d", LONGEST, label, (uint32_t)hash, repeat);
  free(label);
  return name;
}

// ---- order ----------------------------------------------------------------------------------------------------------

typedef struct DrawnRun {
  StudyRun run;
  uint64_t key;
} DrawnRun;

static int compare_drawn(const void *a, const void *b) {
  const DrawnRun *x = a, *y = b;
  if (x->run.repeat != y->run.repeat) return x->run.repeat < y->run.repeat ? -1 : 1;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->run.cell - y->run.cell;
}

StudyRun *study_order(const StudyCells *c, const StudyPlan *p, int *n) {
  DrawnRun *drawn = xcalloc((size_t)c->num_cells * (size_t)p->repeats, sizeof *drawn);
  *n = 0;
  for (int i = 0; i < c->num_cells; i++) {
    const StudyCell unswept = study_cell_unswept(p, &c->cells[i]);
    const uint64_t cell = cell_hash(p, &unswept);
    for (int repeat = 1; repeat <= p->repeats && !c->skipped[i]; repeat++)
      drawn[(*n)++] =
          (DrawnRun){{i, repeat, false}, rng_key(rng_key(rng_mix((uint64_t)p->seed), cell), (uint64_t)repeat)};
  }
  qsort(drawn, (size_t)*n, sizeof *drawn, compare_drawn);
  StudyRun *runs = xcalloc((size_t)*n, sizeof *runs);
  for (int i = 0; i < *n; i++) runs[i] = drawn[i].run;
  free(drawn);
  return runs;
}
