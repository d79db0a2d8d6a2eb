#include "models/fpn.h"
#include "nn/layers.h"

void fpn_build(Graph *g, const ModelConfig *config, const char *prefix, Value *c[4], Value *p[MAX_LEVELS]) {
  ConvLayer conv = {.k = config->fpn_channels,
                    .stride = 1,
                    .bias = true,
                    .trainable = true,
                    .init = INIT_KAIMING_UNIFORM,
                    .bias_init = INIT_ZERO};
  Value *top = NULL;
  for (int i = 3; i >= 0; i--) { // top-down: each lateral adds the upsampled level above
    ConvLayer lateral = conv, output = conv;
    lateral.r = lateral.s = 1;
    lateral.addend = top;
    output.r = output.s = 3;
    output.pad = 1;
    top = layer_conv(g, graph_name(g, "%s.inner_blocks.%d.0", prefix, i), c[i], &lateral);
    p[i] = layer_conv(g, graph_name(g, "%s.layer_blocks.%d.0", prefix, i), top, &output);
  }
  p[4] = layer_max_pool(g, graph_name(g, "%s.pool", prefix), p[3], (Pool){1, 2, 0});
}
