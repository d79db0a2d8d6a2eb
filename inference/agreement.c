#include "inference/agreement.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/batches/data_identity.h"
#include "engine/identity.h"

// A digest of every value in the file, because equal names on two hosts prove nothing.
static uint64_t weights_key(const Checkpoint *c) {
  uint64_t key = 0;
  for (size_t i = 0; i < c->num_tensors; i++) {
    const CkptTensor *t = &c->tensors[i];
    const char *bytes = t->data;
    for (size_t at = 0; at < t->bytes; at += sizeof key) {
      uint64_t word = 0;
      memcpy(&word, bytes + at, MIN(sizeof word, t->bytes - at));
      key = rng_key(key, word);
    }
  }
  return key;
}

// What all ranks must have in common, so that the results are those of a single rank.
static char *agreement(const InferOptions *o, const ModelConfig *config, const Checkpoint *c, const Dataset *d) {
  Record j = {0};
  char value[512];
  const DataIdentity data = data_identity(d, NULL);
  record_begin(&j);
  record_str(&j, "split", o->split);
  record_int(&j, "images", d->num_images);
  record_int(&j, "objects", d->first_object[d->num_images]);
  record_int(&j, "canvases", d->num_canvases);
  record_int(&j, "missing_files", d->missing);
  snprintf(value, sizeof value, "%016llx", (unsigned long long)data_identity_number(&data));
  record_str(&j, "data", value);
  record_int(&j, "batch", o->batch);
  record_str(&j, "amp", amp_names[o->amp]);
  record_bool(&j, "tf32", o->tf32);
  record_str(&j, "conv", o->conv ? o->conv : "auto");
  record_bool(&j, "exif", d->upright);
  record_bool(&j, "eval", o->eval);
  record_int(&j, "overlays", o->overlays);
  record_int(&j, "benchmark", o->benchmark);
  for (int i = 0; i < config_fields(); i++) {
    config_get(config, i, value, sizeof value);
    record_str(&j, config_field_name(i), value);
  }
  snprintf(value, sizeof value, "%016llx", (unsigned long long)weights_key(c));
  record_str(&j, "weights", value);
  char *text = xstrdup(record_end(&j));
  record_free(&j);
  return text;
}

void agreement_check(Comm *comm, const InferOptions *o, const ModelConfig *config, const Checkpoint *c,
                     const Dataset *d) {
  Err err;
  if (comm_alone(comm)) return;
  char *text = agreement(o, config, c, d);
  if (!comm_agree(comm, text, identity_agrees, &err)) die(EXIT_USAGE, "%s", err.msg);
  free(text);
}
