// The loss of a classifier: softmax cross-entropy with label smoothing (Szegedy et al., "Rethinking the Inception
// architecture for computer vision", 2016, section 7), torch.nn.CrossEntropyLoss's, with the number of rows whose class
// is among the best; and probabilities. A loss is reduced in double, row by row in order.
#include <string.h>
#include "cpu/reference.h"
#include "cpu/softmax.h"

typedef struct RowLoss {
  double loss;
  int rank; // how many classes stand before the row's own; -1: the row does not count
} RowLoss;

static bool counts(int label, const Tensor *logits) { return label >= 0 && label < logits->c; }

// log Σ exp(x) - (1 - smoothing) · x[label] - smoothing · mean(x), from x - max.
static RowLoss row_loss(const real *x, int classes, int label, double smoothing) {
  Softmax s = softmax_of(x, classes);
  RowLoss r = {.loss = real_log(s.sum) - (1 - smoothing) * (x[label] - s.max)};
  double sum = 0;
  for (int c = 0; c < classes; c++) {
    sum += x[c] - s.max;
    r.rank += !(x[c] <= x[label]) || (x[c] == x[label] && c < label);
  }
  if (smoothing > 0) r.loss -= smoothing / classes * sum; // without, -inf of a class costs nothing
  return r;
}

void OP(class_loss)(Device *dev, const ClassLoss *p, const int *label, const Tensor *logits, const Tensor *loss,
                    const Hits *hits) {
  int n = logits->n;
  RowLoss *row = device_workspace(dev, (size_t)n * sizeof *row);
  if (!row) return;
#pragma omp parallel for schedule(static)
  for (int r = 0; r < n; r++)
    row[r] = counts(label[r], logits) ? row_loss(at(logits, r, 0, 0), logits->c, label[r], p->smoothing)
                                      : (RowLoss){.rank = -1};
  double sum = 0;
  int count = 0;
  *hits->top1 = *hits->top5 = 0;
  for (int r = 0; r < n; r++) {
    if (row[r].rank < 0) continue;
    sum += row[r].loss;
    count++;
    *hits->top1 += row[r].rank < 1;
    *hits->top5 += row[r].rank < 5;
  }
  *(real *)loss->data = count ? (real)(p->weight * sum / count) : 0;
}

// d loss / dx[c] = weight · (softmax[c] - (1 - smoothing) · (c is the label) - smoothing / classes) / rows that count.
void OP(class_loss_backward)(Device *dev, const ClassLoss *p, const int *label, const Tensor *logits, LossScale scale,
                             const Tensor *dlogits) {
  if (dev->measuring) return;
  int n = logits->n, classes = logits->c, count = 0;
  for (int r = 0; r < n; r++) count += counts(label[r], logits);
  real factor = count ? (real)p->weight * (scale ? *(const real *)scale : 1) / (real)count : 0;
  real own = 1 - (real)p->smoothing, each = (real)p->smoothing / (real)classes;
#pragma omp parallel for schedule(static)
  for (int r = 0; r < n; r++) {
    const real *x = at(logits, r, 0, 0);
    real *dx = at(dlogits, r, 0, 0);
    memset(dx, 0, (size_t)dlogits->ldc * sizeof *dx);
    if (!counts(label[r], logits)) continue;
    Softmax s = softmax_of(x, classes);
    for (int c = 0; c < classes; c++) dx[c] = factor * (softmax_prob(s, x[c]) - (c == label[r] ? own : 0) - each);
  }
}

void OP(class_probs)(Device *dev, const Tensor *logits, const Tensor *probs) {
  if (dev->measuring) return;
  int n = logits->n, classes = logits->c;
#pragma omp parallel for schedule(static)
  for (int r = 0; r < n; r++) {
    const real *x = at(logits, r, 0, 0);
    Softmax s = softmax_of(x, classes);
    for (int c = 0; c < classes; c++) at(probs, r, 0, 0)[c] = softmax_prob(s, x[c]);
  }
}
