// Reads safetensors files, which are untrusted input: everything is validated before use.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "weights/formats.h"
#include "weights/verify.h"

enum { MAX_HEADER = 100 << 20 }; // the limit of the reference implementation

// The header is parsed in place, in a NUL-terminated copy: strings are unescaped where they are.
typedef struct Parser {
  Checkpoint *c;
  const char *path;
  char *at;
  size_t data_size;
  Err *err;
} Parser;

// ---- the subset of JSON that the format uses ---- -------------------------------------------------------------------

static bool expected(Parser *p, const char *what) {
  return err_set(p->err, "%s: not a valid safetensors file: byte %zu: expected %s", p->path,
                 CKPT_PREFIX + (size_t)(p->at - p->c->header), what);
}

static void skip_space(Parser *p) { p->at += strspn(p->at, " \t\r\n"); }

static bool take(Parser *p, char c) {
  skip_space(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static bool parse_hex4(Parser *p, unsigned *out) {
  *out = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    const char *digits = "0123456789abcdef0123456789ABCDEF", *d = *p->at ? strchr(digits, *p->at) : NULL;
    if (!d) return expected(p, "four hexadecimal digits");
    *out = *out * 16 + (unsigned)(d - digits) % 16;
  }
  return true;
}

// Writes the code point after "\u", at most two escapes long, as UTF-8 to *w. It is never longer than its escape.
static bool parse_unicode(Parser *p, char **w) {
  unsigned u, low;
  if (!parse_hex4(p, &u)) return false;
  if (u >= 0xd800 && u < 0xdc00) {
    if (p->at[0] != '\\' || p->at[1] != 'u') return expected(p, "the second half of a surrogate pair");
    p->at += 2;
    if (!parse_hex4(p, &low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return expected(p, "the second half of a surrogate pair");
    u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
  } else if (u == 0 || (u >= 0xdc00 && u < 0xe000)) {
    return expected(p, "a character other than NUL and lone surrogates");
  }
  int rest = u < 0x80 ? 0 : u < 0x800 ? 1 : u < 0x10000 ? 2 : 3; // bytes after the first
  static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
  *(*w)++ = (char)(lead[rest] | u >> (6 * rest));
  while (rest-- > 0) *(*w)++ = (char)(0x80 | (u >> (6 * rest) & 0x3f));
  return true;
}

// NULL on failure.
static char *parse_string(Parser *p) {
  if (!take(p, '"')) {
    expected(p, "a string");
    return NULL;
  }
  char *begin = p->at, *w = begin;
  while (*p->at != '"') {
    if ((unsigned char)*p->at < 0x20) {
      expected(p, "the end of a string");
      return NULL;
    }
    if (*p->at != '\\') {
      size_t length = utf8_length(p->at, p->at + 4); // never reads past the NUL at the header's end
      if (!length) {
        expected(p, "UTF-8");
        return NULL;
      }
      while (length-- > 0) *w++ = *p->at++;
      continue;
    }
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = p->at[1];
    const char *escape = c ? strchr(from, c) : NULL;
    if (!escape && c != 'u') {
      expected(p, "a JSON escape sequence");
      return NULL;
    }
    p->at += 2;
    if (escape)
      *w++ = to[escape - from];
    else if (!parse_unicode(p, &w))
      return NULL;
  }
  p->at++;
  *w = 0;
  return begin;
}

// Moves to the next member of an object or array, past the comma; *first: no comma is needed. false at the closing
// bracket and on failure, which *ok tells apart.
static bool next(Parser *p, char close, bool *first, bool *ok) {
  *ok = true;
  if (take(p, close)) return false;
  if (!*first && !take(p, ',')) {
    *ok = expected(p, close == '}' ? "',' or '}'" : "',' or ']'");
    return false;
  }
  *first = false;
  return true;
}

static char *parse_key(Parser *p) {
  char *key = parse_string(p);
  if (!key || take(p, ':')) return key;
  expected(p, "':'");
  return NULL;
}

static bool parse_count(Parser *p, int64_t *out) {
  skip_space(p);
  if (*p->at < '0' || *p->at > '9') return expected(p, "a non-negative whole number");
  if (*p->at == '0' && p->at[1] >= '0' && p->at[1] <= '9') return expected(p, "a number without leading zeros");
  errno = 0;
  char *end;
  *out = strtoll(p->at, &end, 10);
  if (errno) return expected(p, "a number below 2^63");
  p->at = end;
  return true;
}

// At most `max` numbers in brackets; *n receives how many.
static bool parse_counts(Parser *p, int max, int64_t *out, int *n) {
  *n = 0;
  if (!take(p, '[')) return expected(p, "'['");
  bool first = true, ok;
  while (next(p, ']', &first, &ok)) {
    if (*n == max) return expected(p, max == 2 ? "two numbers" : "at most eight dimensions");
    if (!parse_count(p, &out[(*n)++])) return false;
  }
  return ok;
}

// ---- the header -----------------------------------------------------------------------------------------------------

static bool bad_tensor(const Parser *p, const char *name, const char *what) {
  return err_set(p->err, "%s: not a valid safetensors file: tensor \"%.100s\" %s", p->path, name, what);
}

static bool parse_type(const char *name, CkptType *out) {
  for (*out = 0; *out < CKPT_TYPES; (*out)++)
    if (!strcmp(name, ckpt_type_name(*out))) return true;
  return false;
}

// Checks an entry's fields against each other and the file, and sets elements, bytes and data.
static bool resolve(Parser *p, CkptTensor *t, const int64_t offsets[2]) {
  t->elements = 1;
  for (int i = 0; i < t->ndim; i++)
    if (__builtin_mul_overflow(t->elements, (uint64_t)t->dims[i], &t->elements))
      return bad_tensor(p, t->name, "has more elements than fit in 64 bits");
  if (__builtin_mul_overflow(t->elements, ckpt_type_size(t->type), &t->bytes))
    return bad_tensor(p, t->name, "has more bytes than fit in 64 bits");
  if (offsets[1] < offsets[0]) return bad_tensor(p, t->name, "ends before it begins");
  if ((uint64_t)offsets[1] > p->data_size)
    return bad_tensor(p, t->name, "ends past the end of the file; is the file truncated?");
  if ((uint64_t)(offsets[1] - offsets[0]) != t->bytes)
    return bad_tensor(p, t->name, "has offsets that do not match its type and shape");
  t->data = p->c->bytes + (p->c->size - p->data_size) + offsets[0];
  return true;
}

static bool parse_tensor(Parser *p, const char *name) {
  for (const char *s = name; *s; s++) // names are printed in messages, which are one line
    if ((unsigned char)*s < 0x20) return expected(p, "a tensor's name without control characters");
  CkptTensor t = {.name = name};
  int64_t offsets[2];
  int num_offsets = 0;
  bool has_type = false, has_shape = false;
  if (!take(p, '{')) return expected(p, "'{'");
  bool first = true, ok;
  while (next(p, '}', &first, &ok)) {
    char *key = parse_key(p);
    if (!key) return false;
    if (!strcmp(key, "dtype") && !has_type) {
      char *type = parse_string(p);
      if (!type) return false;
      if (!parse_type(type, &t.type)) return bad_tensor(p, name, "has a type that is not supported");
      has_type = true;
    } else if (!strcmp(key, "shape") && !has_shape) {
      if (!parse_counts(p, CKPT_MAX_DIMS, t.dims, &t.ndim)) return false;
      has_shape = true;
    } else if (!strcmp(key, "data_offsets") && !num_offsets) {
      if (!parse_counts(p, 2, offsets, &num_offsets)) return false;
      if (num_offsets != 2) return expected(p, "two numbers");
    } else {
      return bad_tensor(p, name, "has an unknown or duplicate member");
    }
  }
  if (!ok) return false;
  if (!has_type || !has_shape || !num_offsets) return bad_tensor(p, name, "lacks one of dtype, shape, data_offsets");
  if (!resolve(p, &t, offsets)) return false;
  Checkpoint *c = p->c;
  ckpt_add(c, &t);
  return true;
}

static int compare_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool metadata_keys_differ(const Parser *p) {
  const Checkpoint *c = p->c;
  const char **keys = xmalloc((c->num_meta + 1) * sizeof *keys), *twice = NULL;
  for (size_t i = 0; i < c->num_meta; i++) keys[i] = c->meta[i].key;
  qsort(keys, c->num_meta, sizeof *keys, compare_text);
  for (size_t i = 1; i < c->num_meta && !twice; i++)
    if (!strcmp(keys[i - 1], keys[i])) twice = keys[i];
  free(keys);
  return !twice ||
         err_set(p->err, "%s: not a valid safetensors file: its metadata contain \"%.100s\" twice", p->path, twice);
}

static bool parse_metadata(Parser *p) {
  Checkpoint *c = p->c;
  if (!take(p, '{')) return expected(p, "'{'");
  bool first = true, ok;
  while (next(p, '}', &first, &ok)) {
    CkptMeta m = {.key = parse_key(p)};
    if (!m.key || !(m.value = parse_string(p))) return false;
    array_reserve((void **)&c->meta, &c->cap_meta, c->num_meta + 1, sizeof m);
    c->meta[c->num_meta++] = m;
  }
  return ok && metadata_keys_differ(p);
}

static bool parse_header(Parser *p, size_t length) {
  if (!take(p, '{')) return expected(p, "'{'");
  bool first = true, ok, has_metadata = false;
  while (next(p, '}', &first, &ok)) {
    char *key = parse_key(p);
    if (!key) return false;
    const bool is_metadata = !strcmp(key, "__metadata__");
    if (is_metadata && has_metadata) return expected(p, "__metadata__ once");
    has_metadata |= is_metadata;
    if (!(is_metadata ? parse_metadata(p) : parse_tensor(p, key))) return false;
  }
  if (!ok) return false;
  skip_space(p);
  return p->at == p->c->header + length || expected(p, "the end of the header");
}

static int compare_data(const void *a, const void *b) {
  const CkptTensor *s = a, *t = b;
  if (s->data != t->data) return s->data < t->data ? -1 : 1;
  return (s->bytes > t->bytes) - (s->bytes < t->bytes); // empty tensors before the one that begins at the same byte
}

// The tensors must be contiguous from the end of the header to the end of the file.
static bool check_layout(const Parser *p) {
  const Checkpoint *c = p->c;
  const unsigned char *end = c->bytes + (c->size - p->data_size);
  if (c->num_tensors) qsort(c->tensors, c->num_tensors, sizeof *c->tensors, compare_data);
  for (size_t i = 0; i < c->num_tensors; i++) {
    const CkptTensor *t = &c->tensors[i];
    if ((const unsigned char *)t->data != end)
      return bad_tensor(p, t->name, (const unsigned char *)t->data < end ? "overlaps another" : "has a gap before it");
    end += t->bytes;
  }
  if (end != c->bytes + c->size)
    return err_set(p->err, "%s: not a valid safetensors file: the last %zu bytes belong to no tensor", p->path,
                   (size_t)(c->bytes + c->size - end));
  return true;
}

bool ckpt_parse_safetensors(Checkpoint *c, const char *path, Err *err) {
  uint64_t length = 0;
  for (int i = 0; i < CKPT_PREFIX; i++) length |= (uint64_t)c->bytes[i] << (8 * i);
  if (length > MAX_HEADER || length > c->size - CKPT_PREFIX)
    return err_set(
        err, "%s: not a PyTorch file, and not a valid safetensors file: the header would exceed the file or 100 MiB",
        path);
  c->data_start = CKPT_PREFIX + length;
  c->header = xmalloc(length + 1);
  memcpy(c->header, c->bytes + CKPT_PREFIX, length);
  c->header[length] = 0;
  Parser p = {.c = c, .path = path, .at = c->header, .data_size = c->size - CKPT_PREFIX - length, .err = err};
  return parse_header(&p, length) && verify_header(c, path, err) && check_layout(&p);
}
