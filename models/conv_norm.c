#include "models/conv_norm.h"

static NormLayer norm_of(const ModelConfig *c) {
  return (NormLayer){.batch = config_batch_norm(c),
                     .over_ranks = c->norm == NORM_SYNC_BN,
                     .groups = c->norm_groups,
                     .eps = c->norm_eps,
                     .momentum = 0.1f};
}

Value *conv_norm(Graph *g, const ModelConfig *c, Value *x, const ConvNorm *u) {
  const bool batch = config_batch_norm(c), fold = c->norm == NORM_FROZEN_BN || (batch && !g->training);
  ConvLayer conv = {.k = u->k,
                    .r = u->taps,
                    .s = u->taps,
                    .stride = u->stride,
                    .pad = u->taps / 2,
                    .trainable = u->trainable,
                    .init = u->init};
  if (fold) {
    conv.fold = u->norm;
    conv.fold_trainable = batch;
    conv.fold_eps = c->norm_eps;
    conv.relu = u->relu;
    conv.addend = u->addend;
    return layer_conv(g, u->conv, x, &conv);
  }
  NormLayer norm = norm_of(c);
  norm.relu = u->relu;
  norm.trainable = u->trainable;
  norm.addend = u->addend;
  return layer_norm(g, u->norm, layer_conv(g, u->conv, x, &conv), &norm);
}

Value *norm_node(Graph *g, const ModelConfig *c, const char *name, Value *x) {
  CHECK(c->norm != NORM_FROZEN_BN);
  NormLayer norm = norm_of(c);
  norm.trainable = true;
  return layer_norm(g, name, x, &norm);
}
