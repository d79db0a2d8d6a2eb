// THE contract: every op, its shapes, layout, units, and what it writes. cpu/X.c is the CPU reference, cuda/X.cu the
// kernel.
//
// Common to all: destination tensors and inputs do not overlap; inputs are not written; nothing is allocated; no host
// synchronisation; no state between calls. `real` data is float (double on cpu64); activations may also be 16 bit.
// Boxes are [rows, 4] = x1 y1 x2 y2 with ldc 4; image n of a batch owns canvas n. Pointers to int, real and structs in
// the argument structs are device pointers unless said otherwise; the structs themselves live on the host.
// Ties in any ordering are broken by the lowest index. Results never depend on the number of threads.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "nn/batch.h"
#include "nn/tensor.h"

typedef struct Device Device; // where an op runs; nn/device.h
typedef struct Ops Ops;

enum { MAX_LEVELS = 5, MAX_CELL_ANCHORS = 15, MAX_CONCAT = 8 };
enum { CONV_MOMENTS_PIXELS = 64 };

// ---- dense ----------------------------------------------------------------------------------------------------------

// Square windows. How many there are along an axis is rounded down or up, as torch's ceil_mode; which of the two, the
// op sees by its output. A maximum takes padding for -inf.
typedef struct Pool {
  int size, stride, pad;
} Pool;

// Where the maxima of windows were, for the gradient: the pixel of each.
typedef struct PoolArgmax {
  Tensor x;     // [n, p, q, c]: its value in the tensor that was normalised
  uint8_t *tap; // [n, p, q, ldc of x]: its place in the window, in row-major order
} PoolArgmax;

// Destination of an activation or its gradient, and the epilogue that an op fuses into writing it, v being the
// accumulator's value:
//   t = keep · f(v + bias + addend + (accumulate ? t : 0)),  f = max(·, 0) if relu, keep = (mask > 0) if mask else 1.
// Forward the addend is a residual; backward it is a gradient that reaches t unchanged, and the mask is the ReLU's.
// Every op that takes a Dest writes every element of its valid rows, padding channels included (as zeros), and honours
// all fields but bias, which only conv_forward and conv_dgrad take, moments, pool and argmax.
typedef struct Dest {
  Tensor t;
  bool accumulate;
  bool relu;
  const void *bias;     // real [c] or NULL
  const Tensor *addend; // [n, h, w, c], or half the height and width (rounded up): nearest-upsampled, src = dst / 2;
                        // or double: each element receives the sum of its 2×2 block (the upsampling's gradient).
                        // May be the tensor t itself only when accumulate is false and shapes are equal.
  const Tensor *mask;   // [n, h, w, c], the ReLU output whose gradient t is
  void *moments;        // of conv_forward where conv_moments says so, or NULL: also the moments of what is written
  const Pool *pool;     // of conv_forward where conv_pools says so, of norms in training (below), or NULL: t has the
                        // maxima of windows of f(v + bias)
  const PoolArgmax *argmax; // of norms with a pool: also written
} Dest;

typedef struct Conv {
  int stride, pad; // the taps are w.h × w.w
} Conv;

// He et al., "Deep residual learning for image recognition", 2016, without a stride and with norms folded in:
// y = relu(expand · relu(middle · relu(reduce · x)) + shortcut), the shortcut being x or project · x. `middle` has 3 ×
// 3 taps and a padding of 1, the others one tap.
enum { BOTTLENECK_PROJECT, BOTTLENECK_REDUCE, BOTTLENECK_MIDDLE, BOTTLENECK_EXPAND, BOTTLENECK_CONVS };
typedef struct Bottleneck {
  Tensor w[BOTTLENECK_CONVS];         // [k, r, s, c]; project's n is 0 where the shortcut is x
  const void *bias[BOTTLENECK_CONVS]; // real [k] or NULL
} Bottleneck;

// Windows along an axis of so many positions; rounded up, the last one still begins before the padding behind the
// input, as PyTorch has it. 0: none fits.
static inline int pool_extent(const Pool *p, int size, bool ceil) {
  int beyond = size + 2 * p->pad - p->size, n = (beyond + (ceil ? p->stride - 1 : 0)) / p->stride + 1;
  if (beyond < 0) return 0;
  return ceil && (n - 1) * p->stride >= size + p->pad ? n - 1 : n;
}

typedef struct AvgPool {
  Pool window; // its size 0: adaptive, window i of o along an axis of h covers ⌊i·h / o⌋ … ⌈(i + 1)·h / o⌉ - 1
  bool count_pad; // padding counts in the mean, as zeros: torch's count_include_pad. Not what is past the padding
} AvgPool;

// Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014. Element i, counted over
// [rows, h, w, c] without padding channels, is dropped when rng_u32(rng_key(key, *step), i) < p · 2^32. Nothing is
// stored: the gradient draws the same again.
typedef struct Dropout {
  float p;              // probability of being dropped, 0 … 1
  uint64_t key;         // of seed and layer
  const uint64_t *step; // device: the step's number; NULL = 0
  int64_t first_row;    // row 0 of the tensor among those of all ranks
} Dropout;

// One of two norms that are added, where the shortcut of a residual block has a norm of its own; its gradients.
typedef struct PairedNorm {
  Tensor x;                         // [n, h, w, c]
  const void *gamma, *beta;         // real [c]
  void *running_mean, *running_var; // batch norm's, as batch_norm_forward's
  void *stats;                      // as of the norm alone
  int parts;
  const void *moments; // real [parts, 3, c], what a convolution told of x; NULL: not known
} PairedNorm;
typedef struct PairedNormGrad {
  Dest dx;
  void *dgamma, *dbeta;
  bool accumulate; // += for dgamma and dbeta
} PairedNormGrad;

enum { GRAD_PART = 1 << 14 }; // elements
typedef struct GradSum {      // of a part of the gradients, in an order that depends on nothing but shapes
  double squares;             // Σ g²
  int64_t finite;             // whether all of them are
} GradSum;
typedef struct GradSquares { // of the elements first … end - 1 of a filter's gradient, multiples of 4
  GradSum *sums;             // device, as many as conv_squares says; NULL: not asked for
  int first, end;
} GradSquares;

// Gradient of a filter bank.
typedef struct FilterGrad {
  Tensor dw;           // [k, r, s, c] real
  void *db;            // real [k] or NULL: Σ dy
  const void *scale;   // real [k] or NULL: row k of dw (not db) is multiplied by scale[k] (frozen BN folded into w)
  bool accumulate;     // += for dw and db
  GradSquares squares; // of what dw becomes
} FilterGrad;

// ---- images, ground truth -------------------------------------------------------------------------------------------

typedef struct Truth { // what to learn from one batch; rows g of image n at n·capacity + g
  int images, capacity;
  Tensor box;           // [images·capacity, 4] canvas pixels (resized, flipped)
  const int *label;     // 1 … classes-1
  const int *count;     // [images]
  const Bitmap *bitmap; // [images·capacity]
  const uint32_t *bits;
} Truth;

typedef struct Preprocess {
  float unit;            // bytes are divided by this: 255, or 1
  float mean[3], std[3]; // of what is left, in the order of y's channels
  bool bgr;              // y's channels are blue, green, red
  bool antialias;        // resized to bytes as Pillow does it, see exact/resample.h
} Preprocess;

// ---- anchors, proposals ---------------------------------------------------------------------------------------------

typedef enum AnchorType { // the anchors of a cell, about its grid corner
  ANCHORS_ROUNDED,        // corners rounded to whole pixels, half to even
  ANCHORS_EXACT,
  ANCHORS_LEGACY, // Detectron's: sides rounded in units of the stride, about the cell's middle, last pixels inclusive
} AnchorType;

typedef struct AnchorLevel {
  int h, w, first;          // grid; index of its first anchor among all
  float stride_y, stride_x; // canvas pixels
  float cell[MAX_CELL_ANCHORS][4];
} AnchorLevel;
// Anchor (level, y, x, a) has index first + (y·w + x)·per_cell + a and box cell[a] + (x, y)·stride.
typedef struct Anchors {
  int levels, per_cell, total;
  AnchorLevel level[MAX_LEVELS];
} Anchors;

// Scored boxes in groups of fixed capacity, best first within a group: rows g·capacity … + count[g].
typedef struct Boxes {
  int groups, capacity;
  Tensor box;   // [groups·capacity, 4]
  Tensor score; // [groups·capacity, 1] probabilities
  int *index;   // what the box was made of; breaks ties between groups
  int *count;   // [groups]
} Boxes;

typedef struct BoxCoder { // Girshick et al., "Rich feature hierarchies …", 2014, appendix C
  float weight[4];        // x y w h
  float clamp;            // upper limit of dw, dh: log(1000 / 16)
  float extra;            // what a box's width and height have beyond x2 - x1: 0 or 1, see exact/geometry.h
} BoxCoder;

typedef struct RpnSelect {
  BoxCoder coder;
  float min_size;  // boxes narrower or lower than this are dropped
  float min_score; // and those scoring below this
} RpnSelect;

typedef struct Nms {
  float threshold, extra; // as BoxCoder's
} Nms;

typedef struct RpnMatch {
  float high, low;  // IoU ≥ high: object; < low: background; between: ignored
  bool low_quality; // also every anchor that reaches a ground truth's best IoU
  bool inside;      // anchors that reach outside the resized image are ignored, whatever they match
  int batch;        // anchors sampled per image …
  float positive;   // … of which objects at most this share
  BoxCoder coder;
} RpnMatch;
typedef struct RpnLoss {
  float beta;    // of the smooth L1 loss; 0 = L1
  bool by_batch; // both losses are divided by images · batch, rather than by the number of anchors sampled
  bool sampled;  // logits and deltas are of the sampled anchors' cells alone, a row for each of the targets' rows:
                 // logits[0] [images·batch, 1, 1, a], deltas[0] [images·batch, 1, 1, 4a]
} RpnLoss;
typedef struct RpnTargets { // image n has rows n·batch …: positives[n] objects first, count[n] in all
  int images, batch;
  int *index;     // anchor, ascending within the objects and within the background
  int *positives; // [images]
  int *count;     // [images]
  Tensor delta;   // [images·batch, 4] regression targets of the objects
} RpnTargets;

// ---- regions --------------------------------------------------------------------------------------------------------

// Regions of interest of the whole batch, compacted to the front, image after image.
typedef struct Rois {
  int capacity;
  Tensor box; // [capacity, 4] canvas pixels
  int *image; // [capacity]
  int *count; // [1]
} Rois;

typedef struct RoiSample {
  float high, low; // IoU with the best ground truth ≥ high: object; < low: background; between: ignored
  int batch;       // RoIs per image …
  float positive;  // … of which objects at most this share
  BoxCoder coder;
} RoiSample;
// What the box head learns from (rois, images in order, objects first within each) and the objects alone (objects).
typedef struct RoiTargets {
  Rois rois;
  int *label;        // [rois.capacity], 0 = background
  Tensor delta;      // [rois.capacity, 4] regression targets of the objects
  Rois objects;      // capacity images · ⌊batch · positive⌋, at least 1
  int *object_label; // [objects.capacity]
  int *object_truth; // [objects.capacity] row in Truth
} RoiTargets;

// He et al., "Mask R-CNN", 2017; FPN level as Lin et al., "Feature Pyramid Networks", 2017, eq. 1.
typedef struct RoiAlign {
  int size;                // size × size bins
  int sampling;            // samples per bin and axis; 0 = ceil(RoI size / size)
  bool aligned;            // shift by half a pixel and allow RoIs smaller than one pixel
  int levels, first_level; // levels x[0…], x[l] has stride 2^(first_level + l)
  float scale[MAX_LEVELS]; // feature pixels per canvas pixel
  // level = floor(canonical_level + log2(√area / canonical_size + size_eps) + level_eps)
  float canonical_size, canonical_level, size_eps, level_eps;
  float extra; // of the sides that make the area; as BoxCoder's
} RoiAlign;

typedef struct Detect {
  BoxCoder coder;
  float min_score, min_size;
} Detect;

typedef enum MaskSource { // where targets come from
  MASK_SOFT,              // the bitmap, resized by nearest, RoIAligned (not aligned): torchvision
  MASK_ALIGNED,           // the same at pixel centres and aligned, so that targets are not half a pixel off
  MASK_BITMAP,            // MASK_ALIGNED ≥ 0.5: detectron2's bitmaps
  MASK_POLYGON,           // polygons, drawn into the box; MASK_BITMAP where an instance has none
} MaskSource;
typedef struct MaskTarget {
  int size; // 28
  MaskSource source;
  float least_side; // polygons: a box is taken to be at least so wide and high
} MaskTarget;

// What follows the mask head's convolutions, at inference. CUDA: at most so many channels, at least so many pixels.
enum { MASK_PREDICT_CHANNELS = 256, MASK_PREDICT_LEAST_PIXELS = 16 };
typedef struct MaskPredictor {
  Tensor filter;                 // [c, 2, 2, hidden] of the transposed convolution, stride 2
  Tensor classes;                // [classes, 1, 1, hidden]
  const void *bias, *class_bias; // real [hidden], [classes]
} MaskPredictor;

typedef struct MaskPaste {
  float threshold;
  bool exact;      // over the box as it is, rather than over whole pixels
  int first, rows; // only these rows of probs, the first to the beginning of bits; 0 rows: all
} MaskPaste;

// Pasted masks as runs, COCO's: down the columns, alternately background and foreground, summing to h·w; not bits, of
// which there are too many to cross to the host. Two ops make them, of a batch at a time: mask_runs, which tells how
// many there are and where they go, and detections_write, which writes them there. By compacted row, as mask_select's.
//
// Every mask has room for its probabilities, m·m reals, and what is left of `room` besides goes to masks that have more
// runs than that, in order, until one does not fit. This one and those after it are written as probabilities, unless
// their runs fit without.
enum { RUN_SLICES = 32 }; // of a mask's columns, each of which a warp makes the runs of
typedef struct MaskRuns {
  int64_t room;   // words for all masks; ≥ rows of the probabilities · m·m reals
  int *count;     // [rows] runs of each; 0: probabilities
  int64_t *first; // [rows] word with which each begins
  int *toggles;   // [rows, RUN_SLICES] changes of colour; with `last` what mask_runs leaves to detections_write
  uint32_t *last; // [rows, RUN_SLICES] position of the last of them in the image, x·h + y; 0 if there is none
} MaskRuns;

// Detections of a batch, compacted, in memory of the host that the device writes (device_host_alloc).
typedef struct DetectionRows {
  int *count;      // [groups] how many there are
  int *index;      // [rows] as Boxes'
  void *box;       // [rows, 4] real
  void *score;     // [rows] real
  int *runs;       // [rows] MaskRuns.count
  int64_t *first;  // [rows] MaskRuns.first
  uint32_t *words; // [MaskRuns.room] runs, or probabilities
} DetectionRows;

// ---- losses, optimiser ----------------------------------------------------------------------------------------------

// Upstream factor of every loss gradient, on the device: 1, or the loss scale. NULL = 1.
typedef const void *LossScale;

// What a parameter is; some conventions train them at rates and with decays of their own.
typedef enum ParamRole { PARAM_WEIGHT, PARAM_BIAS, PARAM_NORM_SCALE, PARAM_NORM_SHIFT, PARAM_ROLES } ParamRole;
enum { PARAM_ALIGN = 64 }; // elements: every parameter begins at a multiple

typedef struct SgdFactors { // of learning rate and weight decay
  float rate[PARAM_ROLES], decay[PARAM_ROLES];
} SgdFactors;

typedef struct ClassLoss {
  float smoothing; // this share of the target is spread over all classes: torch's label_smoothing
  float weight;    // the loss is multiplied by it: 1, or an auxiliary head's
} ClassLoss;
typedef struct Hits { // rows whose class is the one, or among the five, of largest logits
  int *top1, *top5;   // [1] each
} Hits;

enum { UPDATE_PART = 4096 }; // elements at most
// A piece of one parameter that a threadblock of the optimiser's step works on, with its shadow: what convolutions read
// of it in training. Pointers to the device.
typedef struct UpdatePart {
  size_t first; // element of the flat buffers, a multiple of 4
  int n;        // elements, a multiple of 4
  ParamRole role;
  void *shadow;      // of these elements; NULL = there is none
  const void *scale; // real: each row of the shadow is multiplied by its own; NULL = 1
  int row, at;       // where there is a scale: elements of a row; of the rows of the scale, those before `first`
} UpdatePart;

typedef struct Sgd { // pointers to the device, real
  // hyper[]: learning rate, momentum, weight decay, gradient-norm limit (0 = none), 1 / loss scale
  const void *hyper;
  const void *stats;      // what grad_stats wrote
  const UpdatePart *part; // [parts], of no element twice
  int parts;
  DType shadow; // what shadows are stored as
  SgdFactors factors;
} Sgd;

typedef struct Adam { // pointers to the device
  // hyper[] as Sgd's, the momentum left alone; stats, parts, shadow and factors as there
  const void *hyper, *stats;
  // real [3]: updates made, and by what bias correction divides, 1 - beta1^updates and 1 - beta2^updates; begins as 0
  void *state;
  const UpdatePart *part;
  int parts;
  DType shadow;
  SgdFactors factors;
  double beta1, beta2;
  double eps;     // > 0, added to the root
  bool decoupled; // weight decay shrinks the weights instead of joining the gradient: AdamW
} Adam;

struct Ops {
  const char *name;

  // Cross-correlation, as an implicit GEMM of M = n·p·q pixels, N = k filters and K = r·s·c: y[p] = Σ_taps w · x, pairs
  // of (x, y) sharing w. x [n, h, w, c], w [k, r, s, c], y [n, p, q, k],
  // p = (h + 2·pad - r) / stride + 1. Rows past x's count are skipped: in the result there is anything at all in
  // them. A fully connected layer has r × s = h × w, pad 0.
  void (*conv_forward)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y);
  // How many parts conv_forward of one pair tells the moments of to Dest.moments, so that a norm need not read y first:
  // real [parts, 3, c], as batch_norm_moments', for batch_norm_forward_merged and group_norm_forward_merged. Part i has
  // CONV_MOMENTS_PIXELS pixels of y, counted over the batch, from i · CONV_MOMENTS_PIXELS on; the last has what is
  // left. 0: it cannot, or would gain nothing. Shapes alone decide.
  int (*conv_moments)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y);
  // Whether conv_forward of one pair can pool what it makes, a ReLU's output (Dest.pool), to the bits of both ops.
  bool (*conv_pools)(Device *dev, const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w);
  // Whether conv_bottleneck computes a bottleneck of these shapes, and then y [n, h, w, k] of it: the bits of its
  // convolutions one by one, whose outputs but the last are in no memory.
  bool (*conv_bottlenecks)(Device *dev, const Bottleneck *b, const Tensor *x);
  void (*conv_bottleneck)(Device *dev, const Bottleneck *b, const Tensor *x, const Tensor *y);
  // dx = wᵀ · dy (backward by data), the shapes of conv_forward. A transposed convolution's forward is this: its input
  // is dy, its output dx.
  void (*conv_dgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx);
  // dw[k, tap, c] = Σ_pairs Σ_pixels dy · x (backward by filter); its sums over pixels are what split-K divides.
  void (*conv_wgrad)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                     const FilterGrad *out);
  // How many multiprocessors conv_wgrad of one pair should have (Device.granted) beside its dgrad, which takes the
  // others (Device.lent); 0: each is faster on all of them, one after the other.
  int (*conv_wgrad_share)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw);
  // How many sums conv_wgrad of one pair tells the squares of dw in (FilterGrad.squares), so that nobody has to read dw
  // again. 0: it cannot. Shapes alone decide.
  int (*conv_squares)(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw);
  // db[c] (+)= Σ dy over valid rows and pixels, for ops whose bias does not come from conv_wgrad (transposed
  // convolution).
  void (*bias_grad)(Device *dev, const Tensor *dy, void *db, bool accumulate);
  // shadow[k, …] = scale[k] · master[k, …] in shadow's dtype; scale NULL = 1. What the convolutions read.
  void (*filter_shadow)(Device *dev, const Tensor *master, const void *scale, const Tensor *shadow);
  // A filter, real, in the order in which conv_forward of this convolution reads it best: the bytes that it takes, and
  // its making. As w of conv_forward it has the filter's shape and type PACKED. On a device without such rungs
  // (Rung.packs) neither is called.
  size_t (*filter_packed_bytes)(Device *dev, const Conv *conv, const Tensor *w);
  void (*filter_pack)(Device *dev, const Conv *conv, const Tensor *w, void *packed);
  // scale = gamma / √(var + eps), shift = beta - mean · scale; all real [c]. Frozen or inference-time batch norm.
  void (*norm_fold)(Device *dev, int c, float eps, const void *gamma, const void *beta, const void *mean,
                    const void *var, void *scale, void *shift);
  // y = x, or 0 where x is NULL, through the Dest: materialises an identity gradient.
  void (*copy)(Device *dev, const Tensor *x, const Dest *y);

  void (*max_pool_forward)(Device *dev, const Pool *pool, const Tensor *x, const Dest *y);
  // The gradient goes to the first maximum of each window in row-major order, as PyTorch's does.
  void (*max_pool_backward)(Device *dev, const Pool *pool, const Tensor *x, const Tensor *dy, const Dest *dx);

  // Means of windows; a window that covers no pixel has 0.
  void (*avg_pool_forward)(Device *dev, const AvgPool *pool, const Tensor *x, const Dest *y);
  void (*avg_pool_backward)(Device *dev, const AvgPool *pool, const Tensor *dy, const Dest *dx);

  // y [n, h, w, Σ c] = the channels of x[0], then those of x[1] …, [n, h, w, c] each, any c; at most MAX_CONCAT parts.
  void (*concat)(Device *dev, int parts, const Tensor *x, const Dest *y);
  // y [n, h, w, c] = channels first … first + c - 1 of x: the gradient of a part of concat.
  void (*slice)(Device *dev, int first, const Tensor *x, const Dest *y);

  // y = x / (1 - p), or 0 where dropped; of dy, with the same arguments, dx.
  void (*dropout)(Device *dev, const Dropout *p, const Tensor *x, const Dest *y);

  // All norms take slices (tensor_slice) as dy, and as y where it has neither addend nor mask.
  //
  // Wu, He, "Group Normalization", 2018. gamma, beta real [c]; stats real [n, groups, 2]: mean, 1 / √(var + eps).
  void (*group_norm_forward)(Device *dev, int groups, float eps, const Tensor *x, const void *gamma, const void *beta,
                             void *stats, const Dest *y);
  // The same by the moments that conv_forward told of x, whose rows are all valid. Parts that two images share, or that
  // are not whole, are not looked at: their pixels of x are.
  void (*group_norm_forward_merged)(Device *dev, int groups, float eps, const void *moments, const Tensor *x,
                                    const void *gamma, const void *beta, void *stats, const Dest *y);
  // dgamma, dbeta real [c] (+)=, NULL = not wanted; dx through its Dest. dy is the gradient of the normalised value
  // (y's mask already applied).
  void (*group_norm_backward)(Device *dev, int groups, const Tensor *x, const Tensor *dy, const void *gamma,
                              const void *stats, const Dest *dx, void *dgamma, void *dbeta, bool accumulate);
  // Batch statistics over n, h, w (the whole canvas). stats real [c, 2]: mean, 1 / √(var + eps). running_* move by
  // momentum towards the batch's mean and unbiased variance; NULL leaves them.
  void (*batch_norm_forward)(Device *dev, float eps, float momentum, const Tensor *x, const void *gamma,
                             const void *beta, void *running_mean, void *running_var, void *stats, const Dest *y);
  void (*batch_norm_backward)(Device *dev, const Tensor *x, const Tensor *dy, const void *gamma, const void *stats,
                              const Dest *dx, void *dgamma, void *dbeta, bool accumulate);
  // The forward passes above, and batch_norm_forward_merged, can pool what they make (Dest.pool, Dest.argmax) by
  // windows of 3 × 3 at stride 2, padding at most 1, to the bits of both ops, if y is no slice and has nothing else but
  // a ReLU. This is then the gradient, of batch norm where groups is 0: dy [n, p, q, c] of the maxima, 0 where a ReLU's
  // were 0; the rest as in the norm's own.
  void (*norm_pool_backward)(Device *dev, int groups, const Pool *pool, const Tensor *x, const PoolArgmax *argmax,
                             const Tensor *dy, const void *gamma, const void *stats, const Dest *dx, void *dgamma,
                             void *dbeta, bool accumulate);
  // Whether the next two are faster than two norms one after the other: group norms, or, where groups is 0, batch norms
  // in training. Shapes alone decide.
  bool (*norm_pairs)(Device *dev, int groups, const Tensor *x);
  // y [n, h, w, c] = max(0, the sum of two norms of inputs of that shape), whose rows are all valid.
  void (*norm_pair_forward)(Device *dev, int groups, float eps, float momentum, const PairedNorm in[2],
                            const Tensor *y);
  // The gradients of both, as those of each alone; of `in`, x, gamma and stats are read.
  void (*norm_pair_backward)(Device *dev, int groups, const PairedNorm in[2], const Tensor *dy,
                             const PairedNormGrad to[2]);
  // By statistics that are given: mean, var real [c]. For stats there is room as in batch_norm_forward.
  void (*batch_norm_inference)(Device *dev, float eps, const Tensor *x, const void *gamma, const void *beta,
                               const void *mean, const void *var, void *stats, const Dest *y);

  // Batch norm over the ranks of a run, each of which holds a part of the batch: the two above, cut where ranks have to
  // tell each other of their parts. No order of sums depends on anything but shapes and the order of parts, so that
  // ranks that are told the same get the same statistics, bit for bit.
  //
  // moments real [3, c] of this part: how many values (to 24 bits, where real is float), their mean, Σ (x - mean)².
  // Zeros where there are none.
  void (*batch_norm_moments)(Device *dev, const Tensor *x, void *moments);
  // batch_norm_forward of this part by the statistics of all: moments [parts, 3, c], merged in that order.
  void (*batch_norm_forward_merged)(Device *dev, float eps, float momentum, int parts, const void *moments,
                                    const Tensor *x, const void *gamma, const void *beta, void *running_mean,
                                    void *running_var, void *stats, const Dest *y);
  // sums real [3, c] of this part: how many values, Σ dy, Σ dy · x̂ with x̂ = (x - mean) / std; of dgamma, dbeta, too,
  // what this part contributes, as batch_norm_backward gives it.
  void (*batch_norm_sums)(Device *dev, const Tensor *x, const Tensor *dy, const void *stats, void *sums, void *dgamma,
                          void *dbeta, bool accumulate);
  // dx of batch_norm_backward for this part, from sums [parts, 3, c] of all.
  void (*batch_norm_backward_merged)(Device *dev, int parts, const void *sums, const Tensor *x, const Tensor *dy,
                                     const void *gamma, const void *stats, const Dest *dx);

  // y [n, h, w, 3] canvases: each image resized to rh × rw (bilinear, half-pixel centres, edges clamped),
  // (v / unit - mean) / std, mirrored if flip, zero outside. With info.view, moved and coloured as exact/view.h says.
  void (*preprocess)(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes, const Tensor *y);
  // A classifier's: the same through the map of each image's view; bilinear, black beyond the image.
  // antialias: the mean of samples spread evenly over the pixel, about one for every pixel that it covers. y has 3
  // channels or 1: brightness, as Pillow's convert("L"). Zero past rh × rw; flip is the map's to make.
  void (*preprocess_affine)(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                            const Tensor *y);

  // Per image and level the out->capacity best anchors by logit (NaN counts as -inf): decoded, clipped to the resized
  // image, small and low ones dropped, order kept. logits[l] [n, h, w, a], deltas[l] [n, h, w, 4a]; group n·levels + l;
  // score = sigmoid(logit); index = anchor.
  void (*rpn_select)(Device *dev, const RpnSelect *p, const Anchors *anchors, const ImageInfo *images,
                     const Tensor *logits, const Tensor *deltas, const Boxes *out);
  // Greedy suppression within each group of `in` (already best first): drops boxes whose IoU with a kept one is
  // above the threshold. Keeps at most out->capacity.
  void (*nms)(Device *dev, const Nms *p, const Boxes *in, const Boxes *out);
  // Merges `in`'s groups i·per … of image i into group i of `out`, by descending score, ties by index; cut at capacity.
  void (*boxes_merge)(Device *dev, int per, const Boxes *in, const Boxes *out);
  // Cuts groups (each best first) so that the `limit` best of all of them together remain; ties by group. Only the
  // counts are written.
  void (*boxes_cut)(Device *dev, int limit, const Boxes *boxes);
  // Compacts groups (image = group) into one list, order kept.
  void (*rois_compact)(Device *dev, const Boxes *in, const Rois *out);

  // Matches anchors with ground truth by IoU and samples a batch per image: of the candidates those with the smallest
  // rng_u32(rng_key(image key, RNG_RPN), anchor), ties by anchor.
  void (*rpn_match)(Device *dev, const RpnMatch *p, const Anchors *anchors, const ImageInfo *images, const Truth *truth,
                    const RpnTargets *out);
  // Appends the ground truth to the proposals (group i = image i; truth g is candidate count + g), matches, samples as
  // rpn_match does with RNG_ROI and the candidate's number, encodes the regression targets.
  void (*roi_sample)(Device *dev, const RoiSample *p, const ImageInfo *images, const Boxes *proposals,
                     const Truth *truth, const RoiTargets *out);

  // What a 3 × 3 convolution sees at the cell of every sampled anchor, from x[l] [n, h, w, c]: y [images·batch, 3, 3,
  // c], zeros beyond the map and in rows without a sample. The gradient of everything before the RPN's losses is zero
  // but for these.
  void (*rpn_patches)(Device *dev, const Anchors *anchors, const RpnTargets *targets, const Tensor *x, const Tensor *y);
  // Its gradient: every element of dx[l] is written.
  void (*rpn_patches_backward)(Device *dev, const Anchors *anchors, const RpnTargets *targets, const Tensor *dy,
                               const Dest *dx);
  // loss [2]: binary cross-entropy over all sampled anchors; smooth L1 over the objects' deltas; both divided as
  // RpnLoss says. Zero when nothing is sampled.
  void (*rpn_loss)(Device *dev, const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets,
                   const Tensor *logits, const Tensor *deltas, const Tensor *loss);
  // Their gradients times *scale; every element of dlogits[l], ddeltas[l] is written (=). Both may be channels of one
  // tensor, deltas first, of which every element is written then.
  void (*rpn_loss_backward)(Device *dev, const RpnLoss *p, const Anchors *anchors, const RpnTargets *targets,
                            const Tensor *logits, const Tensor *deltas, LossScale scale, const Tensor *dlogits,
                            const Tensor *ddeltas);

  // y [rois, size, size, c] from x[l] [n, h, w, c]. A RoI reads one level.
  void (*roi_align_forward)(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *x, const Tensor *y);
  void (*roi_align_backward)(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *dy, const Dest *dx);

  // logits [rois, 1, 1, classes], deltas [rois, 1, 1, 4·classes]. loss [2]: mean cross-entropy; smooth L1 (beta; 0 =
  // L1) of the deltas of each object's own class / number of RoIs.
  void (*box_loss)(Device *dev, float beta, const RoiTargets *targets, const Tensor *logits, const Tensor *deltas,
                   const Tensor *loss);
  void (*box_loss_backward)(Device *dev, float beta, const RoiTargets *targets, const Tensor *logits,
                            const Tensor *deltas, LossScale scale, const Tensor *dlogits, const Tensor *ddeltas);

  // target [objects, size, size, 1] real, ldc 1: the instance's mask, mirrored as its image, over the object's box.
  // From a bitmap: resized by nearest and RoIAligned with adaptive sampling. From polygons (size ≤ 64): the union of
  // its parts, moved and scaled into size × size pixels and rasterised there as COCO's maskApi does it. Without a mask:
  // negative everywhere.
  void (*mask_target)(Device *dev, const MaskTarget *p, const ImageInfo *images, const Truth *truth,
                      const RoiTargets *targets, const Tensor *target);
  // Of a 1 × 1 convolution over objects, x [objects, h, w, c] and w [classes, 1, 1, c], the output channel of each
  // object's own class, which is all that the mask loss reads: logits [objects, h, w, 1] real, ldc 1. signs
  // [objects, h, w, c / 8] bytes, or NULL: bit i of byte j says whether channel 8j + i of x is above 0; only where
  // own_predictors.
  void (*own_logits)(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w, const void *bias,
                     const Tensor *logits, void *signs);
  // Its gradients, of every element of dx and of all classes' filters and biases.
  void (*own_logits_backward)(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *w,
                              const Tensor *dlogits, const Dest *dx, const FilterGrad *out);
  // Whether the two ops below compute a mask predictor of these shapes: a transposed convolution of x [objects, h, w,
  // c], 2 × 2 with stride 2, filter [c, 2, 2, hidden], its ReLU, and own_logits of that with w [classes, 1, 1, hidden].
  bool (*own_predictors)(Device *dev, const Tensor *x, const Tensor *filter, const Tensor *w);
  // dx of x, from dlogits [objects, 2h, 2w, 1] and the signs of the hidden layer, whose gradient is in no memory: the
  // bits of own_logits_backward followed by conv_forward.
  void (*own_predictor_dgrad)(Device *dev, const RoiTargets *targets, const Tensor *filter, const Tensor *w,
                              const Tensor *dlogits, const void *signs, const Dest *dx);
  // Gradients of both layers' filters and biases: out[0] of the transposed convolution, out[1] of the logits.
  void (*own_predictor_wgrad)(Device *dev, const RoiTargets *targets, const Tensor *x, const Tensor *hidden,
                              const Tensor *w, const Tensor *dlogits, const void *signs, const FilterGrad out[2]);
  // logits [objects, m, m, classes], or [objects, m, m, 1] as own_logits gives them; target [objects, m, m, 1]. loss
  // [1]: mean binary cross-entropy over the objects' own class channel, of objects whose target is not negative; 0
  // without any.
  void (*mask_loss)(Device *dev, const RoiTargets *targets, const Tensor *logits, const Tensor *target,
                    const Tensor *loss);
  void (*mask_loss_backward)(Device *dev, const RoiTargets *targets, const Tensor *logits, const Tensor *target,
                             LossScale scale, const Tensor *dlogits);

  // logits [n, 1, 1, classes], label [n]; a row whose label is not 0 … classes - 1 does not count. loss [1]: weight
  // times mean cross-entropy of softmax and label, 0 without rows. Hits: ties by the lowest class, a NaN is larger than
  // any number.
  void (*class_loss)(Device *dev, const ClassLoss *p, const int *label, const Tensor *logits, const Tensor *loss,
                     const Hits *hits);
  // Its gradient times *scale; rows that do not count have 0.
  void (*class_loss_backward)(Device *dev, const ClassLoss *p, const int *label, const Tensor *logits, LossScale scale,
                              const Tensor *dlogits);
  // probs [n, classes] real, ldc = classes: softmax of logits [n, 1, 1, classes].
  void (*class_probs)(Device *dev, const Tensor *logits, const Tensor *probs);

  // Softmax, decoding and clipping of every (RoI, class ≥ 1): group n·(classes-1) + class-1 holds the RoIs of image n
  // with probability > min_score and both sides ≥ min_size, best first, ties by RoI; index = roi·classes + class.
  void (*detect_select)(Device *dev, const Detect *p, const ImageInfo *images, int num_images, const Rois *rois,
                        const Tensor *logits, const Tensor *deltas, const Boxes *out);
  // probs [detections, m, m, 1] real, ldc 1 = sigmoid of logits' channel index % classes, for the valid rows of boxes
  // compacted as rois_compact compacts them (logits row = compacted row).
  void (*mask_select)(Device *dev, const Boxes *detections, const Tensor *logits, const Tensor *probs);
  // The same from x [detections, h, w, c], the input of the transposed convolution before the logits: probs of 2h × 2w.
  // Neither that convolution's output nor logits of other classes are written. 16 bits: the former is rounded as if it
  // were, logits are not. CUDA: 16 bits alone, where dev->wgmma.
  void (*mask_predict)(Device *dev, const Boxes *detections, const Tensor *x, const MaskPredictor *p,
                       const Tensor *probs);
  // Pastes each valid detection's mask (compacted row as mask_select's) into the decoded image: box scaled from resized
  // to decoded pixels and expanded by (m + 2) / m about a one-pixel zero border, truncated to integers, bilinear, ≥
  // threshold, as torchvision's paste_masks_in_image. exact: not truncated, as detectron2's; a box without area has no
  // pixels. Bits are column-major, bit (x·h + y) % 32 of word (x·h + y) / 32, `words` a row.
  void (*mask_paste)(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                     const Tensor *probs, uint32_t *bits, int64_t words);
  // Counts the runs of every mask as mask_paste pastes it, and gives each its room. p's rows are not asked for.
  void (*mask_runs)(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                    const Tensor *probs, const MaskRuns *runs);
  // Writes detections and runs to the host, after mask_runs of the same arguments. probs and runs NULL: of a model
  // without masks, whose runs[] and first[] become 0.
  void (*detections_write)(Device *dev, const MaskPaste *p, const ImageInfo *images, const Boxes *detections,
                           const Tensor *probs, const MaskRuns *runs, const DetectionRows *to);

  // sums[first … end) of g [n], cut into parts of GRAD_PART elements, of which the last may have fewer.
  void (*grad_sums)(Device *dev, size_t n, const void *g, int first, int end, GradSum *sums);
  // stats [2] real: L2 norm of the gradients that sums [parts] are of (times 1 / loss scale, hyper[4]); 1 if they and
  // loss[0 … losses) are all finite, else 0.
  void (*grad_stats)(Device *dev, int parts, const GradSum *sums, int losses, const void *loss, const void *hyper,
                     void *stats);
  // v = momentum·v + (g·clip + decay·w), w -= lr·v, with clip = min(1, limit / (norm + 1e-6)) / loss scale, as
  // PyTorch's SGD after clip_grad_norm_; lr and decay times the factors of the parameter's role. w, g and v are flat
  // buffers, of which the parts are updated; their shadows become what filter_shadow makes of the new w. Nothing at all
  // is written when stats say not finite.
  void (*sgd)(Device *dev, const Sgd *p, void *w, const void *g, void *v);
  // Kingma, Ba, "Adam: a method for stochastic optimization", 2015, as torch.optim.Adam; decoupled: Loshchilov, Hutter,
  // "Decoupled weight decay regularization", 2019, as torch.optim.AdamW. g is clipped and unscaled as sgd's, lr and
  // decay times their factors. g += decay·w, or decoupled w -= lr·decay·w; m += (1 - beta1)·(g - m);
  // v = beta2·v + (1 - beta2)·g²; w -= lr / state[1] · m / (√v / √state[2] + eps). One call is one update, which counts
  // in the state before; nothing at all is written when stats say not finite. Parts and shadows as sgd's.
  void (*adam)(Device *dev, const Adam *p, void *w, const void *g, void *m, void *v);
  // A moving average of w [n], n a multiple of 4: a += towards[0]·(w - a), towards real on the device; nothing at all
  // when stats say not finite.
  void (*ema)(Device *dev, size_t n, const void *stats, const void *towards, const void *w, void *a);
  // Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018). state real [3]: scale, clean steps
  // since it last changed, steps skipped so far. A step whose stats say not finite halves the scale and is counted as
  // skipped; `interval` clean ones in a row double it. Writes hyper[4] = 1 / scale.
  void (*loss_scale_update)(Device *dev, int interval, const void *stats, void *state, void *hyper);

  // y [n] of type `to` = x [n] of type `from`, to nearest, ties to even; NaN stays NaN. F32 and BF16, on the CPU F64,
  // too; x and y are aligned to 16 bytes.
  void (*cast)(Device *dev, size_t n, const void *x, DType from, void *y, DType to);
};

extern const Ops ops_cpu, ops_cpu64, ops_cuda;
// The CPU's ops as compiled for a level of x86-64: [2] for x86-64-v2, …; NULL where there is none. Written by the
// Makefile.
enum { MAX_CPU_LEVEL = 4 };
extern const Ops *const ops_cpu_levels[MAX_CPU_LEVEL + 1], *const ops_cpu64_levels[MAX_CPU_LEVEL + 1];
const Ops *ops_of_cpu(void); // for float, of the highest level that this CPU has
