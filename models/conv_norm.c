#include "models/conv_norm.h"

static NormLayer norm_of(const ModelConfig *c) {
  return (NormLayer){.batch = config_batch_norm(c),
                     .over_ranks = c->norm == NORM_SYNC_BN,
                     .groups = c->norm_groups,
                     .eps = c->norm_eps,
                     .momentum = 0.1f};
}

bool conv_norm_folds(const Graph *g, const ModelConfig *c) {
  return c->norm == NORM_FROZEN_BN || (config_batch_norm(c) && !g->training);
}

static ConvLayer conv_of(const ConvNorm *u) {
  return (ConvLayer){.k = u->k,
                     .r = u->taps,
                     .s = u->taps,
                     .stride = u->stride,
                     .pad = u->taps / 2,
                     .trainable = u->trainable,
                     .init = u->init};
}

ConvLayer conv_norm_folded(const ModelConfig *c, const ConvNorm *u) {
  ConvLayer conv = conv_of(u);
  conv.fold = u->norm;
  conv.fold_trainable = config_batch_norm(c);
  conv.fold_eps = c->norm_eps;
  conv.relu = u->relu;
  conv.addend = u->addend;
  return conv;
}

Value *conv_norm(Graph *g, const ModelConfig *c, Value *x, const ConvNorm *u) {
  if (conv_norm_folds(g, c)) {
    const ConvLayer folded = conv_norm_folded(c, u);
    return layer_conv(g, u->conv, x, &folded);
  }
  const ConvLayer conv = conv_of(u);
  NormLayer norm = norm_of(c);
  norm.relu = u->relu;
  norm.trainable = u->trainable;
  norm.addend = u->addend;
  Value *y = layer_conv(g, u->conv, x, &conv);
  return u->addend_norm ? layer_norm_pair(g, u->norm, y, u->addend_norm, &norm) : layer_norm(g, u->norm, y, &norm);
}

Value *conv_norm_shortcut(Graph *g, const ModelConfig *c, Value *x, const ConvNorm *u, const char **norm) {
  *norm = NULL;
  NormLayer layer = norm_of(c);
  if (conv_norm_folds(g, c) || layer.over_ranks || x->rows || g->dev->every_value) return conv_norm(g, c, x, u);
  const ConvLayer conv = conv_of(u);
  Value *y = layer_conv(g, u->conv, x, &conv);
  Param *params[NORM_PARAMS];
  layer.trainable = u->trainable;
  layer_norm_params(g, u->norm, y->x.c, &layer, params);
  if (g->dev->ops->norm_pairs(g->dev, layer.batch ? 0 : layer.groups, &y->x)) {
    *norm = u->norm;
    return y;
  }
  return layer_norm(g, u->norm, y, &layer);
}

Value *norm_node(Graph *g, const ModelConfig *c, const char *name, Value *x) {
  CHECK(c->norm != NORM_FROZEN_BN);
  NormLayer norm = norm_of(c);
  norm.trainable = true;
  return layer_norm(g, name, x, &norm);
}
