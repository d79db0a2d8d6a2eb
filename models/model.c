#include "models/model.h"
#include <string.h>

// One line each; their files are here and in classification/nets/.
#define EACH_MODEL(X)                                                                                                  \
  X(model_maskrcnn)                                                                                                    \
  X(model_fasterrcnn)                                                                                                  \
  X(model_resnet)                                                                                                      \
  X(model_alexnet)                                                                                                     \
  X(model_overfeat)                                                                                                    \
  X(model_vgg)                                                                                                         \
  X(model_googlenet)                                                                                                   \
  X(model_vgg28)

#define DECLARE(model) extern const Model model;
EACH_MODEL(DECLARE)
#define ADDRESS_OF(model) &model,
const Model *const models[] = {EACH_MODEL(ADDRESS_OF) NULL};

const Model *model_of(const ModelConfig *c) { return models[c->model]; }

bool model_choose(ModelConfig *c, const char *name, Err *err) {
  char known[256] = "";
  for (int i = 0; models[i]; i++) {
    if (!strcmp(models[i]->name, name)) {
      c->model = i;
      return true;
    }
    snprintf(known + strlen(known), sizeof known - strlen(known), " %s", models[i]->name);
  }
  return err_set(err, "unknown model '%s'; this build has%s", name, known);
}

// ---- variants -------------------------------------------------------------------------------------------------------

// Where the number of a name begins, and where it ends.
static size_t number_at(const char *name) { return strcspn(name, "0123456789"); }
static size_t number_end(const char *name) { return number_at(name) + strspn(name + number_at(name), "0123456789"); }

// Whether two names differ in their numbers alone.
static bool alike(const char *a, const char *b) {
  return number_at(a) == number_at(b) && !strncmp(a, b, number_at(a)) && !strcmp(a + number_end(a), b + number_end(b));
}

void model_choices(char *text, size_t size) {
  *text = '\0';
  for (int i = 0; models[i]; i++)
    for (const Variant *v = models[i]->variants, *next; v->name; v = next) {
      const char *name = v->name, *comma = *text ? ", " : "";
      for (next = v + 1; next->name && alike(next->name, name);) next++;
      size_t used = strlen(text);
      if (next == v + 1) {
        snprintf(text + used, size - used, "%s%s", comma, name);
        continue;
      }
      snprintf(text + used, size - used, "%s%.*s{", comma, (int)number_at(name), name);
      for (const Variant *u = v; u < next; u++) {
        used = strlen(text);
        snprintf(text + used, size - used, "%s%.*s", u > v ? "," : "", (int)(number_end(u->name) - number_at(u->name)),
                 u->name + number_at(u->name));
      }
      used = strlen(text);
      snprintf(text + used, size - used, "}%s", name + number_end(name));
    }
}

bool config_init(ModelConfig *c, const char *variant, Err *err) {
  char known[512];
  config_defaults(c);
  for (int i = 0; models[i]; i++)
    for (const Variant *v = models[i]->variants; v->name; v++) {
      if (strcmp(v->name, variant)) continue;
      c->model = i;
      c->depth = v->depth;
      models[i]->configure(c);
      return true;
    }
  model_choices(known, sizeof known);
  return err_set(err, "--model %s: unknown model; choose one of %s", variant, known);
}

const char *config_variant(const ModelConfig *c) {
  const Variant *v = model_of(c)->variants;
  while (v->name && v->depth != c->depth) v++;
  return v->name ? v->name : model_of(c)->name;
}

const char *config_without_masks(const ModelConfig *c) {
  const Model *without = model_of(c)->without_masks;
  ModelConfig other = *c;
  return without && model_choose(&other, without->name, NULL) ? config_variant(&other) : NULL;
}

void config_resize(ModelConfig *c, int size) {
  c->train_size_min = c->train_size_min * size / c->size;
  c->size = size;
  c->max_size = model_of(c)->square ? size : size * 5 / 3;
}

bool config_check(const ModelConfig *c, Err *err) {
  const Model *m = model_of(c);
  const Variant *v = m->variants;
  if (!config_ranges(c, m->least_size, err)) return false;
  while (v->name && v->depth != c->depth) v++;
  return v->name || err_set(err, "model configuration: %s has no variant of depth %d", m->name, c->depth);
}

static ListFor list_for(const ModelConfig *c, bool trained) {
  const Model *m = model_of(c);
  return (ListFor){.least_size = m->least_size, .detector = m->traits & MODEL_DETECTOR, .trained = trained};
}

void model_print_help(const ModelConfig *c, int columns, FILE *out) {
  const ListFor of = list_for(c, false);
  config_print_help(c, &of, columns, out);
}

bool model_set_list(ModelConfig *c, const char *list, bool trained, Err *err) {
  const ListFor of = list_for(c, trained);
  return config_set_list(c, &of, list, err);
}

bool model_change(ModelConfig *c, const ModelChanges *changes, Err *err) {
  if (changes->size) config_resize(c, changes->size);
  if (changes->max_size) c->max_size = changes->max_size;
  if (changes->detections) c->detections = changes->detections;
  if (changes->proposals) config_set_proposals(c, changes->proposals);
  if (changes->nms >= 0) c->nms = changes->nms;
  if (changes->set && !model_set_list(c, changes->set, true, err)) return false;
  return config_check(c, err);
}

int model_names(const ModelConfig *c) { return c->classes - model_of(c)->background; }

int model_losses(const Model *m) {
  int n = 0;
  while (n < MAX_LOSSES && m->loss[n].name) n++;
  return n;
}

int model_counters(const Model *m) {
  int n = 0;
  while (n < MAX_COUNTERS && m->counter[n]) n++;
  return n;
}

void network_build(Network *n, const Model *model, const ModelConfig *config, Device *dev, Params *params,
                   const RankGroup *ranks, Purpose purpose, int images, int canvas_h, int canvas_w, int max_objects) {
  *n = (Network){.model = model,
                 .config = *config,
                 .purpose = purpose,
                 .images = images,
                 .canvas_h = canvas_h,
                 .canvas_w = canvas_w,
                 .max_objects = max_objects};
  Graph *g = &n->graph;
  graph_init(g, dev, params, purpose == FOR_TRAINING);
  if (g->training) g->ranks = ranks;
  n->input = graph_images(g, "images");
  if (purpose != FOR_INFERENCE) {
    if (model->targets == BATCH_BIT(BATCH_LABEL))
      n->labels = graph_labels(g, "labels");
    else
      n->truth = graph_truth(g, "truth", images, max_objects);
    n->losses = graph_value(g, "losses", tensor_packed(dev->real, 1, model_losses(n->model)));
    n->losses->keep = true;
  }
  n->model->build(n);
  graph_plan(g);
}

void network_free(Network *n) {
  if (n->model && n->model->release) n->model->release(n);
  graph_free(&n->graph);
}

void network_connect(Network *n, const void *const array[BATCH_ARRAYS]) {
  n->input->images = (BatchImages){.info = array[BATCH_INFO], .bytes = array[BATCH_BYTES]};
  if (n->labels) n->labels->labels = array[BATCH_LABEL];
  if (!n->truth) return;
  Truth *t = &n->truth->truth;
  t->box.data = (void *)(uintptr_t)array[BATCH_BOX];
  t->label = array[BATCH_LABEL];
  t->count = array[BATCH_COUNT];
  t->bitmap = array[BATCH_BITMAP];
  t->bits = array[BATCH_BITS];
}
