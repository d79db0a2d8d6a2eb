#include "training/identity.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/batches/data_identity.h"
#include "models/model.h"
#include "training/table.h"

// ---- the whole ------------------------------------------------------------------------------------------------------

static void record_rows(Record *j, const TrainSpec *o, const Schedule *schedule, bool amendable) {
  int n;
  const Option *rows = train_rows(&n);
  const unsigned has = model_of(&o->config)->traits;
  for (int i = 0; i < n; i++) {
    if (rows[i].amend != amendable) continue;
    if (rows[i].identify)
      rows[i].identify(j, &rows[i], o, schedule);
    else if (rows[i].key && (rows[i].needs & ~has) == 0)
      option_record(j, rows[i].key, &rows[i], o);
  }
}

// A message names the first difference: keys that --amend cannot change come first, options before what follows from
// them.
char *run_identity(const TrainSpec *o, const Dataset *train, const Schedule *schedule) {
  Record j = {0};
  record_begin(&j);
  record_rows(&j, o, schedule, false);
  record_int(&j, "images", train->num_images);
  record_int(&j, "objects", train->first_object[train->num_images]);
  record_int(&j, "canvases", train->num_canvases);
  record_rows(&j, o, schedule, true);
  char *text = xstrdup(record_end(&j));
  record_free(&j);
  return text;
}

const char *const *run_amendable(void) {
  enum { MOST = 32 };
  static const char *keys[MOST + 1];
  int n, found = 0;
  const Option *rows = train_rows(&n);
  for (int i = 0; i < n; i++)
    if (rows[i].amend && rows[i].key) {
      CHECK(found < MOST);
      keys[found++] = rows[i].key;
    }
  return keys;
}

// ---- among ranks ----------------------------------------------------------------------------------------------------

static void record_data(Record *j, const char *split, const Dataset *d) {
  char key[64], value[32];
  const DataIdentity data = data_identity(d, NULL);
  const struct {
    const char *what;
    int n;
  } counts[] = {{"images", d->num_images}, {"missing_files", d->missing}};
  for (int i = 0; i < COUNT(counts); i++) {
    snprintf(key, sizeof key, "%s_%s", split, counts[i].what);
    record_int(j, key, counts[i].n);
  }
  snprintf(key, sizeof key, "%s_data", split);
  snprintf(value, sizeof value, "%016llx", (unsigned long long)data_identity_number(&data));
  record_str(j, key, value);
}

char *run_agreement(const char *identity, const ModelConfig *c, const Dataset *train, const Dataset *val) {
  Record j = {0};
  char value[512];
  record_begin(&j);
  record_data(&j, "train", train);
  if (val) record_data(&j, "val", val);
  record_bool(&j, "val", val);
  for (int i = 0; i < config_fields(); i++) {
    config_get(c, i, value, sizeof value);
    record_str(&j, config_field_name(i), value);
  }
  const char *config = record_end(&j);
  char *text = xasprintf("%.*s,%s", (int)strlen(identity) - 1, identity, config + 1);
  record_free(&j);
  return text;
}
