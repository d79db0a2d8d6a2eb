#include "classification/nets/plain.h"

static Value *append_conv(const Plain *p, const char *name, Value *x, const PlainStage *s) {
  return layer_conv(&p->n->graph, name, x,
                    &(ConvLayer){.k = s->k,
                                 .r = s->size,
                                 .s = s->size,
                                 .stride = s->stride,
                                 .pad = s->pad,
                                 .relu = true,
                                 .bias = true,
                                 .trainable = true,
                                 .init = p->conv,
                                 .bias_init = p->conv_bias});
}

Value *plain_features(const Plain *p, const PlainStage *stages, int count, Value *x) {
  Graph *g = &p->n->graph;
  g->part = "features";
  for (int i = 0, index = 0; i < count; i++) {
    const PlainStage *s = &stages[i];
    const char *name = graph_name(g, "features.%d", index);
    x = s->k ? append_conv(p, name, x, s) : layer_max_pool(g, name, x, (Pool){s->size, s->stride, s->pad});
    index += s->k ? 2 : 1;
  }
  return x;
}

// An index into `classifier`, a Sequential.
static const char *classifier_name(Graph *g, int index) { return graph_name(g, "classifier.%d", index); }

Value *plain_dense(const Plain *p, Value *x, int index, int k, bool relu) {
  return layer_dense(&p->n->graph, classifier_name(&p->n->graph, index), x,
                     &(Dense){.k = k, .relu = relu, .init = p->dense, .bias_init = p->dense_bias});
}

Value *plain_dropout(const Plain *p, Value *x, int index) {
  return layer_dropout(&p->n->graph, classifier_name(&p->n->graph, index), x, p->n->config.dropout);
}

Value *plain_bins(const Plain *p, Value *x, int size) {
  return x->x.h == size && x->x.w == size ? x : layer_adaptive_avg_pool(&p->n->graph, "avgpool", x, size, size);
}
