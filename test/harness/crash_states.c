#include "test/harness/crash_states.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/file.h"

typedef struct Entry {
  const char *name;
  int file; // -1: a folder
} Entry;

typedef struct Folder {
  Entry *entry;
  size_t n, cap;
} Folder;

// ---- which calls are on disk ----------------------------------------------------------------------------------------

static bool is_data(const FileCall *c) { return c->type == CALL_WRITE || c->type == CALL_TRUNCATE; }

static size_t folder_length(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash ? (size_t)(slash - name) : 0;
}

static bool syncs(const FileCall *sync, const FileCall *c) {
  if (sync->type != CALL_SYNC) return false;
  if (is_data(c)) return sync->file >= 0 && sync->file == c->file;
  const size_t n = folder_length(c->name);
  return sync->file < 0 && strlen(sync->name) == n && !strncmp(sync->name, c->name, n);
}

static bool is_on_disk(const FileCalls *c, size_t call, size_t calls) {
  for (size_t i = call + 1; i < calls; i++)
    if (syncs(&c->call[i], &c->call[call])) return true;
  return false;
}

enum { LAST = 4 };

// made[i]: whether call i is there. Returns how many are not on disk for certain.
static int choose(const CrashState *s, const FileCalls *c, bool *made) {
  int pending = 0;
  for (size_t i = s->calls; i-- > 0;) {
    made[i] = c->call[i].type != CALL_SYNC;
    if (!s->is_power || !made[i] || is_on_disk(c, i, s->calls)) continue;
    made[i] = pending < LAST ? s->subset >> pending & 1 : s->older;
    pending++;
  }
  return pending;
}

// ---- the folder -----------------------------------------------------------------------------------------------------

static void remove_name(Folder *f, const char *name, int file) {
  for (size_t i = 0; i < f->n; i++)
    if (!strcmp(f->entry[i].name, name) && (file == -2 || f->entry[i].file == file)) f->entry[i--] = f->entry[--f->n];
}

static void set_name(Folder *f, const char *name, int file) {
  remove_name(f, name, -2);
  array_reserve((void **)&f->entry, &f->cap, f->n + 1, sizeof *f->entry);
  f->entry[f->n++] = (Entry){name, file};
}

static bool has_folder(const Folder *f, const char *name) {
  const size_t n = folder_length(name);
  for (size_t i = 0; i < f->n; i++)
    if (f->entry[i].file < 0 && strlen(f->entry[i].name) == n && !strncmp(f->entry[i].name, name, n)) return true;
  return n == 0;
}

static int by_name(const void *a, const void *b) { return strcmp(((const Entry *)a)->name, ((const Entry *)b)->name); }

static Folder names_of(const FileCalls *c, const bool *made, size_t calls) {
  Folder f = {0};
  for (size_t i = 0; i < calls; i++) {
    const FileCall *call = &c->call[i];
    if (!made[i] || is_data(call) || (call->type == CALL_MKDIR && !*call->name)) continue;
    if (call->from) remove_name(&f, call->from, call->file);
    if (call->type == CALL_UNLINK)
      remove_name(&f, call->name, call->file);
    else
      set_name(&f, call->name, call->file);
  }
  for (size_t i = 0; i < f.n; i++)
    if (!has_folder(&f, f.entry[i].name)) f.entry[i--] = f.entry[--f.n];
  if (f.n) qsort(f.entry, f.n, sizeof *f.entry, by_name);
  return f;
}

static int64_t bytes_of(const CrashState *s, const FileCalls *c, size_t call) {
  return call == s->calls ? s->part : c->call[call].n;
}

// Whether call i is one on the bytes of the file.
static bool is_on(const CrashState *s, const FileCalls *c, const bool *made, size_t i, int file) {
  return is_data(&c->call[i]) && c->call[i].file == file && (i < s->calls ? made[i] : s->part > 0);
}

static size_t end_of(const CrashState *s) { return s->calls + (s->part > 0); }

// malloc'ed.
static char *contents(const CrashState *s, const FileCalls *c, const bool *made, int file, size_t *size) {
  char *bytes = NULL;
  size_t cap = 0, n = 0;
  for (size_t i = 0; i < end_of(s); i++) {
    const FileCall *call = &c->call[i];
    if (!is_on(s, c, made, i, file)) continue;
    const bool is_write = call->type == CALL_WRITE;
    const size_t end = (size_t)(bytes_of(s, c, i) + (is_write ? call->at : 0));
    array_reserve((void **)&bytes, &cap, end + 1, 1);
    if (end > n) memset(bytes + n, 0, end - n);
    if (is_write) memcpy(bytes + call->at, call->bytes, (size_t)bytes_of(s, c, i));
    n = is_write ? MAX(n, end) : end;
  }
  *size = n;
  return bytes;
}

// ---- digests --------------------------------------------------------------------------------------------------------

typedef struct Known { // contents met before, by the calls that made them
  struct {
    uint64_t calls, digest;
  } * of;
  size_t n, cap;
} Known;

// Of the calls that made the file.
static uint64_t calls_digest(const CrashState *s, const FileCalls *c, const bool *made, int file) {
  uint64_t calls = digest_word(1, (uint64_t)file);
  for (size_t i = 0; i < end_of(s); i++)
    if (is_on(s, c, made, i, file)) calls = digest_word(digest_word(calls, i), (uint64_t)bytes_of(s, c, i));
  return calls;
}

static uint64_t digest_of(Known *k, const CrashState *s, const FileCalls *c, const bool *made, int file) {
  const uint64_t calls = calls_digest(s, c, made, file);
  for (size_t i = 0; i < k->n; i++)
    if (k->of[i].calls == calls) return k->of[i].digest;
  size_t size;
  char *bytes = contents(s, c, made, file, &size);
  array_reserve((void **)&k->of, &k->cap, k->n + 1, sizeof *k->of);
  k->of[k->n].calls = calls;
  k->of[k->n].digest = digest_bytes(2, bytes, size);
  free(bytes);
  return k->of[k->n++].digest;
}

static uint64_t folder_digest(Known *k, const CrashState *s, const FileCalls *c, const bool *made) {
  Folder f = names_of(c, made, s->calls);
  uint64_t digest = 3;
  for (size_t i = 0; i < f.n; i++) {
    size_t same = 0; // names of one file
    while (f.entry[same].file != f.entry[i].file) same++;
    digest = digest_word(digest_text(digest, f.entry[i].name), f.entry[i].file < 0 ? 0 : same + 1);
    if (f.entry[i].file >= 0) digest = digest_word(digest, digest_of(k, s, c, made, f.entry[i].file));
  }
  free(f.entry);
  return digest;
}

// ---- states ---------------------------------------------------------------------------------------------------------

static void add(CrashStates *s, CrashState state, size_t first) {
  s->all++;
  for (size_t i = first; i < s->n; i++)
    if (s->state[i].digest == state.digest) return;
  array_reserve((void **)&s->state, &s->cap, s->n + 1, sizeof *s->state);
  s->state[s->n++] = state;
}

void crash_states_add(CrashStates *s, const FileCalls *c, size_t from, size_t to) {
  Known known = {0};
  bool *made = xmalloc(c->n + 1);
  const size_t first = s->n;
  for (size_t calls = from; calls <= to; calls++) {
    const int64_t n = calls < to && c->call[calls].type == CALL_WRITE ? c->call[calls].n : 0;
    const int64_t parts[] = {0, 1, n / 2, n - 1};
    for (int i = 0; i < (n > 1 ? COUNT(parts) : 1); i++) {
      CrashState state = {.calls = calls, .part = parts[i]};
      choose(&state, c, made);
      state.digest = folder_digest(&known, &state, c, made);
      add(s, state, first);
    }
    CrashState cut = {.calls = calls, .is_power = true};
    const int pending = choose(&cut, c, made);
    for (int older = 0; older <= (pending > LAST); older++)
      for (unsigned subset = 0; subset < 1u << MIN(pending, LAST); subset++) {
        CrashState state = {.calls = calls, .is_power = true, .older = older, .subset = subset};
        choose(&state, c, made);
        state.digest = folder_digest(&known, &state, c, made);
        add(s, state, first);
      }
  }
  free(known.of);
  free(made);
}

static void write_bytes(const char *path, const char *bytes, size_t size) {
  FILE *f = fopen(path, "wb");
  CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

static bool is_weights(const char *name) {
  const size_t n = strlen(name), end = strlen(".safetensors");
  return n > end && !strcmp(name + n - end, ".safetensors");
}

// In place of what has that name.
static void make_file(const CrashState *s, const FileCalls *c, const bool *made, const Entry *e, const char *path,
                      const char *cache) {
  const bool is_kept = is_weights(e->name);
  char *kept = xasprintf("%s/%016llx", cache, (unsigned long long)calls_digest(s, c, made, e->file));
  if (!is_kept || !path_is_file(kept)) {
    size_t size;
    char *bytes = contents(s, c, made, e->file, &size);
    write_bytes(is_kept ? kept : path, bytes, size);
    free(bytes);
  }
  CHECK(!is_kept || link(kept, path) == 0);
  free(kept);
}

void crash_state_make(const CrashState *s, const FileCalls *c, const char *folder, const char *cache) {
  bool *made = xmalloc(c->n + 1);
  choose(s, c, made);
  Folder f = names_of(c, made, s->calls);
  CHECK(dirs_make(folder, NULL) && dirs_make(cache, NULL));
  for (size_t i = 0; i < f.n; i++) {
    char *path = xasprintf("%s/%s", folder, f.entry[i].name);
    size_t same = 0;
    while (f.entry[same].file != f.entry[i].file) same++;
    if (f.entry[i].file < 0) {
      CHECK(dirs_make(path, NULL));
    } else if (same < i) {
      char *other = xasprintf("%s/%s", folder, f.entry[same].name);
      CHECK(link(other, path) == 0);
      free(other);
    } else {
      make_file(s, c, made, &f.entry[i], path, cache);
    }
    free(path);
  }
  free(f.entry);
  free(made);
}

void crash_state_print(const CrashState *s, const FileCalls *c) {
  printf("  %s after %zu calls", s->is_power ? "power cut" : "kill", s->calls);
  if (s->part) printf(" and %lld bytes of the next", (long long)s->part);
  if (s->is_power)
    printf(", of those not on disk: older ones %s, the last four %x", s->older ? "yes" : "no", s->subset);
  printf("; the last calls:\n");
  for (size_t i = s->calls > 5 ? s->calls - 5 : 0; i < s->calls + (s->part > 0); i++) {
    printf("    %zu ", i);
    file_call_print(&c->call[i]);
  }
}
