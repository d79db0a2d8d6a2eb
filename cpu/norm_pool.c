// The gradient of a norm whose output was pooled: each pixel gathers the gradients of the windows whose maximum it
// was, as kept by the forward pass (PoolArgmax), and the norm's gradient follows. Elsewhere dy is 0, so that its sums
// are taken over the windows.
#include "cpu/norm.h"

// The sum of dy of the windows that cover pixel (n, y, x) and have their maximum there, in row-major order.
static void gather(const Pool *p, const PoolArgmax *argmax, const Tensor *dy, RowRun r, real *restrict sum) {
  const PoolSpan outs_y = pool_windows_of(p, r.y, dy->h), outs_x = pool_windows_of(p, r.x, dy->w);
  memset(sum, 0, (size_t)r.lanes * sizeof *sum);
  for (int oy = outs_y.first; oy < outs_y.last; oy++)
    for (int ox = outs_x.first; ox < outs_x.last; ox++) {
      const real *restrict grad = at(dy, r.n, oy, ox) + r.lane;
      const uint8_t *restrict tap = argmax->tap + (at(&argmax->x, r.n, oy, ox) - (real *)argmax->x.data) + r.lane;
      const int here = (r.y - oy * p->stride + p->pad) * p->size + r.x - ox * p->stride + p->pad;
      for (int i = 0; i < r.lanes; i++) sum[i] += tap[i] == here ? grad[i] : 0;
    }
}

void OP(norm_pool_backward)(Device *dev, int groups, const Pool *pool, const Tensor *x, const PoolArgmax *argmax,
                            const Tensor *dy, const void *gamma, const void *stats, const Dest *dx, void *dgamma,
                            void *dbeta, bool accumulate) {
  NormWork norm;
  if (!norm_begin(dev, &argmax->x, groups ? groups : x->c, groups > 0, &norm)) return;
  check_dest(x, dx);
  fill_means(&norm, x, stats);
  sum_gradients(&norm, &argmax->x, dy, stats);
  parameter_gradient(&norm, accumulate, 0, dbeta);
  parameter_gradient(&norm, accumulate, 1, dgamma);
  norm.values = (double)x->h * x->w * norm.group_size * (groups ? 1 : rows(x));
  fill_slopes(&norm, gamma, stats);
  const int images = rows(x), ldc = norm.ldc;
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int row = 0; row < x->h; row++) {
      real v[RUN_ELEMENTS];
      const real *coef = norm_coef(&norm, n);
      for (RowRun r = run_first(x, n, row); r.pixels; r = run_next(x, r)) {
        const real *restrict mean = coef + r.lane, *restrict of_dy = mean + ldc, *restrict of_x = of_dy + ldc,
                             *restrict constant = of_x + ldc, *restrict value = run_at(x, r);
        RowRun pixel = r;
        for (int p = 0; p < r.pixels; p++, pixel.x++) {
          real *restrict to = v + p * r.lanes;
          gather(pool, argmax, dy, pixel, to);
          for (int i = 0; i < r.lanes; i++)
            to[i] = of_dy[i] * to[i] + (of_x[i] * (value[p * r.lanes + i] - mean[i]) + constant[i]);
        }
        dest_write(dx, r, v);
      }
    }
}
