#include "models/config.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/record.h"
#include "base/spelling.h"
#include "base/wrap.h"

const char *const norm_names[] = {
    [NORM_FROZEN_BN] = "frozen-bn", [NORM_BN] = "bn", [NORM_GN] = "gn", [NORM_SYNC_BN] = "syncbn", NULL};
const char *const conventions_choices[] = {"own", [1 + CONVENTIONS_TORCHVISION] = "torchvision",
                                           [1 + CONVENTIONS_DETECTRON2] = "detectron2",
                                           [1 + CONVENTIONS_MLPERF] = "mlperf", NULL};
static const char *const resize_names[] = {[RESIZE_TORCHVISION] = "torchvision",
                                           [RESIZE_DETECTRON2] = "detectron2",
                                           [RESIZE_BENCHMARK] = "maskrcnn-benchmark",
                                           NULL};
static const char *const anchor_names[] = {
    [ANCHORS_ROUNDED] = "rounded", [ANCHORS_EXACT] = "exact", [ANCHORS_LEGACY] = "legacy", NULL};
static const char *const mask_names[] = {
    [MASK_SOFT] = "soft", [MASK_ALIGNED] = "aligned", [MASK_BITMAP] = "bitmap", [MASK_POLYGON] = "polygon", NULL};
static const char *const moved_names[] = {
    [MOVED_MASK] = "mask", [MOVED_POLYGON] = "polygon", [MOVED_BOX] = "box", NULL};

// ---- defaults and conventions ---------------------------------------------------------------------------------------

// Sets the fields whose rows have `columns` values, to that in `column`: those of one, or those of one for each set of
// conventions.
static void set_column(ModelConfig *c, int columns, int column) {
#define SET(name, declared, ...)                                                                                       \
  {                                                                                                                    \
    const declared = {__VA_ARGS__};                                                                                    \
    static_assert(COUNT(value) == 1 || COUNT(value) == CONVENTION_SETS,                                                \
                  #name " has one value, or one for each set of conventions");                                         \
    if (COUNT(value) == columns) memcpy(&c->name, &value[column], sizeof c->name);                                     \
  }
#define INT(name, range, help, ...) SET(name, int value[], __VA_ARGS__)
#define BOOL(name, help, ...) SET(name, bool value[], __VA_ARGS__)
#define FLOAT(name, range, help, ...) SET(name, float value[], __VA_ARGS__)
#define FLOATS(name, count, range, help, ...) SET(name, float value[][count], __VA_ARGS__)
#define ENUM(name, type, names, help, ...) SET(name, type value[], __VA_ARGS__)
#include "models/config.def"
#undef SET
}

void config_conventions(ModelConfig *c, Conventions whose) { set_column(c, CONVENTION_SETS, (int)whose); }

void config_defaults(ModelConfig *c) {
  *c = (ModelConfig){0};
  set_column(c, 1, 0);
  config_conventions(c, CONVENTIONS_TORCHVISION); // after the fields that its values are made of
}

void config_set_proposals(ModelConfig *c, int n) {
  c->rpn_post_nms_train = MAX((int)((int64_t)c->rpn_post_nms_train * n / c->rpn_post_nms_test), n);
  c->rpn_post_nms_test = n;
  c->rpn_pre_nms_train = MAX(c->rpn_pre_nms_train, n);
  c->rpn_pre_nms_test = MAX(c->rpn_pre_nms_test, n);
}

// ---- fields as text ---------------------------------------------------------------------------------------------

typedef enum FieldType { FIELD_INT, FIELD_BOOL, FIELD_FLOAT, FIELD_ENUM } FieldType;
typedef struct Field {
  const char *name;
  FieldType type;
  size_t offset;
  int count;
  const char *const *names; // FIELD_ENUM: of its values
  const char *help;
} Field;

static const Field fields[] = {
#define FIELD(name, type, count, names, help) {#name, type, offsetof(ModelConfig, name), count, names, help},
#define INT(name, range, help, ...) FIELD(name, FIELD_INT, 1, NULL, help)
#define BOOL(name, help, ...) FIELD(name, FIELD_BOOL, 1, NULL, help)
#define FLOAT(name, range, help, ...) FIELD(name, FIELD_FLOAT, 1, NULL, help)
#define FLOATS(name, count, range, help, ...) FIELD(name, FIELD_FLOAT, count, NULL, help)
#define ENUM(name, type, names, help, ...) FIELD(name, FIELD_ENUM, 1, names, help)
#include "models/config.def"
#undef FIELD
};

#define ENUM(name, type, ...) static_assert(sizeof(type) == sizeof(int), #name " is read and set as int");
#include "models/config.def"

int config_fields(void) { return COUNT(fields); }
const char *config_field_name(int field) { return fields[field].name; }

void config_get(const ModelConfig *c, int field, char *text, size_t size) {
  const Field *f = &fields[field];
  const char *p = (const char *)c + f->offset;
  switch (f->type) {
  case FIELD_INT: snprintf(text, size, "%d", *(const int *)p); break;
  case FIELD_BOOL: snprintf(text, size, "%d", *(const bool *)p); break;
  case FIELD_ENUM: snprintf(text, size, "%s", f->names[*(const int *)p]); break;
  case FIELD_FLOAT:
    for (size_t i = 0, used = 0; i < (size_t)f->count && used < size; i++)
      used += (size_t)snprintf(text + used, size - used, i ? ",%.9g" : "%.9g", (double)((const float *)p)[i]);
  }
}

// A decimal from 0 to `highest`.
static bool parse_int(const char *text, int highest, int *value) {
  char *end;
  long parsed = strtol(text, &end, 10);
  if (end == text || *end || parsed < 0 || parsed > highest) return false;
  *value = (int)parsed;
  return true;
}

static bool parse_name(const char *text, const char *const *names, int *value) {
  for (int i = 0; names[i]; i++) {
    if (strcmp(names[i], text)) continue;
    *value = i;
    return true;
  }
  return false;
}

static bool parse_floats(const char *text, int count, float *values) {
  for (int i = 0; i < count; i++) {
    char *end;
    values[i] = strtof(text, &end);
    if (end == text || *end != (i + 1 < count ? ',' : '\0')) return false;
    text = end + 1;
  }
  return true;
}

static bool parse_field(const char *text, const Field *f, void *value) {
  switch (f->type) {
  case FIELD_INT: return parse_int(text, INT32_MAX, value);
  case FIELD_ENUM: return parse_name(text, f->names, value);
  case FIELD_FLOAT: return parse_floats(text, f->count, value);
  case FIELD_BOOL: break;
  }
  int truth;
  if (!parse_int(text, 1, &truth)) return false;
  *(bool *)value = truth != 0;
  return true;
}

bool config_set(ModelConfig *c, const char *name, const char *text, Err *err) {
  for (int i = 0; i < COUNT(fields); i++) {
    if (strcmp(fields[i].name, name)) continue;
    if (parse_field(text, &fields[i], (char *)c + fields[i].offset)) return true;
    return err_set(err, "model configuration: %s = '%s' is not a valid value", name, text);
  }
  return err_set(err, "model configuration: unknown field '%s'", name);
}

// ---- ranges -----------------------------------------------------------------------------------------------------

typedef struct Range {
  enum { RANGE_ANY, RANGE_WITHIN, RANGE_ABOVE } form;
  double low, high; // WITHIN: both inclusive; ABOVE: exclusive, low alone
} Range;
#define ANY ((Range){.form = RANGE_ANY})
#define RANGE(lowest, highest) ((Range){RANGE_WITHIN, lowest, highest})
#define ABOVE(bound) ((Range){.form = RANGE_ABOVE, .low = bound})

// NaN is in no range.
static bool check_range(const char *name, double value, Range r, Err *err) {
  if (r.form == RANGE_ABOVE && !(value > r.low))
    return err_set(err, "model configuration: %s must be above %g", name, r.low);
  if (r.form == RANGE_WITHIN && !(value >= r.low && value <= r.high)) // %.10g: every int as %d has it
    return err_set(err, "model configuration: %s = %.10g is outside %.10g … %.10g", name, value, r.low, r.high);
  if (!isfinite(value)) return err_set(err, "model configuration: %s = %g is not a finite number", name, value);
  return true;
}

static bool check_ints(const ModelConfig *c, int least_size, Err *err) {
#define INT(name, range, ...)                                                                                          \
  if (!check_range(#name, c->name, range, err)) return false;
#include "models/config.def"
  return true;
}

static bool check_floats(const ModelConfig *c, Err *err) {
#define FLOAT(name, range, ...)                                                                                        \
  if (!check_range(#name, (double)c->name, range, err)) return false;
#include "models/config.def"
  return true;
}

static bool check_lists(const ModelConfig *c, Err *err) {
#define FLOATS(name, count, range, ...)                                                                                \
  for (int i = 0; i < count; i++)                                                                                      \
    if (!check_range(#name, (double)c->name[i], range, err)) return false;
#include "models/config.def"
  return true;
}

bool config_ranges(const ModelConfig *c, int least_size, Err *err) {
  if (!check_ints(c, least_size, err)) return false;
  if (c->anchor_kind == ANCHORS_LEGACY && c->anchor_grid_stride)
    return err_set(
        err,
        "model configuration: anchor_grid_stride = 1 cannot be combined with legacy anchors, whose strides are fixed");
  if (c->mask_source == MASK_POLYGON && c->mask_pool > 32)
    return err_set(err, "model configuration: mask_pool = %d is above 32, the limit for mask targets from polygons",
                   c->mask_pool);
  if (c->mask_source == MASK_POLYGON && !(c->mask_least_side > 0))
    return err_set(err, "model configuration: mask_source = polygon needs mask_least_side above 0, such as 0.1");
  if (c->rpn_low > c->rpn_high || c->roi_low > c->roi_high)
    return err_set(err, "model configuration: %s must not be above %s",
                   c->rpn_low > c->rpn_high ? "rpn_low" : "roi_low",
                   c->rpn_low > c->rpn_high ? "rpn_high" : "roi_high");
  if (c->box_extra != 0 && c->box_extra != 1)
    return err_set(err, "model configuration: box_extra = %g: expected 0 or 1", (double)c->box_extra);
  if (!check_floats(c, err) || !check_lists(c, err)) return false;
  if (c->norm == NORM_GN && c->width % c->norm_groups)
    return err_set(err, "model configuration: width %d is not divisible by norm_groups = %d", c->width, c->norm_groups);
  return true;
}

static Range range_of(const ModelConfig *c, int least_size, int field) {
  const Range ranges[] = {
#define INT(name, range, ...) range,
#define BOOL(name, ...) ANY,
#define FLOAT(name, range, ...) range,
#define FLOATS(name, count, range, ...) range,
#define ENUM(name, ...) ANY,
#include "models/config.def"
  };
  return ranges[field];
}

// ---- help -----------------------------------------------------------------------------------------------------------

// "1 to 65536", "frozen-bn, bn, gn, syncbn"; "": any value.
static void range_text(const Field *f, Range r, char *text, size_t size) {
  size_t n = 0;
  *text = '\0';
  for (int i = 0; f->type == FIELD_ENUM && f->names[i] && n < size; i++)
    n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : "", f->names[i]);
  if (f->type == FIELD_BOOL) snprintf(text, size, "true or false");
  if (r.form == RANGE_ABOVE) snprintf(text, size, "above %g", r.low);
  if (r.form == RANGE_WITHIN) snprintf(text, size, "%.10g to %.10g", r.low, r.high);
}

// The value as a person writes it: 0.7, which a float is not, and true, which checkpoints have as 1.
static void value_text(const ModelConfig *c, int field, char *text, size_t size) {
  const Field *f = &fields[field];
  const float *v = (const float *)(const void *)((const char *)c + f->offset);
  char number[NUMBER_TEXT];
  config_get(c, field, text, size);
  if (f->type == FIELD_BOOL) snprintf(text, size, "%s", *(const bool *)(const void *)v ? "true" : "false");
  if (f->offset == offsetof(ModelConfig, classes) && !c->classes) snprintf(text, size, "from the data");
  if (f->type != FIELD_FLOAT) return;
  size_t used = 0;
  for (int i = 0; i < f->count && used < size; i++) {
    const char *one = v[i] == FLT_MIN ? "above 0" : number_text(float_decimal(v[i]), number);
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", one);
  }
}

// Whether a detector, or a classifier, uses it.
static bool is_for(const Field *f, bool detector) {
  const bool heads = f->offset >= offsetof(ModelConfig, anchor_size) && f->offset < offsetof(ModelConfig, classes);
  return detector ? f->offset < offsetof(ModelConfig, grey) : !heads;
}

void config_print_help(const ModelConfig *c, const ListFor *of, int columns, FILE *out) {
  char value[256], range[256], help[768];
  const int column = MIN(48, columns / 2); // of the sentences

  for (int i = 0; i < COUNT(fields); i++) {
    if (!is_for(&fields[i], of->detector)) continue;
    value_text(c, i, value, sizeof value);
    range_text(&fields[i], range_of(c, of->least_size, i), range, sizeof range);
    snprintf(help, sizeof help, "%s%s%s%s", fields[i].help, *range ? " (" : "", range, *range ? ")" : "");
    int used = fprintf(out, "  %-22s %s", fields[i].name, value);
    if (used + 2 > column) used = fprintf(out, "\n") - 1;
    fprintf(out, "%*s", column - used, "");
    wrap_print(out, help, column, column, columns);
  }
}

// ---- lists of fields ------------------------------------------------------------------------------------------------

// What a trained model may have otherwise: how its input is resized, and which of its boxes are proposals and results.
#define IN(name) offsetof(ModelConfig, name)
static const size_t of_inference[] = {IN(size),     IN(max_size),     IN(rpn_pre_nms_test), IN(rpn_post_nms_test),
                                      IN(rpn_nms),  IN(rpn_min_size), IN(rpn_min_score),    IN(min_score),
                                      IN(min_size), IN(nms),          IN(detections),       IN(mask_paste_exact),
                                      IN(view)};
#undef IN

static bool is_of_inference(const Field *f) {
  for (int i = 0; i < COUNT(of_inference); i++)
    if (of_inference[i] == f->offset) return true;
  return false;
}

static const Field *field_named(const char *name, size_t length) {
  for (int i = 0; i < COUNT(fields); i++)
    if (strlen(fields[i].name) == length && !memcmp(fields[i].name, name, length)) return &fields[i];
  return NULL;
}

static bool unknown_field(const char *name, size_t length, Err *err) {
  const int known = (int)MIN(length, SPELLING_MOST);
  char part[SPELLING_MOST + 1];
  snprintf(part, sizeof part, "%.*s", known, name);
  const Field *nearest = NULL; // the shortest with this part, or one of which at most every third letter is another
  enum { MISSPELT = 1000 };
  int best = MISSPELT + known / 3 + 1;
  for (int i = 0; i < COUNT(fields) && length <= SPELLING_MOST; i++) {
    const char *other = fields[i].name;
    const int d =
        known > 2 && strstr(other, part) ? (int)strlen(other) : MISSPELT + spelling_distance(name, length, other);
    if (d >= best) continue;
    best = d;
    nearest = &fields[i];
  }
  return err_set(err, "--set %s: unknown field; %s%s%strain --help model lists the fields", part,
                 nearest ? "did you mean " : "", nearest ? nearest->name : "", nearest ? "? " : "");
}

// Its values lie within its range.
static bool field_fits(const ModelConfig *c, int least_size, const Field *f) {
  const Range r = range_of(c, least_size, (int)(f - fields));
  const void *p = (const char *)c + f->offset;
  for (int i = 0; i < f->count; i++) {
    const double v = f->type == FIELD_FLOAT ? (double)((const float *)p)[i]
                     : f->type == FIELD_INT ? *(const int *)p
                                            : 0;
    if (!isfinite(v) || (r.form == RANGE_ABOVE && !(v > r.low)) ||
        (r.form == RANGE_WITHIN && !(v >= r.low && v <= r.high)))
      return false;
  }
  return true;
}

static bool set_pair(ModelConfig *c, const ListFor *of, const char *pair, size_t length, Err *err) {
  char value[256], range[256];
  const char *equals = memchr(pair, '=', length);
  if (!equals)
    return err_set(err, "--set %.*s: expected FIELD=VALUE; train --help model lists the fields", (int)MIN(length, 64),
                   pair);
  const size_t name = (size_t)(equals - pair), rest = length - name - 1;
  const Field *f = field_named(pair, name);
  if (!f) return unknown_field(pair, name, err);
  if (f->offset == offsetof(ModelConfig, classes))
    return err_set(err, "--set classes: the number of classes is that of the data; leave it out");
  if (!is_for(f, of->detector))
    return err_set(err, "--set %s: it is for %s; leave it out", f->name, of->detector ? "classifiers" : "detectors");
  if (of->trained && !is_of_inference(f))
    return err_set(err, "--set %s: the weights were trained with its value; set it in training only", f->name);
  snprintf(value, sizeof value, "%.*s", (int)MIN(rest, sizeof value - 1), equals + 1);
  if (f->type == FIELD_BOOL && !strcmp(value, "true")) snprintf(value, sizeof value, "1");
  if (f->type == FIELD_BOOL && !strcmp(value, "false")) snprintf(value, sizeof value, "0");
  if (parse_field(value, f, (char *)c + f->offset) && field_fits(c, of->least_size, f)) return true;
  range_text(f, range_of(c, of->least_size, (int)(f - fields)), range, sizeof range);
  char count[48] = "";
  if (f->count > 1) snprintf(count, sizeof count, "%d numbers separated by commas", f->count);
  const char *what = *count ? count : f->type == FIELD_INT ? "an integer" : f->type == FIELD_FLOAT ? "a number" : "";
  return err_set(err, "--set %s=%s: expected %s%s%s", f->name, value, what, *what && *range ? ", " : "", range);
}

bool config_set_list(ModelConfig *c, const ListFor *of, const char *list, Err *err) {
  for (size_t length; *list; list += length) {
    list += strspn(list, " ");
    length = strcspn(list, " ");
    if (length && !set_pair(c, of, list, length, err)) return false;
  }
  return true;
}

// The value of a field in a list, up to the next blank; NULL: the list, which may be NULL, does not set it.
static const char *in_list(const char *list, const char *name) {
  const size_t n = strlen(name);
  const char *value = NULL;
  for (const char *at = list; at && *at; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    if (!strncmp(at, name, n) && at[n] == '=') value = at + n + 1;
  }
  return value;
}

bool config_list_sets(const char *list, const char *name) { return in_list(list, name); }

bool config_list_alone(const char *list, const Option *rows, int n, const void *values, Err *err) {
  for (int i = 0; i < n; i++)
    if (rows[i].type != OPT_HEADING && option_source(&rows[i], values) == FROM_GIVEN && in_list(list, rows[i].name))
      return err_set(err, "--%s and --set %s cannot be combined: leave one of them out", option_name(&rows[i]).text,
                     rows[i].name);
  return true;
}
