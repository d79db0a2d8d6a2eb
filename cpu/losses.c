// Losses of the RPN, the box head and the mask head, and their gradients: torchvision's rpn.compute_loss, fastrcnn_loss
// and maskrcnn_loss. A loss is reduced in double, row by row in order; gradients are written densely, zeros included.
#include <string.h>
#include "cpu/reference.h"
#include "cpu/softmax.h"
#include "exact/anchor_cell.h"
#include "exact/mask_bins.h"

// ---- element losses and their derivatives ---------------------------------------------------------------------------

// Binary cross-entropy with logits: -t·log σ(x) - (1 - t)·log(1 - σ(x)), in the form that neither overflows nor takes
// the log of 0.
static double bce(real x, real t) { return (x > 0 ? x : 0) - x * t + real_log1p(real_exp(-real_abs(x))); }

// Girshick, "Fast R-CNN", 2015, eq. 3, with PyTorch's beta; beta = 0 is L1.
static double smooth_l1(real x, real t, real beta) {
  real d = real_abs(x - t);
  return d < beta ? (real)0.5 * d * d / beta : d - (real)0.5 * beta;
}
// d smooth_l1 / dx; 0 at x = t also for L1, NaN for NaN.
static real smooth_l1_grad(real x, real t, real beta) {
  real e = x - t;
  if (real_abs(e) < beta) return e / beta;
  return e > 0 ? 1 : e < 0 ? -1 : e;
}

// loss[i] = the mean; 0 of nothing.
static void write_loss(const Tensor *loss, int i, double sum, double count) {
  ((real *)loss->data)[i] = count > 0 ? (real)(sum / count) : 0;
}

// What the gradient of a mean over `count` is multiplied by.
static real gradient_factor(LossScale scale, double count) {
  return count > 0 ? (scale ? *(const real *)scale : 1) / (real)count : 0;
}

// Clears the valid rows.
static void zero_rows(const Tensor *t) {
  int images = rows(t);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < images; n++)
    for (int y = 0; y < t->h; y++) memset(at(t, n, y, 0), 0, (size_t)t->w * t->ldc * sizeof(real));
}

// Σ parts[0 … n), in order.
static double sum_in_order(const double *parts, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += parts[i];
  return sum;
}

// ---- RPN ------------------------------------------------------------------------------------------------------------

// The cell of a row of the targets; where maps hold samples alone, the row itself is image and cell.
static AnchorCell sample_cell(const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets, int row) {
  AnchorCell cell = anchor_cell(anchors, targets->index[row]);
  if (p->sampled) cell.level = cell.y = cell.x = 0;
  return cell;
}
static real *anchor_logit(const Tensor *logits, AnchorCell p, int n) { return at(&logits[p.level], n, p.y, p.x) + p.a; }
static real *anchor_delta(const Tensor *deltas, AnchorCell p, int n) {
  return at(&deltas[p.level], n, p.y, p.x) + 4 * p.a;
}

// The divisor of both losses: the anchors sampled, or the nominal batch.
static double rpn_divisor(const RpnLoss *p, const RpnTargets *targets) {
  if (p->by_batch) return (double)targets->images * targets->batch;
  double sampled = 0;
  for (int n = 0; n < targets->images; n++) sampled += targets->count[n];
  return sampled;
}

void OP(rpn_loss)(Device *dev, const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets,
                  const Tensor *logits, const Tensor *deltas, const Tensor *loss) {
  if (dev->measuring) return;
  double objectness = 0, regression = 0, divisor = rpn_divisor(p, targets);
  for (int n = 0; n < targets->images; n++)
    for (int i = 0; i < targets->count[n]; i++) {
      int row = n * targets->batch + i;
      bool object = i < targets->positives[n];
      const AnchorCell cell = sample_cell(p, anchors, targets, row);
      const int map = p->sampled ? row : n;
      objectness += bce(*anchor_logit(logits, cell, map), object);
      const real *delta = anchor_delta(deltas, cell, map), *target = at(&targets->delta, row, 0, 0);
      for (int k = 0; object && k < 4; k++) regression += smooth_l1(delta[k], target[k], p->beta);
    }
  write_loss(loss, 0, objectness, divisor);
  write_loss(loss, 1, regression, divisor);
}

void OP(rpn_loss_backward)(Device *dev, const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets,
                           const Tensor *logits, const Tensor *deltas, LossScale scale, const Tensor *dlogits,
                           const Tensor *ddeltas) {
  if (dev->measuring) return;
  for (int l = 0; l < (p->sampled ? 1 : anchors->levels); l++) {
    if (!tensor_has_channels(&ddeltas[l], &dlogits[l])) zero_rows(&dlogits[l]);
    zero_rows(&ddeltas[l]);
  }
  real factor = gradient_factor(scale, rpn_divisor(p, targets));
  for (int n = 0; n < targets->images; n++)
    for (int i = 0; i < targets->count[n]; i++) { // an anchor is sampled once at most, so '=' is enough
      int row = n * targets->batch + i;
      bool object = i < targets->positives[n];
      const AnchorCell cell = sample_cell(p, anchors, targets, row);
      const int map = p->sampled ? row : n;
      *anchor_logit(dlogits, cell, map) = factor * (sigmoid(*anchor_logit(logits, cell, map)) - object);
      const real *delta = anchor_delta(deltas, cell, map), *target = at(&targets->delta, row, 0, 0);
      real *ddelta = anchor_delta(ddeltas, cell, map);
      for (int k = 0; object && k < 4; k++) ddelta[k] = factor * smooth_l1_grad(delta[k], target[k], p->beta);
    }
}

// ---- box head -------------------------------------------------------------------------------------------------------

void OP(box_loss)(Device *dev, float beta, const RoiTargets *targets, const Tensor *logits, const Tensor *deltas,
                  const Tensor *loss) {
  int capacity = targets->rois.capacity;
  double *entropy = device_workspace(dev, (size_t)capacity * 2 * sizeof *entropy);
  if (!entropy) return;
  double *regression = entropy + capacity;
  int count = *targets->rois.count;
#pragma omp parallel for schedule(static)
  for (int r = 0; r < count; r++) {
    int label = targets->label[r];
    const real *x = at(logits, r, 0, 0), *delta = at(deltas, r, 0, 0) + 4 * label;
    const real *target = at(&targets->delta, r, 0, 0);
    Softmax s = softmax_of(x, logits->c);
    entropy[r] = s.max - x[label] + real_log(s.sum);
    regression[r] = 0;
    for (int k = 0; label > 0 && k < 4; k++) regression[r] += smooth_l1(delta[k], target[k], beta);
  }
  write_loss(loss, 0, sum_in_order(entropy, count), count);
  write_loss(loss, 1, sum_in_order(regression, count), count);
}

void OP(box_loss_backward)(Device *dev, float beta, const RoiTargets *targets, const Tensor *logits,
                           const Tensor *deltas, LossScale scale, const Tensor *dlogits, const Tensor *ddeltas) {
  if (dev->measuring) return;
  zero_rows(dlogits);
  zero_rows(ddeltas);
  int count = *targets->rois.count;
  real factor = gradient_factor(scale, count);
#pragma omp parallel for schedule(static)
  for (int r = 0; r < count; r++) {
    int label = targets->label[r];
    const real *x = at(logits, r, 0, 0), *delta = at(deltas, r, 0, 0) + 4 * label;
    const real *target = at(&targets->delta, r, 0, 0);
    real *dx = at(dlogits, r, 0, 0), *ddelta = at(ddeltas, r, 0, 0) + 4 * label;
    Softmax s = softmax_of(x, logits->c);
    for (int k = 0; k < logits->c; k++) dx[k] = factor * (geometry_exp(x[k] - s.max) / s.sum - (k == label));
    for (int k = 0; label > 0 && k < 4; k++) ddelta[k] = factor * smooth_l1_grad(delta[k], target[k], beta);
  }
}

// ---- mask head ------------------------------------------------------------------------------------------------------

// The channel of an object's own class.
static int own_channel(const Tensor *logits, const RoiTargets *targets, int object) {
  return logits->c > 1 ? targets->object_label[object] : 0;
}

// How many of `count` objects have a mask.
static int masks_of(const Tensor *target, int count) {
  int masks = 0;
  for (int r = 0; r < count; r++) masks += target_counts(*at(target, r, 0, 0));
  return masks;
}

void OP(mask_loss)(Device *dev, const RoiTargets *targets, const Tensor *logits, const Tensor *target,
                   const Tensor *loss) {
  double *parts = device_workspace(dev, (size_t)targets->objects.capacity * sizeof *parts);
  if (!parts) return;
  int count = *targets->objects.count;
#pragma omp parallel for schedule(static)
  for (int r = 0; r < count; r++) {
    parts[r] = 0;
    for (int y = 0; target_counts(*at(target, r, 0, 0)) && y < logits->h; y++)
      for (int x = 0; x < logits->w; x++)
        parts[r] += bce(at(logits, r, y, x)[own_channel(logits, targets, r)], *at(target, r, y, x));
  }
  write_loss(loss, 0, sum_in_order(parts, count), (double)masks_of(target, count) * logits->h * logits->w);
}

void OP(mask_loss_backward)(Device *dev, const RoiTargets *targets, const Tensor *logits, const Tensor *target,
                            LossScale scale, const Tensor *dlogits) {
  if (dev->measuring) return;
  zero_rows(dlogits);
  int count = *targets->objects.count;
  real factor = gradient_factor(scale, (double)masks_of(target, count) * logits->h * logits->w);
#pragma omp parallel for schedule(static)
  for (int r = 0; r < count; r++) {
    int label = own_channel(logits, targets, r);
    for (int y = 0; target_counts(*at(target, r, 0, 0)) && y < logits->h; y++)
      for (int x = 0; x < logits->w; x++)
        at(dlogits, r, y, x)[label] = factor * (sigmoid(at(logits, r, y, x)[label]) - *at(target, r, y, x));
  }
}
