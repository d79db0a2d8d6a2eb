// Reads the cuDNN engines that earlier benchmarks found fastest from their records, because searching for them takes
// far longer than the measurement.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <string.h>
extern "C" {
#include "base/alloc.h"
#include "base/json.h"
}

// Engine numbers are specific to the problem's graph, and may change with cuDNN's version.
typedef struct KnownEngine {
  char bench[12], layer[32], op[8], dtype[8], fused[16];
  int n, h, w, cin, cout, k, version, engine;
} KnownEngine;

typedef struct KnownEngines {
  KnownEngine *all;
  size_t count, capacity;
} KnownEngines;

static void read_text(Json *j, char *to, size_t size) { snprintf(to, size, "%s", json_string(j, NULL)); }

// One record; engine: -1 if it is one of our rungs', or cuDNN had none.
static KnownEngine read_known(Json *j) {
  KnownEngine k = {.engine = -1};
  bool peer = false;
  const char *key;
  if (!json_begin_object(j)) return k;
  while ((key = json_key(j))) {
    char name[32];
    snprintf(name, sizeof name, "%s", key);
    const struct {
      const char *name;
      char *to;
      size_t size;
    } texts[] = {{"bench", k.bench, sizeof k.bench},
                 {"layer", k.layer, sizeof k.layer},
                 {"op", k.op, sizeof k.op},
                 {"dtype", k.dtype, sizeof k.dtype},
                 {"fused", k.fused, sizeof k.fused}};
    const struct {
      const char *name;
      int *to;
    } numbers[] = {{"n", &k.n},
                   {"h", &k.h},
                   {"w", &k.w},
                   {"cin", &k.cin},
                   {"cout", &k.cout},
                   {"k", &k.k},
                   {"cudnn_version", &k.version},
                   {"cudnn_engine", &k.engine}};
    bool read = false;
    for (size_t i = 0; i < COUNT(texts) && !read; i++)
      if ((read = !strcmp(name, texts[i].name))) read_text(j, texts[i].to, texts[i].size);
    for (size_t i = 0; i < COUNT(numbers) && !read; i++)
      if ((read = !strcmp(name, numbers[i].name) && json_peek(j) == JSON_NUMBER)) *numbers[i].to = (int)json_int(j);
    if (read) continue;
    if (!strcmp(name, "rung"))
      peer = !strcmp(json_string(j, NULL), "cudnn");
    else
      json_skip(j);
  }
  if (!peer) k.engine = -1;
  return k;
}

// Reads a file of records, one a line; exits if one cannot be read.
static KnownEngines known_engines_read(const char *path) {
  KnownEngines k = {};
  FILE *f = fopen(path, "r");
  if (!f) die(EXIT_USAGE, "--engines %s: %s; give a file that --out has written", path, strerror(errno));
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t length; (length = getline(&line, &capacity, f)) > 0;) {
    Json j;
    json_open(&j, path, line, (size_t)length);
    KnownEngine one = read_known(&j);
    bool ok = json_done(&j);
    if (!ok) die(EXIT_USAGE, "--engines %s: record %zu is not one of this program's: %s", path, k.count + 1, j.err.msg);
    json_close(&j);
    array_reserve((void **)&k.all, &k.capacity, k.count + 1, sizeof *k.all);
    k.all[k.count++] = one;
  }
  if (ferror(f))
    die(EXIT_USAGE, "--engines %s: %s; give a file that --out has written", path, strerror(errno)); // a folder
  if (!k.count) die(EXIT_USAGE, "--engines %s: holds no records; give a file that --out has written", path);
  free(line);
  fclose(f);
  return k;
}

// The last matching record counts. -1: none matches.
static int known_engine(const KnownEngines *k, const KnownEngine *of) {
  for (size_t i = k->count; i-- > 0;) {
    const KnownEngine *e = &k->all[i];
    if (e->engine >= 0 && e->version == of->version && !strcmp(e->bench, of->bench) && !strcmp(e->layer, of->layer) &&
        !strcmp(e->op, of->op) && !strcmp(e->dtype, of->dtype) && !strcmp(e->fused, of->fused) && e->n == of->n &&
        e->h == of->h && e->w == of->w && e->cin == of->cin && e->cout == of->cout && e->k == of->k)
      return e->engine;
  }
  return -1;
}
