#include "inference/score_file.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/output.h"
#include "base/run_folder.h"
#include "data/batches/data_identity.h"
#include "models/model.h"

const double score_file_least = 0.5;

static void record_facts(Record *head, const InferOptions *o, const Model *model, const Metrics *m) {
  Record facts = {0};
  record_begin(&facts);
  record_str(&facts, "model", model->name);
  record_str(&facts, "weights", o->weights);
  record_str(&facts, "data", o->data);
  record_str(&facts, "split", o->split);
  record_str(&facts, "scores", m->summary);
  record_raw(head, "facts", record_end(&facts));
  record_free(&facts);
}

static void record_number(Record *r, const char *name, double value) {
  char text[NUMBER_TEXT];
  record_str(r, name, number_text(value, text));
}

static void record_settings(Record *head, const InferRun *run) {
  static const char *const yes[] = {"no", "yes"};
  const InferOptions *o = run->o;
  const ModelConfig *config = run->config;
  Record settings = {0};
  record_begin(&settings);
  record_number(&settings, "score", float_decimal(run->scored_from));
  record_number(&settings, "detections", config->detections);
  record_number(&settings, "size", config->size);
  record_number(&settings, "max-size", config->max_size);
  if (o->limit)
    record_number(&settings, "limit", o->limit);
  else
    record_str(&settings, "limit", "all");
  record_str(&settings, "amp", amp_names[o->amp]);
  record_str(&settings, "tf32", yes[o->tf32]);
  record_str(&settings, "exif", exif_choices[o->exif]);
  record_raw(head, "settings", record_end(&settings));
  record_free(&settings);
}

bool score_file_spares(const InferOptions *o, FileSet *inputs, Err *err) {
  static const char *const names[] = {SCORES, SCORES_PAGE};
  bool ok = true;
  for (int i = 0; ok && i < COUNT(names); i++) {
    char *path = xasprintf("%s/%s", o->out, names[i]);
    ok = file_set_spares(inputs, path, err);
    free(path);
  }
  return ok;
}

int score_file_trained(const InferRun *run, const Dataset *d, const bool *read, char text[128]) {
  const char *list = ckpt_find_meta(run->weights, "trained_on");
  bool exact = true;
  const int n = list ? trained_on_count(list, d, read, &exact) : -1;
  *text = '\0';
  if (n < 0 && ckpt_find_meta(run->weights, "run"))
    line_print(
        stderr,
        "note: %s does not say which images it was trained on (older version); the scored images may be among them",
        run->o->weights);
  if (n > 0)
    snprintf(text, 128, "; %s%d of them %s used for training: not a held-out score", exact ? "" : "about ", n,
             n == 1 ? "was" : "were");
  return n;
}

bool score_file_write(const InferRun *run, const Metrics *m, int trained, const EvaluationReport *r, Err *err) {
  const InferOptions *o = run->o;
  Record head = {0};
  char *state = xasprintf("%s of %s%s", o->split, o->data, trained > 0 ? ", used for training" : "");
  record_begin(&head);
  record_str(&head, "name", o->weights);
  record_str(&head, "state", state);
  if (m->set) record_int(&head, "scored_set", m->set);
  record_num(&head, "scored_on_training_images", trained < 0 ? NAN : trained);
  record_facts(&head, o, model_of(run->config), m);
  record_settings(&head, run);
  const bool ok = report_write(
      &(ReportFile){
          .folder = o->out, .name = SCORES, .series = "scores-", .stem = "scores", .head = &head, .scores = m},
      r, err);
  record_free(&head);
  free(state);
  return ok && (!run->draw || run->draw(o->out, err));
}
