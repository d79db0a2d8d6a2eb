// Catches JSON that is wrongly accepted, rejected or rounded, errors at the wrong position, and crashes on bad input.
#include <sys/mman.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/rng.h"
#include "test/harness/test.h"

// Reads one value and the end; the text is copied to its exact size, so that a sanitizer sees any step outside.
static bool accepts(const char *text, size_t size, Err *err) {
  char *exact = xmalloc(size);
  memcpy(exact, text, size);
  Json j;
  json_open(&j, "doc", exact, size);
  json_skip(&j);
  bool ok = json_done(&j);
  *err = j.err;
  json_close(&j);
  free(exact);
  return ok;
}

TEST(json_accepts_valid) {
  static const char *valid[] = {"0",
                                "-0",
                                "1e5",
                                "1E+5",
                                "-0.5e-10",
                                "\"\"",
                                "null",
                                "true",
                                " false ",
                                "[]",
                                "{}",
                                "[ ]",
                                "{ }",
                                "[1,2]",
                                "[[],{}]",
                                "{\"a\":{\"b\":[null]},\"a\":1}",
                                "\t[\r\n1 , 2\n]\n",
                                "\"\\u0000\\uD834\\uDD1E\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                "\"\xC3\xA9\xE2\x82\xAC\xF0\x9D\x84\x9E\x7F\"",
                                "\xEF\xBB\xBF[1]"};
  Err err;
  for (int i = 0; i < COUNT(valid); i++)
    if (!EXPECT(accepts(valid[i], strlen(valid[i]), &err))) printf("  %s: %s\n", valid[i], err.msg);
}

TEST(json_rejects_malformed_with_position) {
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "doc:1:1: expected a value, found the end of the file"},
      {" \n ", "doc:2:2: expected a value, found the end of the file"},
      {"[1,]", "doc:1:4: expected a value, found ']'"},
      {"[,1]", "doc:1:2: expected a value, found ','"},
      {"[1,,2]", "doc:1:4: expected a value, found ','"},
      {"[1 2]", "doc:1:4: expected ',' or ']', found '2'"},
      {"[1}", "doc:1:3: expected ',' or ']', found '}'"},
      {"[1", "doc:1:3: expected ',' or ']', found the end of the file"},
      {"]", "doc:1:1: expected a value, found ']'"},
      {"{\"a\":1,}", "doc:1:8: expected a key in double quotes, found '}'"},
      {"{a:1}", "doc:1:2: expected a key in double quotes, found 'a'"},
      {"{'a':1}", "doc:1:2: expected a key in double quotes, found '''"},
      {"{\"a\" 1}", "doc:1:6: expected ':', found '1'"},
      {"{\"a\":}", "doc:1:6: expected a value, found '}'"},
      {"{\"a\":1]", "doc:1:7: expected ',' or '}', found ']'"},
      {"{1:2}", "doc:1:2: expected a key in double quotes, found '1'"},
      {"[\n  1,\n  NaN\n]", "doc:3:3: expected a value, found 'NaN'"},
      {"Infinity", "doc:1:1: expected a value, found 'Infinity'"},
      {"-Infinity", "doc:1:2: expected a digit, found 'Infinity'"},
      {"nul", "doc:1:1: expected null, found 'nul'"},
      {"truE", "doc:1:1: expected true, found 'truE'"},
      {"True", "doc:1:1: expected a value, found 'True'"},
      {"nullx", "doc:1:5: expected the end of the file, found 'x'"},
      {"1 2", "doc:1:3: expected the end of the file, found '2'"},
      {"[1] // no", "doc:1:5: expected the end of the file, found '/'"},
      {"01", "doc:1:2: expected the end of the file, found '1'"},
      {"-", "doc:1:2: expected a digit, found the end of the file"},
      {"+1", "doc:1:1: expected a value, found '+'"},
      {".5", "doc:1:1: expected a value, found '.'"},
      {"1.", "doc:1:3: expected a digit, found the end of the file"},
      {"1.e5", "doc:1:3: expected a digit, found 'e5'"},
      {"1e", "doc:1:3: expected a digit, found the end of the file"},
      {"1e+", "doc:1:4: expected a digit, found the end of the file"},
      {"0x10", "doc:1:2: expected the end of the file, found 'x10'"},
      {"\"a", "doc:1:3: expected '\"' at the end of a string, found the end of the file"},
      {"\"a\nb\"", "doc:1:3: expected control characters in a string to be escaped, found byte 0x0A"},
      {"\"\\x\"", "doc:1:3: expected one of \"\\/bfnrtu after '\\', found 'x'"},
      {"\"\\u12G4\"", "doc:1:6: expected four hexadecimal digits after \\u, found 'G4'"},
      {"\"\xE9t\xE9\"", "doc:1:2: expected UTF-8 in a string, found byte 0xE9"},    // Latin-1
      {"\"\xC0\x80\"", "doc:1:2: expected UTF-8 in a string, found byte 0xC0"},     // overlong
      {"\"\xE0\x80\x80\"", "doc:1:2: expected UTF-8 in a string, found byte 0xE0"}, // overlong
      {"\"\xED\xA0\x80\"", "doc:1:2: expected UTF-8 in a string, found byte 0xED"}, // surrogate
      {"\"\xF4\x90\x80\x80\"", "doc:1:2: expected UTF-8 in a string, found byte 0xF4"},
      {"\"\xC3\xA9\xC3\xA9\" x", "doc:1:6: expected the end of the file, found 'x'"}, // columns count characters
      {"[\xEF\xBB\xBF]", "doc:1:2: expected a value, found byte 0xEF"},               // a mark in the middle
  };
  Err err;
  for (int i = 0; i < COUNT(cases); i++) {
    EXPECT(!accepts(cases[i].text, strlen(cases[i].text), &err));
    EXPECT_STR(err.msg, cases[i].message);
  }
  EXPECT(!accepts("[0\0]", 4, &err));
  EXPECT_STR(err.msg, "doc:1:3: expected ',' or ']', found byte 0x00");
}

// The callers of json_key and json_string(j, NULL) take a string to end at its first NUL: another key would pass for
// the one that they look for. A value that is skipped may hold any.
TEST(json_refuses_nul_in_strings_that_end_at_it) {
  static const char text[] = "{\"a\":{\"b\\u0000c\":\"\\u0000\"},\n \"bbox\\u0000note\": \"x\\u0000y\"}";
  Json j;
  json_open(&j, "doc", text, sizeof text - 1);
  EXPECT(json_begin_object(&j));
  EXPECT_STR(json_key(&j), "a");
  json_skip(&j);
  EXPECT(!json_key(&j));
  EXPECT_STR(j.err.msg, "doc:2:2: expected a string without NUL, found \"bbox\\u0000…\"; remove the NUL");
  json_close(&j);

  static const char strings[] = "[\"x\\u0000y\", \"x\\u0000y\"]";
  size_t length;
  json_open(&j, "doc", strings, sizeof strings - 1);
  EXPECT(json_begin_array(&j) && json_next(&j));
  EXPECT(!memcmp(json_string(&j, &length), "x\0y", 4));
  EXPECT_INT((long long)length, 3);
  EXPECT(json_next(&j));
  EXPECT_STR(json_string(&j, NULL), "");
  EXPECT_STR(j.err.msg, "doc:1:14: expected a string without NUL, found \"x\\u0000…\"; remove the NUL");
  json_close(&j);
}

static const char document[] = "{\"info\":{\"year\":2017,\"\\u00e9\":null},\"images\":[{\"id\":-1.5e+3,\"ok\":true},[],"
                               "{},{\"name\":\"a\\\\\\ud834\\udd1e\xC3\xA9\",\"f\":false}],\n \"n\":[0,1,0.25]}";

TEST(json_rejects_every_truncation) {
  Err err;
  size_t size = sizeof document - 1;
  EXPECT(accepts(document, size, &err));
  for (size_t i = 0; i < size; i++) {
    EXPECT(!accepts(document, i, &err));
    EXPECT(strncmp(err.msg, "doc:", 4) == 0);
  }
}

// Every byte replaced by every other: the reader ends, within its bounds, with a message exactly when it rejects.
TEST(json_survives_every_mutation) {
  Err err;
  char mutated[sizeof document];
  int accepted = 0;
  for (size_t i = 0; i < sizeof document - 1; i++)
    for (int byte = 0; byte < 256; byte++) {
      memcpy(mutated, document, sizeof document);
      mutated[i] = (char)byte;
      bool ok = accepts(mutated, sizeof document - 1, &err);
      accepted += ok;
      if (ok == (err.msg[0] != '\0')) EXPECT(!"a message exactly when rejected");
    }
  EXPECT(accepted > (int)sizeof document && accepted < 256 * (int)sizeof document);
}

TEST(json_limits_depth) {
  Err err;
  char text[2 * JSON_MAX_DEPTH + 4];
  for (int depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    EXPECT(accepts(text, 2 * (size_t)depth, &err) == (depth == JSON_MAX_DEPTH));
  }
  EXPECT_STR(err.msg, "doc:1:257: nested deeper than 256 levels");
  size_t size = 1 << 20;
  char *deep = xmalloc(size);
  for (size_t i = 0; i < size; i++) deep[i] = "[{\"a\":"[i % 6]; // "[", "{" in turn, as keys allow
  EXPECT(!accepts(deep, size, &err));
  free(deep);
}

static double number_of(const char *text, bool *ok) {
  Json j;
  json_open(&j, "doc", text, strlen(text));
  double value = json_number(&j);
  *ok = json_done(&j);
  json_close(&j);
  return value;
}

// Reads an array of the number with json_numbers as far as that goes, and the rest one by one: all bits must be those
// of strtod.
static bool right_in_lists(const char *text) {
  char *list = xasprintf("[%s,%s, %s , %s\n, %s]", text, text, text, text, text);
  double want = strtod(text, NULL), values[8];
  size_t n = 0;
  Json j;
  json_open(&j, "doc", list, strlen(list));
  for (json_begin_array(&j);;) {
    n += json_numbers(&j, values + n, COUNT(values) - n);
    if (!json_next(&j) || n == COUNT(values)) break;
    values[n++] = json_number(&j);
  }
  bool right = json_done(&j) && n == 5;
  for (size_t i = 0; i < n; i++) right &= memcmp(&values[i], &want, sizeof want) == 0;
  json_close(&j);
  free(list);
  return right;
}

static void expect_as_strtod(const char *text) {
  bool ok;
  double got = number_of(text, &ok), want = strtod(text, NULL);
  EXPECT(ok && right_in_lists(text));
  if (memcmp(&got, &want, sizeof got) != 0) { // bits, so that -0 counts
    printf("  %s\n", text);
    EXPECT_NEAR(got, want, -1);
  }
}

TEST(json_numbers_are_correctly_rounded) {
  static const char *hard[] = {"-0",
                               "0.0",
                               "1e22",
                               "1e23",
                               "9007199254740993",
                               "9007199254740992e22",
                               "9007199254740993e-22",
                               "18446744073709551616",
                               "2.2250738585072011e-308",
                               "4.9e-324",
                               "2.4e-324",
                               "1e-999999999999",
                               "0e999999999999",
                               "1.7976931348623157e308",
                               "0.1e-22",
                               "123456789012345678901234567890.123456789",
                               "1.00000000000000011102230246251565404236316680908203125",
                               "0.000000000000000000000000000000000000000000000000000000000000000000000000000000001"};
  for (int i = 0; i < COUNT(hard); i++) expect_as_strtod(hard[i]);
  char text[64];
  for (uint64_t i = 0; i < 20000; i++) {
    uint64_t bits = rng_key(RNG_TEST, i);
    double value;
    memcpy(&value, &bits, sizeof value);
    if (!isfinite(value)) continue;
    snprintf(text, sizeof text, "%.*g", (int)(1 + i % 17), value);
    expect_as_strtod(text);
    snprintf(text, sizeof text, "%.*f", (int)(i % 12), (double)(bits >> 40) / 1000); // as coordinates are written
    expect_as_strtod(text);
    snprintf(text, sizeof text, "%.*f", (int)(i % 20), (double)(float)((double)bits / 0x1p58)); // 15 to 20 digits
    expect_as_strtod(text);
  }
}

// What json_numbers leaves to json_next and json_number keeps its message and place.
TEST(json_number_lists_stop_before_mistakes) {
  static const char *wrong[][2] = {
      {"01", "doc:1:9: expected ',' or ']', found '1'"},   {"1.", "doc:1:10: expected a digit, found ','"},
      {".5", "doc:1:8: expected a number, found '.'"},     {"1..5", "doc:1:10: expected a digit, found '.'"},
      {"--1", "doc:1:9: expected a digit, found '-'"},     {"", "doc:1:8: expected a number, found ','"},
      {"1 2", "doc:1:10: expected ',' or ']', found '2'"}, {"null", "doc:1:8: expected a number, found 'null'"}};
  for (int i = 0; i < COUNT(wrong); i++) {
    char *list = xasprintf("[1.5,2,%s,3,4,5,6,7,8,9,10,11,12,13,14]", wrong[i][0]);
    double values[32];
    Json j;
    json_open(&j, "doc", list, strlen(list));
    json_begin_array(&j);
    for (size_t n = json_numbers(&j, values, COUNT(values)); json_next(&j) && n < COUNT(values);)
      values[n++] = json_number(&j);
    EXPECT_STR(j.err.msg, wrong[i][1]);
    json_close(&j);
    free(list);
  }
}

TEST(json_rejects_numbers_out_of_range) {
  Json j;
  static const char *huge[] = {"1e309", "-1e309", "1e999999999999999999999"};
  for (int i = 0; i < COUNT(huge); i++) {
    json_open(&j, "doc", huge[i], strlen(huge[i]));
    EXPECT_NEAR(json_number(&j), 0, 0);
    EXPECT(j.failed);
  }
  EXPECT_STR(j.err.msg, "doc:1:1: expected a number below 1.8e308, found 1e999999999999999999999");
  size_t size = 100000; // more digits than any fixed buffer
  char *digits = xmalloc(size);
  memset(digits, '7', size);
  json_open(&j, "doc", digits, size);
  json_number(&j);
  EXPECT(j.failed);
  digits[1] = '.';
  json_open(&j, "doc", digits, size);
  EXPECT_NEAR(json_number(&j), 7.777777777777778, 0);
  EXPECT(json_done(&j));
  free(digits);
}

TEST(json_integers_are_exact) {
  static const struct {
    const char *text;
    bool ok;
    int64_t value;
  } cases[] = {{"0", true, 0},
               {"-0", true, 0},
               {"-17", true, -17},
               {"9223372036854775807", true, INT64_MAX},
               {"-9223372036854775807", true, -INT64_MAX},
               {"-9223372036854775808", true, INT64_MIN},
               {"9223372036854775808", false, 0},
               {"-9223372036854775809", false, 0},
               {"18446744073709551616", false, 0}, // 2^64: its first 19 digits would fit
               {"99999999999999999999999", false, 0},
               {"900100000257", true, 900100000257},
               {"9007199254740993", true, 9007199254740993},
               {"12.0", true, 12},
               {"1.2e1", true, 12},
               {"12.5", false, 0},
               {"1e20", false, 0},
               {"\"12\"", false, 0},
               {"null", false, 0}};
  for (int i = 0; i < COUNT(cases); i++) {
    Json j;
    json_open(&j, "doc", cases[i].text, strlen(cases[i].text));
    EXPECT_INT(json_int(&j), cases[i].value);
    EXPECT(json_done(&j) == cases[i].ok);
    json_close(&j);
  }
}

TEST(json_strings_are_unescaped) {
  static const struct {
    const char *text, *value;
    size_t len;
  } cases[] = {{"\"\"", "", 0},
               {"\"a\\u0062c\"", "abc", 3},
               {"\"\\u0000x\"", "\0x", 2},
               {"\"\\b\\f\\n\\r\\t\\/\\\"\\\\\"", "\b\f\n\r\t/\"\\", 8},
               {"\"\\u00e9\\u20AC\"", "\xC3\xA9\xE2\x82\xAC", 5},
               {"\"\\uD834\\uDD1E\"", "\xF0\x9D\x84\x9E", 4},
               {"\"\\uDBFF\\uDFFF\"", "\xF4\x8F\xBF\xBF", 4},
               {"\"\\uD834x\"", "\xEF\xBF\xBDx", 4}, // lone surrogates become U+FFFD
               {"\"\\uDD1E\"", "\xEF\xBF\xBD", 3},
               {"\"\\uD834\\uD834\\uDD1E\"", "\xEF\xBF\xBD\xF0\x9D\x84\x9E", 7},
               {"\"\\uD834\\u0041\"", "\xEF\xBF\xBD\x41", 4}};
  for (int i = 0; i < COUNT(cases); i++) {
    Json j;
    json_open(&j, "doc", cases[i].text, strlen(cases[i].text));
    size_t len;
    const char *s = json_string(&j, &len);
    EXPECT_INT((long long)len, (long long)cases[i].len);
    EXPECT(len == cases[i].len && memcmp(s, cases[i].value, len + 1) == 0);
    EXPECT(json_done(&j));
    json_close(&j);
  }
}

TEST(json_bool_reads_flags) {
  Json j;
  const char *text = "[true, false, 1, 0, 1.0, 2]";
  json_open(&j, "doc", text, strlen(text));
  static const bool want[] = {true, false, true, false, true, false};
  if (json_begin_array(&j))
    for (int i = 0; json_next(&j); i++) EXPECT(json_bool(&j) == want[i]);
  EXPECT(!json_done(&j));
  EXPECT_STR(j.err.msg, "doc:1:26: expected true, false, 1 or 0, found '2'");
  json_close(&j);
}

// After a failure every call is harmless, so that loops written without a check in each line still end.
TEST(json_first_failure_stays) {
  Json j;
  const char *text = "{\"a\": [1, \"x\"], \"b\": 2}";
  json_open(&j, "doc", text, strlen(text));
  int numbers = 0;
  if (json_begin_object(&j))
    while (json_key(&j))
      if (json_begin_array(&j))
        for (; json_next(&j); numbers++) json_number(&j);
  EXPECT_INT(numbers, 2);
  EXPECT_STR(j.err.msg, "doc:1:11: expected a number, found '\"'");
  EXPECT_INT(json_peek(&j), JSON_ERROR);
  EXPECT(!json_begin_object(&j) && !json_begin_array(&j) && !json_key(&j) && !json_next(&j) && !json_bool(&j));
  EXPECT(json_int(&j) == 0 && json_string(&j, NULL)[0] == '\0');
  json_skip(&j);
  EXPECT(!json_fail(&j, "another"));
  EXPECT_STR(j.err.msg, "doc:1:11: expected a number, found '\"'");
  json_close(&j);
}

// Pages that are only read take no memory.
TEST_TIER(json_columns_past_two_gigabytes, 1) {
  const size_t size = (1u << 31) + 100;
  char *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!EXPECT(text != MAP_FAILED)) return;
  Json j;
  json_open(&j, "doc", text, size);
  j.at = j.end - 1;
  json_fail(&j, "here");
  EXPECT_STR(j.err.msg, "doc:1:2147483748: here");
  json_close(&j);
  munmap(text, size);
}
