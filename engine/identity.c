#include "engine/identity.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json.h"

static bool listed(const char *const *keys, const char *key) {
  for (; *keys; keys++)
    if (!strcmp(*keys, key)) return true;
  return false;
}

// The text of a member's value, malloc'ed; NULL: no such member.
static char *find_member(const char *identity, const char *name) {
  Json j;
  const char *key;
  char *text = NULL;
  json_open(&j, "run", identity, strlen(identity));
  if (json_begin_object(&j))
    while (!text && (key = json_key(&j))) {
      bool found = !strcmp(key, name);
      json_peek(&j); // skips white space
      const char *begin = j.at;
      json_skip(&j);
      if (found && !j.failed) text = xasprintf("%.*s", (int)(j.at - begin), begin);
    }
  json_close(&j);
  return text;
}

// The same; "null" if there is no such member.
static char *member(const char *identity, const char *name) {
  char *text = find_member(identity, name);
  return text ? text : xstrdup("null");
}

bool identity_is_older(const char *identity) {
  char *text = find_member(identity, "recipe"); // "conventions" since 1.2
  const bool is = text != NULL;
  free(text);
  return is;
}

typedef bool (*OnDifference)(void *context, const char *key, const char *was, const char *is);

// Visits the members of `of`, one of a and b, whose values in a and b differ, until the visitor returns false; of those
// in both only with `common`.
static bool visit_members(const char *of, const char *a, const char *b, bool common, OnDifference visit,
                          void *context) {
  Json j;
  const char *key;
  bool ok = true;
  json_open(&j, "run", of, strlen(of));
  if (json_begin_object(&j))
    while (ok && (key = json_key(&j))) {
      char *was = member(a, key), *is = member(b, key);
      // A number that an older version did not record was 0.
      const bool zero = (!strcmp(was, "null") && !strcmp(is, "0")) || (!strcmp(was, "0") && !strcmp(is, "null"));
      if (strcmp(was, is) && !zero && (common || !strcmp(is, "null"))) ok = visit(context, key, was, is);
      free(was);
      free(is);
      json_skip(&j);
    }
  ok = ok && !j.failed;
  json_close(&j);
  return ok;
}

// Visits the members that differ, null where one of the two has none: those of b first, in its order.
static bool visit_differences(const char *a, const char *b, OnDifference visit, void *context) {
  return visit_members(b, a, b, true, visit, context) && visit_members(a, a, b, false, visit, context);
}

typedef struct Amendment {
  const char *const *amendable;
  Record *changes; // NULL: nothing may differ
  Err *err;
} Amendment;

static bool refuse(void *context, const char *key, const char *was, const char *is) {
  const Amendment *a = context;
  const char *hint = listed(a->amendable, key)
                         ? "give the same options, add --amend to change them, or choose another --out"
                         : "give the same options or choose another --out";
  return err_set(a->err, "it was made with \"%s\":%s, but this run has \"%s\":%s: %s", key, was, key, is, hint);
}

bool identity_same(const char *was, const char *is, const char *const *amendable, Err *err) {
  err_set(err, "its record of the run is malformed");
  return visit_differences(was, is, refuse, &(Amendment){amendable, NULL, err});
}

static bool tell_apart(void *err, const char *key, const char *was, const char *is) {
  return err_set(err, "it has \"%s\":%s, but rank 0 has \"%s\":%s: give all ranks the same options and data", key, is,
                 key, was);
}

bool identity_agrees(const char *of_first, const char *other, Err *err) {
  err_set(err, "its description of the run is malformed");
  return visit_differences(of_first, other, tell_apart, err);
}

bool identity_number(const char *identity, const char *name, double *value) {
  Json j;
  char *text = member(identity, name);
  json_open(&j, "run", text, strlen(text));
  *value = json_number(&j);
  const bool is = json_done(&j);
  json_close(&j);
  free(text);
  return is;
}

bool identity_flag(const char *identity, const char *name, bool *value) {
  char *text = member(identity, name);
  *value = !strcmp(text, "true");
  const bool is = *value || !strcmp(text, "false");
  free(text);
  return is;
}

char *identity_text(const char *identity, const char *name) {
  Json j;
  char *value = member(identity, name);
  json_open(&j, "run", value, strlen(value));
  const char *found = json_string(&j, NULL);
  char *text = json_done(&j) ? xstrdup(found) : NULL;
  json_close(&j);
  free(value);
  return text;
}

static bool add_change(void *context, const char *key, const char *was, const char *is) {
  Amendment *a = context;
  if (!listed(a->amendable, key))
    return err_set(a->err, "it was made with \"%s\":%s, but this run has \"%s\":%s, which --amend cannot change", key,
                   was, key, is);
  char *both = xasprintf("[%s,%s]", was, is);
  record_raw(a->changes, key, both);
  free(both);
  return true;
}

static long long number(const char *identity, const char *name) {
  char *text = member(identity, name);
  const long long n = atoll(text);
  free(text);
  return n;
}

// Whether a step has as many images as before, so that the order of images and the schedule continue unchanged.
static bool same_images(const char *was, const char *is, Err *err) {
  const long long batch = number(was, "batch"), world = number(was, "world"), now = number(is, "world");
  if (batch * world == number(is, "batch") * now) return true;
  if (now < 1 || batch * world % now)
    return err_set(err,
                   "it was made with %lld images per step, which cannot be divided evenly between %lld ranks: choose "
                   "another --gpus",
                   batch * world, now);
  return err_set(err, "it was made with %lld images per step (%lld on each of %lld ranks): continue with --batch %lld",
                 batch * world, batch, world, batch * world / now);
}

bool identity_amend(const char *was, const char *is, const char *const *amendable, Record *changes, Err *err) {
  if (!same_images(was, is, err)) return false;
  err_set(err, "its record of the run is malformed");
  return visit_differences(was, is, add_change, &(Amendment){amendable, changes, err});
}
