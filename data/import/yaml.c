#include "data/import/yaml.h"
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// ---- scalars --------------------------------------------------------------------------------------------------------

static char *put_utf8(char *to, uint32_t code) {
  if (code < 0x80) {
    *to++ = (char)code;
    return to;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  *to++ = (char)((0xf00 >> (more + 1)) | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; i--) *to++ = (char)(0x80 | (code >> (6 * i) & 0x3f));
  return to;
}

// Behind a backslash in double quotes: advances past the escape, and writes at most as many bytes as it has.
static char *unescape(const char **p, const char *end, char *to) {
  static const char names[] = "ntr0\"\\/ ", values[] = "\n\t\r\0\"\\/ ";
  const char c = *(*p)++;
  const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (digits > 0 && end - *p >= digits) {
    char hex[9] = "";
    memcpy(hex, *p, (size_t)digits);
    *p += digits;
    const unsigned long code = strtoul(hex, NULL, 16);
    return put_utf8(to, code > 0 && code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? (uint32_t)code : '?');
  }
  const char *name = c ? strchr(names, c) : NULL;
  *to++ = name ? values[name - names] : c;
  return to;
}

// Past white space, and comments that end before `end`.
static const char *skip_comments(const char *p, const char *end) {
  for (;;) {
    while (p < end && isspace((unsigned char)*p)) p++;
    const char *next = p < end && *p == '#' ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    if (!next) return p;
    p = next;
  }
}

// The text from `begin` to `end` without white space, quotes and a comment; malloc'ed.
static char *scalar(const char *begin, const char *end) {
  begin = skip_comments(begin, end);
  char *text = xmalloc((size_t)(end - begin) + 1), *to = text;
  const char quote = begin < end && (*begin == '"' || *begin == '\'') ? *begin : '\0';
  if (quote) {
    for (const char *p = begin + 1; p < end;) {
      if (*p == quote && !(quote == '\'' && p + 1 < end && p[1] == quote)) break;
      if (quote == '"' && *p == '\\' && p + 1 < end) {
        p++;
        to = unescape(&p, end, to);
      } else {
        p += *p == quote; // '' stands for '
        *to++ = *p++;
      }
    }
  } else {
    for (const char *p = begin; p < end && !(*p == '#' && (p == begin || isspace((unsigned char)p[-1])));) *to++ = *p++;
    while (to > text && isspace((unsigned char)to[-1])) to--;
  }
  *to = '\0';
  return text;
}

// Where an unquoted one of `marks` stands first, outside of inner brackets; `end`: nowhere.
static const char *find_mark(const char *p, const char *end, const char *marks) {
  const char *begin = p;
  char quote = '\0';
  int depth = 0;
  bool fresh = true; // a quote here begins a quoted scalar
  for (; p < end; p++) {
    if (quote) {
      if (quote == '"' && *p == '\\' && p + 1 < end)
        p++;
      else if (*p == quote)
        quote = '\0';
      continue;
    }
    if (*p == '#' && (p == begin || isspace((unsigned char)p[-1]))) { // up to the end of the line
      while (p + 1 < end && p[1] != '\n') p++;
      continue;
    }
    if (depth == 0 && strchr(marks, *p) && (*p != ':' || p + 1 == end || isspace((unsigned char)p[1]))) return p;
    if (fresh && (*p == '"' || *p == '\'')) quote = *p;
    if (*p == '[' || *p == '{') depth++;
    if ((*p == ']' || *p == '}') && depth > 0) depth--;
    fresh = strchr("[{,: \t\n", *p) && (*p == ' ' || *p == '\t' || *p == '\n' ? fresh : true);
  }
  return end;
}

// ---- entries --------------------------------------------------------------------------------------------------------

static void add_value(YamlEntry *e, char *name, char *value) {
  e->value = xrealloc(e->value, (size_t)(e->n + 1) * sizeof *e->value);
  e->name = xrealloc(e->name, (size_t)(e->n + 1) * sizeof *e->name);
  e->name[e->n] = name;
  e->value[e->n++] = value;
}

// "a, 'b'" or "0: a, 1: b", without the brackets around.
static void read_flow(YamlEntry *e, const char *p, const char *end, bool map) {
  e->many = true;
  while (p < end) {
    const char *comma = find_mark(p, end, ","), *colon = map ? find_mark(p, comma, ":") : comma;
    char *first = scalar(p, colon);
    if (map && colon < comma)
      add_value(e, first, scalar(colon + 1, comma));
    else if (*first)
      add_value(e, NULL, first);
    else
      free(first);
    p = comma + 1;
  }
}

static const char *line_end(const char *p) { return p + strcspn(p, "\n"); }
static size_t indent_of(const char *p) { return strspn(p, " \t"); }
static bool is_item(const char *p) { return *p == '-' && (p[1] == ' ' || p[1] == '\n' || p[1] == '\r' || !p[1]); }
static bool is_empty(const char *p) { return strchr("\r\n#", p[indent_of(p)]) != NULL; } // the end of the text, too

// The lines below a key that belong to it: items and members; what is indented more continues the one before.
static const char *read_block(YamlEntry *e, const char *p, bool skip) {
  size_t own = SIZE_MAX; // indentation of the items
  for (; *p; p = line_end(p) + (*line_end(p) == '\n')) {
    if (is_empty(p)) continue;
    const size_t indent = indent_of(p);
    const char *from = p + indent, *end = line_end(p);
    if (indent == 0 && !is_item(from)) break;
    if (skip) continue;
    if (own == SIZE_MAX) own = indent;
    const char *colon = find_mark(from, end, ":");
    if (indent == own && is_item(from)) {
      e->many = true;
      add_value(e, NULL, scalar(from + 1, end));
    } else if (indent == own && colon < end) {
      e->many = true;
      add_value(e, scalar(from, colon), scalar(colon + 1, end));
    } else if (e->n > 0) { // a long scalar goes on
      char *more = scalar(from, end), *before = e->value[e->n - 1];
      e->value[e->n - 1] = xasprintf("%s%s%s", before, *before ? " " : "", more);
      free(before);
      free(more);
    } else {
      add_value(e, NULL, scalar(from, end));
    }
  }
  return p;
}

Yaml yaml_read(const char *text) {
  Yaml y = {0};
  if (!strncmp(text, "\xEF\xBB\xBF", 3)) text += 3;
  for (const char *p = text; *p;) {
    const char *end = line_end(p), *colon = find_mark(p, end, ":");
    if (is_empty(p) || indent_of(p) > 0 || is_item(p) || colon == end) {
      p = end + (*end == '\n');
      continue;
    }
    y.entry = xrealloc(y.entry, (size_t)(y.n + 1) * sizeof *y.entry);
    YamlEntry *e = &y.entry[y.n++];
    *e = (YamlEntry){.key = scalar(p, colon)};
    const char *value = colon + 1;
    value += indent_of(value);
    p = end + (*end == '\n');
    bool below = value >= end || is_empty(value);
    if (below) { // brackets may begin there
      const char *next = p;
      while (*next && is_empty(next)) next = line_end(next) + (*line_end(next) == '\n');
      next += indent_of(next);
      below = *next != '[' && *next != '{';
      if (!below) value = next;
    }
    if (below) {
      p = read_block(e, p, false);
    } else if (*value == '[' || *value == '{') {
      const bool map = *value == '{';
      const char *all = value + strlen(value), *close = find_mark(value + 1, all, map ? "}" : "]");
      read_flow(e, value + 1, close, map);
      end = line_end(close);
      p = end + (*end == '\n');
    } else {
      const bool literal = *value == '|' || *value == '>';
      add_value(e, NULL, literal ? xstrdup("") : scalar(value, end));
      p = read_block(e, p, literal);
    }
  }
  return y;
}

void yaml_free(Yaml *y) {
  for (int i = 0; i < y->n; i++) {
    YamlEntry *e = &y->entry[i];
    for (int k = 0; k < e->n; k++) {
      free(e->name[k]);
      free(e->value[k]);
    }
    free(e->name);
    free(e->value);
    free(e->key);
  }
  free(y->entry);
  *y = (Yaml){0};
}

const YamlEntry *yaml_find(const Yaml *y, const char *key) {
  for (int i = 0; i < y->n; i++)
    if (!strcmp(y->entry[i].key, key)) return &y->entry[i];
  return NULL;
}
