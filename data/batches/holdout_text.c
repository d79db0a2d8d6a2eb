// Hold-outs as options, and as texts in weights.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/json.h"
#include "base/record.h"
#include "base/text.h"
#include "data/batches/holdout.h"

enum { KEY_DIGITS = 16, DIGEST_DIGITS = 8, MOST_FOLDS = 1000 };

// ---- options --------------------------------------------------------------------------------------------------------

// "2/5"
static bool read_fold(HoldoutOptions *o, const char *text, Err *err) {
  int end = 0;
  if (sscanf(text, "%9d/%9d%n", &o->fold, &o->folds, &end) != 2 || text[end] || o->folds < 2 || o->folds > MOST_FOLDS ||
      o->fold < 1 || o->fold > o->folds)
    return err_set(err, "--fold %.100s: give I/N with I from 1 to N and N from 2 to %d, such as 2/5", text, MOST_FOLDS);
  return true;
}

bool holdout_options(HoldoutOptions *o, float fraction, const char *fold, const char *group, uint64_t seed, Err *err) {
  *o = (HoldoutOptions){.fraction = fraction, .group = group, .seed = seed};
  if (fold && fraction > 0) return err_set(err, "--fold and --val-fraction cannot be combined: leave one of them out");
  if (fold && !read_fold(o, fold, err)) return false;
  if (group && !holdout_wanted(o))
    return err_set(err, "--group needs --val-fraction P or --fold I/N: it keeps images together that these divide");
  return !group || image_groups_check(group, err);
}

bool holdout_wanted(const HoldoutOptions *o) { return o->fraction > 0 || o->folds > 0; }

char *holdout_option_text(const HoldoutOptions *o) {
  char number[NUMBER_TEXT], *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  if (o->folds)
    fprintf(f, "--fold %d/%d", o->fold, o->folds);
  else
    fprintf(f, "--val-fraction %s", number_text(float_decimal(o->fraction), number));
  fprintf(f, " --split-seed %llu", (unsigned long long)o->seed);
  char *group = o->group ? cli_word(o->group) : NULL;
  if (group) fprintf(f, " --group %s", group);
  free(group);
  text_close(f);
  return text;
}

// ---- writing --------------------------------------------------------------------------------------------------------

char *holdout_text(const Holdout *h) {
  Record r = {0};
  const char **name = xmalloc((size_t)h->held * sizeof *name);
  char *keys = xmalloc(KEY_DIGITS * (size_t)h->held + 1), *annotations = xmalloc(DIGEST_DIGITS * (size_t)h->held + 1),
       *train = xmalloc(DIGEST_DIGITS * (size_t)h->trained + 1);
  *keys = *annotations = *train = '\0';
  for (int i = 0; i < h->held; i++) {
    name[i] = h->val[i].name;
    sprintf(keys + KEY_DIGITS * (size_t)i, "%016llx", (unsigned long long)h->val[i].key);
    sprintf(annotations + DIGEST_DIGITS * (size_t)i, "%08x", h->val[i].annotations);
  }
  for (int i = 0; i < h->trained; i++) sprintf(train + DIGEST_DIGITS * (size_t)i, "%08x", h->train[i]);
  record_begin(&r);
  record_str(&r, "split", h->split);
  record_str(&r, "by", h->by);
  record_int(&r, "groups", h->groups);
  record_strings(&r, "val", name, h->held);
  record_str(&r, "contents", keys);
  record_str(&r, "annotations", annotations);
  record_str(&r, "train", train);
  char *text = xstrdup(record_end(&r));
  record_free(&r);
  free(name);
  free(keys);
  free(annotations);
  free(train);
  return text;
}

// ---- reading --------------------------------------------------------------------------------------------------------

static uint64_t digits(const char *at, int n) {
  char part[KEY_DIGITS + 1];
  memcpy(part, at, (size_t)n);
  part[n] = '\0';
  return strtoull(part, NULL, 16);
}

static void read_names(Json *j, Holdout *h) {
  size_t room = 0;
  if (!json_begin_array(j)) return;
  while (json_next(j)) {
    array_reserve((void **)&h->val, &room, (size_t)h->held + 1, sizeof *h->val);
    h->val[h->held++] = (HeldImage){.name = xstrdup(json_string(j, NULL))};
    if (h->held > 1 && strcmp(h->val[h->held - 2].name, h->val[h->held - 1].name) >= 0)
      json_fail(j, "expected names in ascending order");
  }
}

static void read_keys(Json *j, Holdout *h) {
  size_t length;
  const char *text = json_string(j, &length);
  if (length != KEY_DIGITS * (size_t)h->held) json_fail(j, "expected %d digits for each name", KEY_DIGITS);
  for (int i = 0; !j->failed && i < h->held; i++) h->val[i].key = digits(text + KEY_DIGITS * (size_t)i, KEY_DIGITS);
}

static void read_annotations(Json *j, Holdout *h) {
  size_t length;
  const char *text = json_string(j, &length);
  if (length != DIGEST_DIGITS * (size_t)h->held) json_fail(j, "expected %d digits for each name", DIGEST_DIGITS);
  for (int i = 0; !j->failed && i < h->held; i++)
    h->val[i].annotations = (uint32_t)digits(text + DIGEST_DIGITS * (size_t)i, DIGEST_DIGITS);
}

static void read_train(Json *j, Holdout *h) {
  size_t length;
  const char *text = json_string(j, &length);
  h->trained = (int)(length / DIGEST_DIGITS);
  h->train = xmalloc((size_t)h->trained * sizeof *h->train);
  for (int i = 0; i < h->trained; i++) {
    h->train[i] = (uint32_t)digits(text + DIGEST_DIGITS * (size_t)i, DIGEST_DIGITS);
    if (i > 0 && h->train[i] < h->train[i - 1]) json_fail(j, "expected digests in ascending order");
  }
}

static void read_member(Json *j, Holdout *h, const char *key) {
  if (!strcmp(key, "split") && !h->split)
    h->split = xstrdup(json_string(j, NULL));
  else if (!strcmp(key, "by") && !h->by)
    h->by = xstrdup(json_string(j, NULL));
  else if (!strcmp(key, "groups"))
    h->groups = (int)json_int(j);
  else if (!strcmp(key, "val") && !h->val)
    read_names(j, h);
  else if (!strcmp(key, "contents"))
    read_keys(j, h);
  else if (!strcmp(key, "annotations"))
    read_annotations(j, h);
  else if (!strcmp(key, "train") && !h->train)
    read_train(j, h);
  else
    json_skip(j);
}

bool holdout_read(Holdout *h, const char *text, Err *err) {
  Json j;
  const char *key;
  *h = (Holdout){0};
  json_open(&j, "split", text, strlen(text));
  if (json_begin_object(&j))
    while ((key = json_key(&j))) read_member(&j, h, key);
  const bool ok = json_done(&j) && h->split && h->by && h->val && h->train;
  if (!ok) {
    err_set(err, "the images that training held out cannot be read: %s", *j.err.msg ? j.err.msg : "a part is missing");
    holdout_free(h);
  }
  json_close(&j);
  return ok;
}

// ---- comparing ------------------------------------------------------------------------------------------------------

bool holdout_same(const Holdout *was, const Holdout *is, bool other_files, Err *err) {
  int i = 0;
  while (i < was->held && i < is->held && !strcmp(was->val[i].name, is->val[i].name)) i++;
  if (i < was->held && (i == is->held || strcmp(was->val[i].name, is->val[i].name) < 0))
    return err_set(err, "%s was held out, but is no longer", was->val[i].name);
  if (i < is->held) return err_set(err, "%s is held out now, but was not", is->val[i].name);
  for (i = 0; !other_files && i < was->held; i++)
    if (was->val[i].key != is->val[i].key) return err_set(err, "%s, which is held out, has changed", was->val[i].name);
  for (i = 0; i < was->held; i++) {
    const uint32_t before = was->val[i].annotations, now = is->val[i].annotations;
    if (before && now && before != now)
      return err_set(err, "the annotations of %s, which is held out, have changed", was->val[i].name);
  }
  return true;
}

void holdout_free(Holdout *h) {
  for (int i = 0; i < h->held; i++) free(h->val[i].name);
  free(h->split);
  free(h->by);
  free(h->val);
  free(h->train);
  *h = (Holdout){0};
}
