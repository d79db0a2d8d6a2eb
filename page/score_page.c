#include "page/score_page.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/record.h"
#include "models/model.h"
#include "page/run_page.h"

static const double least_score = 0.5; // of what the confusion counts: as --labels and --crops have it

static void add_number(PagePairs *to, const char *name, double value) {
  char text[NUMBER_TEXT];
  page_pair_add(to, name, number_text(value, text));
}

static void add_facts(RunPage *p, const InferOptions *o, const Model *model, const Metrics *m) {
  page_pair_add(&p->facts, "model", model->name);
  page_pair_add(&p->facts, "weights", o->weights);
  page_pair_add(&p->facts, "data", o->data);
  page_pair_add(&p->facts, "split", o->split);
  page_pair_add(&p->facts, "scores", m->summary);
}

static void add_settings(RunPage *p, const InferOptions *o, const ModelConfig *config) {
  static const char *const yes[] = {"no", "yes"};
  add_number(&p->settings, "score", config->min_score);
  add_number(&p->settings, "size", config->size);
  add_number(&p->settings, "max-size", config->max_size);
  add_number(&p->settings, "limit", o->limit);
  page_pair_add(&p->settings, "amp", amp_names[o->amp]);
  page_pair_add(&p->settings, "tf32", yes[o->tf32]);
  page_pair_add(&p->settings, "exif", yes[o->exif]);
}

static char *path_of(const InferOptions *o) { return xasprintf("%s/" SCORE_PAGE, o->out); }

bool score_page_spares(const InferOptions *o, FileSet *inputs, Err *err) {
  char *path = path_of(o);
  const bool ok = file_set_spares(inputs, path, err);
  free(path);
  return ok;
}

bool score_page_write(const InferOptions *o, const ModelConfig *config, const Dataset *d, const void *results,
                      const Metrics *m, Err *err) {
  const Model *model = model_of(config);
  RunPage p = {.name = xstrdup(o->weights), .state = xasprintf("%s of %s", o->split, o->data)};
  PageEvaluation *e = &p.evaluation;
  e->step = PAGE_OF_WEIGHTS;
  e->images = m->images;
  e->left_out = m->left_out;
  for (int i = 0; i < m->n; i++) add_number(&e->metrics, m->metric[i].name, m->metric[i].value);
  add_facts(&p, o, model, m);
  add_settings(&p, o, config);
  model->task->page(d, results, least_score, e);
  char *path = path_of(o);
  const bool ok = run_page_write(path, &p, 1, err);
  free(path);
  run_page_free(&p);
  return ok;
}
