#include "models/model.h"
#include <string.h>
#include "classification/nets/classifier.h"
#include "models/maskrcnn.h"

const Model *const models[] = {&model_maskrcnn, &model_resnet,    &model_alexnet, &model_overfeat,
                               &model_vgg,      &model_googlenet, &model_vgg28,   NULL};

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
  return err_set(err, "model '%s' is unknown; this build has%s", name, known);
}

bool model_configure(ModelConfig *c, const char *variant) {
  for (int i = 0; models[i]; i++)
    for (const Variant *v = models[i]->variants; v && v->name; v++) {
      if (strcmp(v->name, variant)) continue;
      c->model = i;
      c->depth = v->depth;
      models[i]->configure(c);
      return true;
    }
  return false;
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

void network_build(Network *n, const Model *model, const ModelConfig *config, Device *dev, Params *params, Comm *comm,
                   Purpose purpose, int images, int canvas_h, int canvas_w, int max_objects) {
  *n = (Network){.model = model,
                 .config = *config,
                 .purpose = purpose,
                 .images = images,
                 .canvas_h = canvas_h,
                 .canvas_w = canvas_w,
                 .max_objects = max_objects};
  Graph *g = &n->graph;
  graph_init(g, dev, params, purpose == FOR_TRAINING);
  if (g->training) g->comm = comm;
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
  n->input->images = (BatchImages){.info = array[BATCH_INFO], .bytes = array[BATCH_BYTES], .map = array[BATCH_AFFINE]};
  if (n->labels) n->labels->labels = array[BATCH_LABEL];
  if (!n->truth) return;
  Truth *t = &n->truth->truth;
  t->box.data = (void *)(uintptr_t)array[BATCH_BOX];
  t->label = array[BATCH_LABEL];
  t->count = array[BATCH_COUNT];
  t->bitmap = array[BATCH_BITMAP];
  t->bits = array[BATCH_BITS];
}
