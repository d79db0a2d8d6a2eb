#include "weights/pickle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// A pickle of a thousand tensors takes about 20,000 steps. Each step creates at most one value and pushes at most one.
enum { MAX_STEPS = 1 << 21, CHUNK = 1 << 16 };

struct PickleChunk {
  PickleChunk *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

// A stack machine: values are pushed, collected behind marks and kept in the memo.
typedef struct Machine {
  Pickle *p;
  const unsigned char *begin, *at, *end;
  const char *const *globals;
  const char *path;
  PickleValue **stack; // NULL = a mark
  size_t depth, cap_stack;
  PickleValue **memo; // NULL = unset
  size_t num_memo, cap_memo;
  Err *err;
} Machine;

static const char ordered_dict[] = "collections.OrderedDict";

static bool unusable(const Machine *m, const char *what) {
  return err_set(m->err, "%s: not a valid PyTorch file: byte %zu of its pickle: %s", m->path,
                 (size_t)(m->at - m->begin), what);
}

// ---- memory -----------------------------------------------------------------------------------------------------

static void *take(Pickle *p, size_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  PickleChunk *c = p->chunks;
  if (!c || c->size - c->used < bytes) {
    size_t size = MAX(bytes, CHUNK);
    c = xmalloc(sizeof *c + size);
    *c = (PickleChunk){.next = p->chunks, .size = size};
    p->chunks = c;
  }
  c->used += bytes;
  return c->bytes + c->used - bytes;
}

static PickleValue *new_value(Machine *m, PickleType type) {
  PickleValue *v = take(m->p, sizeof *v);
  *v = (PickleValue){.type = type};
  return v;
}

static void append(Machine *m, PickleValue *to, PickleValue *const *items, size_t n) {
  if (to->n + n > to->cap) {
    size_t cap = MAX(to->n + n, 2 * to->cap);
    PickleValue **larger = take(m->p, cap * sizeof(PickleValue *));
    if (to->n) memcpy(larger, to->item, to->n * sizeof *larger);
    to->item = larger;
    to->cap = cap;
  }
  if (n) memcpy(to->item + to->n, items, n * sizeof *items);
  to->n += n;
}

void pickle_free(Pickle *p) {
  for (PickleChunk *c = p->chunks, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  free(p->persistent);
  *p = (Pickle){0};
}

// ---- bytes ------------------------------------------------------------------------------------------------------

static const unsigned char *next_bytes(Machine *m, size_t n) {
  if ((size_t)(m->end - m->at) < n) {
    unusable(m, "it is truncated");
    return NULL;
  }
  m->at += n;
  return m->at - n;
}

// n ≤ 8 bytes, little-endian; the last byte's sign is extended where `is_signed`.
static bool next_integer(Machine *m, size_t n, bool is_signed, int64_t *out) {
  const unsigned char *bytes = next_bytes(m, n);
  if (!bytes) return false;
  uint64_t v = is_signed && n && bytes[n - 1] >> 7 ? UINT64_MAX : 0;
  for (size_t i = n; i-- > 0;) v = v << 8 | bytes[i];
  *out = (int64_t)v;
  return true;
}

// NUL-terminated, in the pickle's memory; NULL on failure.
static char *next_text(Machine *m, size_t n) {
  const unsigned char *bytes = next_bytes(m, n);
  if (!bytes) return NULL;
  if (memchr(bytes, 0, n)) {
    unusable(m, "a string with a NUL in it");
    return NULL;
  }
  char *text = take(m->p, n + 1);
  memcpy(text, bytes, n);
  text[n] = '\0';
  return text;
}

static size_t line_length(const Machine *m) {
  const unsigned char *newline = memchr(m->at, '\n', (size_t)(m->end - m->at));
  return newline ? (size_t)(newline - m->at) : (size_t)(m->end - m->at);
}

// ---- the stack --------------------------------------------------------------------------------------------------

static bool push(Machine *m, PickleValue *v) {
  array_reserve((void **)&m->stack, &m->cap_stack, m->depth + 1, sizeof *m->stack);
  m->stack[m->depth++] = v;
  return true;
}

static bool push_type(Machine *m, PickleType type) { return push(m, new_value(m, type)); }

static bool push_integer(Machine *m, PickleType type, int64_t integer) {
  PickleValue *v = new_value(m, type);
  v->integer = integer;
  return push(m, v);
}

static bool push_text(Machine *m, size_t n) {
  PickleValue *v = new_value(m, PICKLE_STR);
  return (v->text = next_text(m, n)) && push(m, v);
}

// Pops the top value; NULL if there is none.
static PickleValue *pop(Machine *m) {
  PickleValue *v = m->depth ? m->stack[m->depth - 1] : NULL;
  if (v)
    m->depth--;
  else
    unusable(m, "a value is missing");
  return v;
}

static bool push_tuple(Machine *m, size_t n) {
  PickleValue *v = new_value(m, PICKLE_TUPLE);
  if (m->depth < n) return unusable(m, "a value is missing");
  for (size_t i = 0; i < n; i++)
    if (!m->stack[m->depth - 1 - i]) return unusable(m, "a value is missing");
  append(m, v, m->stack + m->depth - n, n);
  m->depth -= n;
  return push(m, v);
}

// The number of values above the last mark; removes that mark.
static bool take_mark(Machine *m, size_t *n) {
  size_t at = m->depth;
  while (at > 0 && m->stack[at - 1]) at--;
  if (at == 0) return unusable(m, "a mark is missing");
  *n = m->depth - at;
  memmove(m->stack + at - 1, m->stack + at, *n * sizeof *m->stack);
  m->depth--;
  return true;
}

// Moves the top n values into the list or dict below them.
static bool extend(Machine *m, PickleType type, size_t n) {
  if (m->depth <= n) return unusable(m, "a value is missing");
  for (size_t i = 0; i <= n; i++)
    if (!m->stack[m->depth - 1 - i]) return unusable(m, "a value is missing");
  PickleValue *to = m->stack[m->depth - 1 - n];
  if (to->type != type) return unusable(m, "items are added to an object that is not a container");
  if (type == PICKLE_DICT && n % 2) return unusable(m, "a key without a value");
  append(m, to, m->stack + m->depth - n, n);
  m->depth -= n;
  return true;
}

static bool extend_to_mark(Machine *m, PickleType type) {
  size_t n = 0;
  return take_mark(m, &n) && extend(m, type, n);
}

// ---- the memo ---------------------------------------------------------------------------------------------------

static bool memo_put(Machine *m, int64_t index) {
  if (index >= MAX_STEPS) return unusable(m, "its memo is too large");
  if (m->depth == 0 || !m->stack[m->depth - 1]) return unusable(m, "a value is missing");
  array_reserve((void **)&m->memo, &m->cap_memo, (size_t)index + 1, sizeof *m->memo);
  while (m->num_memo <= (size_t)index) m->memo[m->num_memo++] = NULL;
  m->memo[index] = m->stack[m->depth - 1];
  return true;
}

static bool memo_get(Machine *m, int64_t index) {
  if ((size_t)index >= m->num_memo || !m->memo[index]) return unusable(m, "it refers to a missing memo entry");
  return push(m, m->memo[index]);
}

// ---- globals and calls ------------------------------------------------------------------------------------------

static bool known(const Machine *m, const char *name) {
  if (!strcmp(name, ordered_dict)) return true;
  for (const char *const *g = m->globals; *g; g++)
    if (!strcmp(name, *g)) return true;
  return false;
}

// Names are printed in messages, which are one line.
static void make_printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = '?';
}

// "module\nname\n"
static bool push_global(Machine *m) {
  size_t module = line_length(m);
  char *text = next_text(m, module);
  if (!text || !next_bytes(m, 1)) return false;
  size_t length = line_length(m);
  char *last = next_text(m, length);
  if (!last || !next_bytes(m, 1)) return false;
  char *name = take(m->p, module + length + 2);
  sprintf(name, "%s.%s", text, last);
  if (!known(m, name)) {
    make_printable(name);
    return err_set(m->err,
                   "%s: contains %.200s, which is not executed: only tensors in plain containers are read from PyTorch "
                   "files; save model.state_dict()",
                   m->path, name);
  }
  PickleValue *v = new_value(m, PICKLE_GLOBAL);
  v->text = name;
  return push(m, v);
}

// OrderedDict() and, as Python 2 writes it, OrderedDict([[key, value], …]). The pairs move out of their list, so that a
// hostile file cannot have them copied again and again.
static bool push_ordered_dict(Machine *m, const PickleValue *arguments) {
  PickleValue *dict = new_value(m, PICKLE_DICT);
  PickleValue *pairs = arguments->n ? arguments->item[0] : NULL;
  if (arguments->n > 1 || (pairs && pairs->type != PICKLE_LIST))
    return unusable(m, "an OrderedDict with unexpected contents");
  for (size_t i = 0; pairs && i < pairs->n; i++) {
    const PickleValue *pair = pairs->item[i];
    if ((pair->type != PICKLE_LIST && pair->type != PICKLE_TUPLE) || pair->n != 2)
      return unusable(m, "an OrderedDict with unexpected contents");
    append(m, dict, pair->item, 2);
  }
  if (pairs) pairs->n = 0;
  return push(m, dict);
}

static bool push_call(Machine *m) {
  PickleValue *arguments = pop(m), *global = arguments ? pop(m) : NULL;
  if (!global) return false;
  if (global->type != PICKLE_GLOBAL || arguments->type != PICKLE_TUPLE)
    return unusable(m, "a call of an object that is not a function");
  if (!strcmp(global->text, ordered_dict)) return push_ordered_dict(m, arguments);
  PickleValue *call = new_value(m, PICKLE_CALL);
  append(m, call, (PickleValue *[]){global, arguments}, 2);
  return push(m, call);
}

// Sets the state of an object that was made by a call; attributes of other values (a state dict's _metadata) are not
// needed.
static bool build(Machine *m) {
  PickleValue *state = pop(m), *object = state ? pop(m) : NULL;
  if (!object) return false;
  if (object->type == PICKLE_CALL && object->n == 2) append(m, object, &state, 1);
  return push(m, object);
}

static bool push_persistent(Machine *m) {
  PickleValue *id = pop(m);
  if (!id) return false;
  PickleValue *v = new_value(m, PICKLE_PERSISTENT);
  append(m, v, &id, 1);
  Pickle *p = m->p;
  array_reserve((void **)&p->persistent, &p->cap_persistent, p->num_persistent + 1, sizeof *p->persistent);
  p->persistent[p->num_persistent++] = v;
  return push(m, v);
}

// ---- opcodes ----------------------------------------------------------------------------------------------------

static bool step(Machine *m, int opcode) {
  int64_t n = 0;
  size_t items = 0;
  switch (opcode) {
  case '(': return push(m, NULL);                                                   // MARK
  case 'N': return push_type(m, PICKLE_NONE);                                       // NONE
  case 0x88: return push_integer(m, PICKLE_BOOL, 1);                                // NEWTRUE
  case 0x89: return push_integer(m, PICKLE_BOOL, 0);                                // NEWFALSE
  case 'K': return next_integer(m, 1, false, &n) && push_integer(m, PICKLE_INT, n); // BININT1
  case 'M': return next_integer(m, 2, false, &n) && push_integer(m, PICKLE_INT, n); // BININT2
  case 'J': return next_integer(m, 4, true, &n) && push_integer(m, PICKLE_INT, n);  // BININT
  case 'G': return next_bytes(m, 8) && push_type(m, PICKLE_FLOAT);                  // BINFLOAT
  case 'U': return next_integer(m, 1, false, &n) && push_text(m, (size_t)n);        // SHORT_BINSTRING
  case 'T': return next_integer(m, 4, false, &n) && push_text(m, (size_t)n);        // BINSTRING
  case 'X': return next_integer(m, 4, false, &n) && push_text(m, (size_t)n);        // BINUNICODE
  case ')': return push_type(m, PICKLE_TUPLE);                                      // EMPTY_TUPLE
  case ']': return push_type(m, PICKLE_LIST);                                       // EMPTY_LIST
  case '}': return push_type(m, PICKLE_DICT);                                       // EMPTY_DICT
  case 't': return take_mark(m, &items) && push_tuple(m, items);                    // TUPLE
  case 0x85:
  case 0x86:
  case 0x87: return push_tuple(m, (size_t)opcode - 0x84);           // TUPLE1 … 3
  case 'a': return extend(m, PICKLE_LIST, 1);                       // APPEND
  case 'e': return extend_to_mark(m, PICKLE_LIST);                  // APPENDS
  case 's': return extend(m, PICKLE_DICT, 2);                       // SETITEM
  case 'u': return extend_to_mark(m, PICKLE_DICT);                  // SETITEMS
  case 'q': return next_integer(m, 1, false, &n) && memo_put(m, n); // BINPUT
  case 'r': return next_integer(m, 4, false, &n) && memo_put(m, n); // LONG_BINPUT
  case 'h': return next_integer(m, 1, false, &n) && memo_get(m, n); // BINGET
  case 'j': return next_integer(m, 4, false, &n) && memo_get(m, n); // LONG_BINGET
  case 'c': return push_global(m);                                  // GLOBAL
  case 'R':
  case 0x81: return push_call(m);      // REDUCE, NEWOBJ
  case 'Q': return push_persistent(m); // BINPERSID
  case 'b': return build(m);           // BUILD
  case 0x8a:                           // LONG1
    if (!next_integer(m, 1, false, &n)) return false;
    if (n > 8) return unusable(m, "an integer above 64 bits");
    return next_integer(m, (size_t)n, true, &n) && push_integer(m, PICKLE_INT, n);
  default: return unusable(m, "an opcode that torch.save does not write");
  }
}

static bool run(Machine *m) {
  const unsigned char *head = next_bytes(m, 2);
  if (!head) return false;
  if (head[0] != 0x80) return unusable(m, "not protocol 2, torch.save's default; save it without pickle_protocol");
  if (head[1] != 2)
    return err_set(m->err,
                   "%s: saved with pickle protocol %d, but only 2, torch.save's default, is supported: save it without "
                   "pickle_protocol",
                   m->path, head[1]);
  for (int steps = 0; steps < MAX_STEPS; steps++) {
    const unsigned char *opcode = next_bytes(m, 1);
    if (!opcode) return false;
    if (*opcode == '.') return (m->p->root = pop(m)) != NULL; // STOP
    if (!step(m, *opcode)) return false;
  }
  return unusable(m, "it is too long");
}

bool pickle_read(Pickle *p, const unsigned char **at, const unsigned char *end, const char *const *globals,
                 const char *path, Err *err) {
  *p = (Pickle){0};
  Machine m = {.p = p, .begin = *at, .at = *at, .end = end, .globals = globals, .path = path, .err = err};
  bool ok = run(&m);
  free(m.stack);
  free(m.memo);
  if (!ok) pickle_free(p);
  *at = m.at;
  return ok;
}
