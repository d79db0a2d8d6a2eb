// Two norms whose sum goes through a ReLU, one after the other.
#include "cpu/reference.h"

bool OP(norm_pairs)(Device *dev, int groups, const Tensor *x) {
  (void)dev;
  (void)groups;
  (void)x;
  return false;
}

void OP(norm_pair_forward)(Device *dev, int groups, float eps, float momentum, const PairedNorm in[2],
                           const Tensor *y) {
  for (int i = 0; i < 2; i++) {
    const PairedNorm n = in[i];
    const Dest to = {.t = *y, .accumulate = i, .relu = i};
    if (n.moments && groups)
      dev->ops->group_norm_forward_merged(dev, groups, eps, n.moments, &n.x, n.gamma, n.beta, n.stats, &to);
    else if (n.moments)
      dev->ops->batch_norm_forward_merged(dev, eps, momentum, n.parts, n.moments, &n.x, n.gamma, n.beta, n.running_mean,
                                          n.running_var, n.stats, &to);
    else if (groups)
      dev->ops->group_norm_forward(dev, groups, eps, &n.x, n.gamma, n.beta, n.stats, &to);
    else
      dev->ops->batch_norm_forward(dev, eps, momentum, &n.x, n.gamma, n.beta, n.running_mean, n.running_var, n.stats,
                                   &to);
  }
}

void OP(norm_pair_backward)(Device *dev, int groups, const PairedNorm in[2], const Tensor *dy,
                            const PairedNormGrad to[2]) {
  for (int i = 0; i < 2; i++) {
    const PairedNorm n = in[i];
    const PairedNormGrad d = to[i];
    if (groups)
      dev->ops->group_norm_backward(dev, groups, &n.x, dy, n.gamma, n.stats, &d.dx, d.dgamma, d.dbeta, d.accumulate);
    else
      dev->ops->batch_norm_backward(dev, &n.x, dy, n.gamma, n.stats, &d.dx, d.dgamma, d.dbeta, d.accumulate);
  }
}
