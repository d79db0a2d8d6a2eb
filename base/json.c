// A streaming JSON reader (RFC 8259): one pass, no tree, depth-limited; positions for messages people can act on.
// Stricter than most where a lenient reading would hide a broken file: no trailing commas, NaN or comments, and
// strings must be UTF-8. Laxer in two places: a byte order mark is skipped, as Windows tools write one, and an escaped
// lone surrogate, which no UTF-8 can hold, becomes U+FFFD.
#include "base/json.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/foreign.h"
#include "base/utf8.h"

void json_open(Json *j, const char *file, const char *text, size_t size) {
  if (size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
    text += 3;
    size -= 3;
  }
  *j = (Json){.file = file, .begin = text, .at = text, .end = text + size};
}

void json_close(Json *j) {
  free(j->scratch);
  j->scratch = NULL;
  j->scratch_cap = 0;
}

// The byte at the present position, or -1 at the end of the text.
static int peek_byte(const Json *j) { return j->at < j->end ? (unsigned char)*j->at : -1; }

static void skip_space(Json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t')) j->at++;
}

bool json_fail(Json *j, const char *fmt, ...) {
  if (j->failed) return false;
  j->failed = true;
  // Lines are counted only here: keeping count while reading would cost every file for the sake of the broken ones.
  long long line = 1 + j->lines_before, column = 1;
  for (const char *p = j->begin; p < j->at; p++) {
    if (*p == '\n') {
      line++;
      column = 1;
    } else if (((unsigned char)*p & 0xC0) != 0x80) { // an editor's column counts characters, not bytes
      column++;
    }
  }
  char what[sizeof j->err.msg / 2];
  va_list args;
  va_start(args, fmt);
  vsnprintf(what, sizeof what, fmt, args);
  va_end(args);
  return err_set(&j->err, "%s:%lld:%lld: %s", j->file, line, column, what);
}

// Fails with "expected WANT, found …", naming a whole word such as NaN rather than its first letter, or with what the
// file is where it is no JSON at all.
static bool expected(Json *j, const char *want) {
  if (j->failed) return false;
  const char *foreign = foreign_file(j->begin, (size_t)(j->end - j->begin));
  if (foreign) {
    j->failed = true;
    return err_set(&j->err, "%s: not JSON, but %s", j->file, foreign);
  }
  int c = peek_byte(j);
  if (c < 0) return json_fail(j, "expected %s, found the end of the file", want);
  if (c < ' ' || c > '~') return json_fail(j, "expected %s, found byte 0x%02X", want, c);
  int length = 1;
  if (isalpha(c))
    while (length < 20 && j->at + length < j->end && isalnum((unsigned char)j->at[length])) length++;
  return json_fail(j, "expected %s, found '%.*s'", want, length, j->at);
}

// The name of a number that is not finite, as Python writes it; NULL: something else follows.
static const char *nonfinite(const Json *j, double *value) {
  static const struct {
    const char *name;
    double value;
  } numbers[] = {{"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
  for (int i = 0; j->takes_nonfinite && i < COUNT(numbers); i++) {
    const size_t length = strlen(numbers[i].name);
    if ((size_t)(j->end - j->at) < length || memcmp(j->at, numbers[i].name, length) != 0) continue;
    *value = numbers[i].value;
    return j->at + length;
  }
  return NULL;
}

JsonType json_peek(Json *j) {
  double value;
  if (j->failed) return JSON_ERROR;
  skip_space(j);
  int c = peek_byte(j);
  switch (c) {
  case '{': return JSON_OBJECT;
  case '[': return JSON_ARRAY;
  case '"': return JSON_STRING;
  case 't':
  case 'f': return JSON_BOOL;
  case 'n': return JSON_NULL;
  case 'N':
  case 'I': return nonfinite(j, &value) ? JSON_NUMBER : JSON_ERROR;
  default: return c == '-' || (c >= '0' && c <= '9') ? JSON_NUMBER : JSON_ERROR;
  }
}

static bool begin_container(Json *j, JsonType type, const char *want) {
  if (json_peek(j) != type) return expected(j, want);
  if (j->depth == JSON_MAX_DEPTH) return json_fail(j, "nested deeper than %d levels", JSON_MAX_DEPTH);
  j->at++;
  j->depth++;
  j->first = true;
  return true;
}

bool json_begin_array(Json *j) { return begin_container(j, JSON_ARRAY, "'['"); }

bool json_begin_object(Json *j) { return begin_container(j, JSON_OBJECT, "'{'"); }

// Steps over the comma before the next element; false once `close` is consumed or on failure.
static bool next_element(Json *j, char close, const char *want_separator, const char *want_element) {
  if (j->failed) return false;
  skip_space(j);
  if (peek_byte(j) == close) {
    j->at++;
    j->depth--;
    j->first = false; // the container just closed was an element of the one around it
    return false;
  }
  if (!j->first) {
    if (peek_byte(j) != ',') return expected(j, want_separator);
    j->at++;
    skip_space(j);
    if (peek_byte(j) == close) return expected(j, want_element);
  }
  j->first = false;
  return true;
}

bool json_next(Json *j) { return next_element(j, ']', "',' or ']'", "a value"); }

// The next key, which `string` reads.
static const char *next_key(Json *j, const char *string(Json *, size_t *)) {
  if (!next_element(j, '}', "',' or '}'", "a key in double quotes")) return NULL;
  if (json_peek(j) != JSON_STRING) {
    expected(j, "a key in double quotes");
    return NULL;
  }
  const char *key = string(j, NULL);
  skip_space(j);
  if (!j->failed && peek_byte(j) != ':') expected(j, "':'");
  if (j->failed) return NULL;
  j->at++;
  return key;
}

const char *json_key(Json *j) { return next_key(j, json_string); }

// Strings

static void append(Json *j, size_t *used, const char *bytes, size_t count) {
  array_reserve((void **)&j->scratch, &j->scratch_cap, *used + count + 1, 1);
  memcpy(j->scratch + *used, bytes, count);
  *used += count;
}

static void append_code_point(Json *j, size_t *used, uint32_t code) {
  char utf8[4];
  size_t count;
  if (code < 0x80) {
    utf8[0] = (char)code;
    count = 1;
  } else {
    count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--, code >>= 6) utf8[i] = (char)(0x80 | (code & 0x3F));
    utf8[0] = (char)((0xF00 >> count) | code);
  }
  append(j, used, utf8, count);
}

// The four hexadecimal digits of \uXXXX.
static bool hex4(Json *j, uint32_t *code) {
  *code = 0;
  for (int i = 0; i < 4; i++, j->at++) {
    int c = peek_byte(j);
    if (c < 0 || !isxdigit(c)) return expected(j, "four hexadecimal digits after \\u");
    *code = *code << 4 | (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
  }
  return true;
}

static bool is_high_surrogate(uint32_t code) { return code >= 0xD800 && code < 0xDC00; }

static bool is_low_surrogate(uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

static bool unicode_escape(Json *j, size_t *used) {
  uint32_t code, low;
  if (!hex4(j, &code)) return false;
  while (is_high_surrogate(code) && j->end - j->at >= 2 && j->at[0] == '\\' && j->at[1] == 'u') {
    j->at += 2;
    if (!hex4(j, &low)) return false;
    if (is_low_surrogate(low)) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else { // the first was alone; the second may still begin a pair
      append_code_point(j, used, 0xFFFD);
      code = low;
    }
  }
  append_code_point(j, used, is_high_surrogate(code) || is_low_surrogate(code) ? 0xFFFD : code);
  return true;
}

static bool escape(Json *j, size_t *used) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  j->at++;
  int c = peek_byte(j);
  if (c == 'u') {
    j->at++;
    return unicode_escape(j, used);
  }
  const char *name = c > 0 ? strchr(names, c) : NULL;
  if (!name) return expected(j, "one of \"\\/bfnrtu after '\\'");
  append(j, used, &values[name - names], 1);
  j->at++;
  return true;
}

static bool is_plain(char c) { return (unsigned char)c >= ' ' && (unsigned char)c < 0x80 && c != '"' && c != '\\'; }

// Any string, as JSON allows it.
static const char *any_string(Json *j, size_t *len) {
  if (len) *len = 0;
  if (json_peek(j) != JSON_STRING) {
    expected(j, "a string");
    return "";
  }
  j->at++;
  size_t used = 0;
  while (peek_byte(j) != '"') {
    const char *run = j->at;
    while (j->at < j->end && is_plain(*j->at)) j->at++;
    append(j, &used, run, (size_t)(j->at - run));
    int c = peek_byte(j);
    if (c == '"') break;
    if (c == '\\') {
      if (!escape(j, &used)) return "";
    } else if (c >= 0x80) {
      size_t count = utf8_length(j->at, j->end);
      if (count == 0) {
        expected(j, "UTF-8 in a string");
        return "";
      }
      append(j, &used, j->at, count);
      j->at += count;
    } else {
      expected(j, c < 0 ? "'\"' at the end of a string" : "control characters in a string to be escaped");
      return "";
    }
  }
  j->at++;
  append(j, &used, "", 1);
  if (len) *len = used - 1;
  return j->scratch;
}

const char *json_string(Json *j, size_t *len) {
  skip_space(j);
  const char *begin = j->at;
  size_t length;
  const char *text = any_string(j, &length);
  if (len) *len = length;
  if (len || j->failed || strlen(text) == length) return text;
  j->at = begin;
  json_fail(j, "expected a string without NUL, found \"%.40s\\u0000…\"; remove the NUL", text);
  return "";
}

// Numbers

typedef struct Number {
  const char *text, *end;
  bool negative, whole; // whole: neither fraction nor exponent
  bool exact;           // digits held every significant digit
  double named;         // the value of NaN, Infinity or -Infinity; otherwise 0
  uint64_t digits;      // value = ±digits · 10^exponent
  int64_t exponent;
} Number;

// Steps over a run of at least one digit and returns its length; 0 is a failure.
static int64_t scan_digits(Json *j, Number *n) {
  const char *begin = j->at;
  for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) {
    uint64_t digit = (uint64_t)(*j->at - '0');
    if (n->digits > (UINT64_MAX - 9) / 10)
      n->exact = false;
    else
      n->digits = 10 * n->digits + digit;
  }
  if (j->at == begin) expected(j, "a digit");
  return j->at - begin;
}

static bool scan_exponent(Json *j, Number *n) {
  bool negative = peek_byte(j) == '-';
  if (negative || peek_byte(j) == '+') j->at++;
  Number e = {.exact = true};
  if (scan_digits(j, &e) == 0) return false;
  int64_t value = e.digits < 1000000 && e.exact ? (int64_t)e.digits : 1000000; // either is far outside a double
  n->exponent += negative ? -value : value;
  return true;
}

static bool scan_number(Json *j, Number *n) {
  *n = (Number){.whole = true, .exact = true};
  if (json_peek(j) != JSON_NUMBER) return expected(j, "a number");
  n->text = j->at;
  const char *end = *j->at >= '0' && *j->at <= '9' ? NULL : nonfinite(j, &n->named);
  if (end) {
    n->whole = false;
    n->end = j->at = end;
    return true;
  }
  if (*j->at == '-') {
    n->negative = true;
    j->at++;
  }
  if (peek_byte(j) == '0') // a leading zero stands alone; what follows it is the caller's to reject
    j->at++;
  else if (scan_digits(j, n) == 0)
    return false;
  if (peek_byte(j) == '.') {
    n->whole = false;
    j->at++;
    n->exponent = -scan_digits(j, n);
    if (j->failed) return false;
  }
  if (peek_byte(j) == 'e' || peek_byte(j) == 'E') {
    n->whole = false;
    j->at++;
    if (!scan_exponent(j, n)) return false;
  }
  n->end = j->at;
  return true;
}

// strtod of a text that need not be NUL-terminated.
static double parse_slowly(const Number *n) {
  char fixed[64];
  size_t length = (size_t)(n->end - n->text);
  char *copy = length < sizeof fixed ? fixed : xmalloc(length + 1);
  memcpy(copy, n->text, length);
  copy[length] = '\0';
  double value = strtod(copy, NULL);
  if (copy != fixed) free(copy);
  return value;
}

enum { EXACT_POWERS = 22, MOST_DIGITS = 19 }; // digits: those of a uint64_t, whatever they are

// Powers of ten to 10^22 are exact in a double.
static const double powers[EXACT_POWERS + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// digits / 10^places, correctly rounded: 62 to 64 bits of the quotient, the last one set when anything remains, are
// more than the 53 that the conversion rounds to. digits > 0, places 1 … 19, so that 10^places fits 64 bits.
static double divide_exactly(uint64_t digits, int places) {
  uint64_t divisor = 1;
  for (int i = 0; i < places; i++) divisor *= 10;
  int up = __builtin_clzll(digits), divisor_up = __builtin_clzll(divisor);
  unsigned __int128 dividend = (unsigned __int128)(digits << up) << 63;
  divisor <<= divisor_up;
  uint64_t quotient = (uint64_t)(dividend / divisor);
  return ldexp((double)(quotient | (dividend % divisor != 0)), divisor_up - up - 63);
}

// Integers to 2^53 are exact in a double too, so that one multiplication or division of them rounds once, correctly
// (Clinger, How to Read Floating Point Numbers Accurately, 1990). What has more digits, as Python writes most doubles,
// is divided in integers; the rest is for the C library.
static double number_value(const Number *n) {
  if (n->named != 0) return n->named; // NaN too
  double value, digits = (double)n->digits;
  if (n->exact && n->digits <= UINT64_C(1) << 53 && n->exponent >= -EXACT_POWERS && n->exponent <= EXACT_POWERS)
    value = n->exponent < 0 ? digits / powers[-n->exponent] : digits * powers[n->exponent];
  else if (n->exact && n->exponent < 0 && n->exponent >= -MOST_DIGITS)
    value = divide_exactly(n->digits, (int)-n->exponent);
  else
    return parse_slowly(n);
  return n->negative ? -value : value;
}

double json_number(Json *j) {
  Number n;
  if (!scan_number(j, &n)) return 0;
  double value = number_value(&n);
  if (isfinite(value) || j->takes_nonfinite) return value;
  j->at = n.text;
  json_fail(j, "expected a number below 1.8e308, found %.*s", (int)MIN(n.end - n.text, 40), n.text);
  return 0;
}

// A number such as -12.75 at p, where at least MOST_DIGITS + 3 bytes can be read; NULL for any other number.
static const char *plain_number(const char *p, double *value) {
  bool negative = *p == '-';
  const char *begin = p += negative, *point = NULL;
  uint64_t digits = 0;
  for (; p < begin + MOST_DIGITS; p++) {
    if (*p == '.' && !point && p > begin)
      point = p;
    else if (*p >= '0' && *p <= '9')
      digits = 10 * digits + (uint64_t)(*p - '0');
    else
      break;
  }
  const char *whole = point ? point : p; // the end of its digits
  bool odd = whole == begin || point == p - 1 || (*begin == '0' && whole > begin + 1);
  if (odd || digits > UINT64_C(1) << 53 || (*p != ',' && *p != ']' && *p != ' ')) return NULL;
  *value = (double)digits;
  if (point) *value /= powers[p - point - 1];
  if (negative) *value = -*value;
  return p;
}

size_t json_numbers(Json *j, double *values, size_t max) {
  size_t n = 0;
  while (n < max && !j->failed && j->end - j->at > MOST_DIGITS + 5) {
    const char *p = j->at;
    if (!j->first && *p++ != ',') break;
    if (*p == ' ') p++; // as Python's json writes it
    if (!(p = plain_number(p, &values[n]))) break;
    j->at = p;
    j->first = false;
    n++;
  }
  return n;
}

static bool is_whole(const Number *n, int64_t *whole) {
  if (n->whole && n->exact && n->digits <= (uint64_t)INT64_MAX + n->negative) {
    *whole = (int64_t)(n->negative ? -n->digits : n->digits);
    return true;
  }
  const double value = n->whole ? INFINITY : number_value(n);
  if (!(fabs(value) < 0x1p53) || value != floor(value)) return false;
  *whole = (int64_t)value;
  return true;
}

bool json_is_int(Json *j, int64_t *value) {
  Number n;
  return scan_number(j, &n) && is_whole(&n, value);
}

int64_t json_int(Json *j) {
  Number n;
  int64_t value;
  if (!scan_number(j, &n)) return 0;
  if (is_whole(&n, &value)) return value;
  j->at = n.text;
  json_fail(j, "expected a whole number, found %.*s%s", (int)MIN(n.end - n.text, 40), n.text,
            n.whole ? ", which does not fit 64 bits" : "");
  return 0;
}

// Literals, and values of any type

static bool literal(Json *j, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(j->end - j->at) < length || memcmp(j->at, word, length) != 0) return expected(j, word);
  j->at += length;
  return true;
}

bool json_bool(Json *j) {
  JsonType type = json_peek(j);
  if (type == JSON_BOOL) return *j->at == 't' ? literal(j, "true") : literal(j, "false") && false;
  Number n;
  const char *begin = j->at;
  if (type == JSON_NUMBER && scan_number(j, &n)) {
    double value = number_value(&n);
    if (value == 0 || value == 1) return value == 1;
    j->at = begin;
  }
  return expected(j, "true, false, 1 or 0");
}

void json_skip(Json *j) {
  Number n;
  switch (json_peek(j)) {
  case JSON_NULL: literal(j, "null"); break;
  case JSON_BOOL: json_bool(j); break;
  case JSON_NUMBER: scan_number(j, &n); break;
  case JSON_STRING: any_string(j, NULL); break;
  case JSON_ARRAY:
    json_begin_array(j);
    while (json_next(j)) json_skip(j);
    break;
  case JSON_OBJECT:
    json_begin_object(j);
    while (next_key(j, any_string)) json_skip(j);
    break;
  case JSON_ERROR: expected(j, "a value"); break;
  }
}

bool json_done(Json *j) {
  if (j->failed) return false;
  CHECK(j->depth == 0); // the caller left a container half read
  skip_space(j);
  return j->at == j->end || expected(j, "the end of the file");
}
