// Matching anchors and RoIs with the ground truth by IoU, and sampling positives and negatives to train on. Ren et al.,
// "Faster R-CNN", 2015, section 3.1.2; torchvision's Matcher and BalancedPositiveNegativeSampler. No matrix of
// candidates × objects is stored. In the code a positive is an `object`, a negative `background`.
#include "cpu/reference.h"
#include "cpu/topk.h"
#include "exact/matching.h"

// ---- ground truth of one image --------------------------------------------------------------------------------------

typedef struct ImageTruth {
  const Box *box; // [n]
  int n;
  real extra; // as BoxCoder's
} ImageTruth;

static ImageTruth image_truth(const Truth *truth, int image, const BoxCoder *coder) {
  return (ImageTruth){
      .box = box_rows(&truth->box) + (size_t)image * truth->capacity, .n = truth->count[image], .extra = coder->extra};
}

static Box object_span(const ImageTruth *objects, int g) { return box_span(objects->box[g], objects->extra); }

// The object that overlaps the box most. Also raises reached[g], the best IoU that any candidate so far has with object
// g, where reached is given.
static Match best_match(const ImageTruth *objects, Box box, real *reached) {
  Match best = {.iou = -1};
  Box span = box_span(box, objects->extra);
  for (int g = 0; g < objects->n; g++) {
    real iou = box_iou(span, object_span(objects, g));
    if (iou > best.iou) best = (Match){.iou = iou, .truth = g};
    if (reached && iou > reached[g]) reached[g] = iou;
  }
  return best;
}

// ---- sampling -------------------------------------------------------------------------------------------------------

// A random sample of an image's candidates without replacement: a positive or negative is taken if its random number is
// among the smallest of its class (positive or negative), which one heap per class finds in a single pass. At most
// objects.k positives; negatives fill the rest of the batch.
typedef struct BalancedSampler {
  uint64_t key;
  int batch;
  TopK objects, background; // row: the ground truth of an object
} BalancedSampler;

static size_t sampler_slots(int batch, float positive) { return (size_t)batch + most_positives(batch, positive); }

static BalancedSampler sampler_begin(TopKItem *slots, uint64_t key, int batch, float positive) {
  return (BalancedSampler){.key = key,
                           .batch = batch,
                           .objects = {.items = slots + batch, .k = most_positives(batch, positive)},
                           .background = {.items = slots, .k = batch}};
}

// Draws the candidate's random number: a pure function of the image's key and the candidate's.
static void sampler_offer(BalancedSampler *s, bool object, int candidate, int truth) {
  TopKItem r = {.score = -(double)rng_u32(s->key, (uint64_t)candidate), .index = candidate, .row = truth};
  topk_offer(object ? &s->objects : &s->background, r);
}

// Cuts the negatives to what the positives leave of the batch. Both lists end in ascending order of candidates.
static void sampler_finish(BalancedSampler *s) {
  topk_sort(&s->background);
  s->background.n = MIN(s->background.n, s->batch - s->objects.n);
  topk_sort_by_index(&s->background);
  topk_sort_by_index(&s->objects);
}

// ---- anchors --------------------------------------------------------------------------------------------------------

// Low-quality matches (allow_low_quality_matches): whether the anchor has the best IoU that any anchor has with some
// object. An object that no anchor overlaps is reached by none.
static bool reaches_best(const ImageTruth *objects, Box anchor, const real *reached) {
  Box span = box_span(anchor, objects->extra);
  for (int g = 0; g < objects->n; g++) {
    real iou = box_iou(span, object_span(objects, g));
    if (iou > 0 && iou == reached[g]) return true;
  }
  return false;
}

// Two passes over the anchors: the first leaves the best match of each anchor and the best IoU of each object; the
// second computes IoUs once more for the few anchors whose best is high enough to be some object's best.
static void match_anchors(const RpnMatch *p, const Anchors *anchors, const ImageInfo *info, const ImageTruth *objects,
                          Match *match, real *reached, BalancedSampler *sampler) {
  const real high = iou_threshold(p->high), low = iou_threshold(p->low);
  for (int g = 0; g < objects->n; g++) reached[g] = 0;
  for (int i = 0; i < anchors->total; i++) match[i] = best_match(objects, anchor_box(anchors, i), reached);
  real least = INFINITY;
  for (int g = 0; g < objects->n; g++) least = reached[g] < least ? reached[g] : least;
  for (int i = 0; i < anchors->total; i++) {
    Match m = match[i];
    if (p->inside && !box_inside(anchor_box(anchors, i), info->rh, info->rw)) continue;
    bool object = m.iou >= high;
    if (!object && p->low_quality && m.iou >= least) object = reaches_best(objects, anchor_box(anchors, i), reached);
    if (object || m.iou < low) sampler_offer(sampler, object, i, m.truth);
  }
  sampler_finish(sampler);
}

// An image's sample: anchors, positives first, and the regression targets of the positives.
static void write_rpn_targets(const RpnMatch *p, const Anchors *anchors, const ImageTruth *objects,
                              const BalancedSampler *s, const RpnTargets *out, int image) {
  size_t first = (size_t)image * out->batch;
  int *index = out->index + first;
  real *delta = (real *)out->delta.data + 4 * first;
  for (int i = 0; i < s->objects.n; i++) {
    TopKItem r = s->objects.items[i];
    *index++ = r.index;
    box_encode(&p->coder, anchor_box(anchors, r.index), objects->box[r.row], delta + 4 * i);
  }
  for (int i = 0; i < s->background.n; i++) *index++ = s->background.items[i].index;
  out->positives[image] = s->objects.n;
  out->count[image] = s->objects.n + s->background.n;
}

void OP(rpn_match)(Device *dev, const RpnMatch *p, const Anchors *anchors, const ImageInfo *images, const Truth *truth,
                   const RpnTargets *out) {
  size_t images_n = (size_t)out->images, slots = sampler_slots(p->batch, p->positive);
  size_t ranked_bytes = images_n * slots * sizeof(TopKItem), match_bytes = images_n * anchors->total * sizeof(Match);
  char *workspace = device_workspace(dev, ranked_bytes + match_bytes + images_n * truth->capacity * sizeof(real));
  if (!workspace) return;
  CHECK(p->batch == out->batch);
  Match *match = (Match *)(workspace + ranked_bytes);
  real *reached = (real *)(workspace + ranked_bytes + match_bytes);
#pragma omp parallel for schedule(dynamic)
  for (int n = 0; n < out->images; n++) {
    out->count[n] = 0;
    out->positives[n] = 0;
    if (images[n].h == 0) continue;
    ImageTruth objects = image_truth(truth, n, &p->coder);
    BalancedSampler sampler = sampler_begin((TopKItem *)workspace + (size_t)n * slots, rng_key(images[n].key, RNG_RPN),
                                            p->batch, p->positive);
    match_anchors(p, anchors, &images[n], &objects, match + (size_t)n * anchors->total,
                  reached + (size_t)n * truth->capacity, &sampler);
    write_rpn_targets(p, anchors, &objects, &sampler, out, n);
  }
}

// ---- RoIs -----------------------------------------------------------------------------------------------------------

typedef struct Candidates { // of one image: its proposals, then its ground truth
  const Box *proposal;
  int proposals;
  ImageTruth objects;
} Candidates;

static Candidates image_candidates(const Boxes *proposals, const Truth *truth, int image, const BoxCoder *coder) {
  return (Candidates){.proposal = box_rows(&proposals->box) + (size_t)image * proposals->capacity,
                      .proposals = proposals->count[image],
                      .objects = image_truth(truth, image, coder)};
}

static Box candidate_box(const Candidates *c, int i) {
  return i < c->proposals ? c->proposal[i] : c->objects.box[i - c->proposals];
}

// Matches the candidates of one image and offers positives and negatives to its sampler.
static void match_rois(const RoiSample *p, const Candidates *c, BalancedSampler *sampler) {
  const real high = iou_threshold(p->high), low = iou_threshold(p->low);
  for (int i = 0; i < c->proposals + c->objects.n; i++) {
    Match m = best_match(&c->objects, candidate_box(c, i), NULL);
    bool object = m.iou >= high;
    if (object || m.iou < low) sampler_offer(sampler, object, i, m.truth);
  }
  sampler_finish(sampler);
}

static void put_roi(const Rois *rois, Box box, int image) {
  int row = (*rois->count)++;
  CHECK(row < rois->capacity);
  box_rows(&rois->box)[row] = box;
  rois->image[row] = image;
}

// The batch's lists are compacted over its images, in their order: one count for all, as in nn/ops.h.
static void append_rois(const RoiSample *p, const Candidates *c, const BalancedSampler *s, const Truth *truth,
                        const RoiTargets *out, int image) {
  for (int i = 0; i < s->objects.n; i++) {
    TopKItem r = s->objects.items[i];
    Box box = candidate_box(c, r.index);
    int row = *out->rois.count, object = *out->objects.count, truth_row = image * truth->capacity + r.row;
    put_roi(&out->rois, box, image);
    put_roi(&out->objects, box, image);
    box_encode(&p->coder, box, c->objects.box[r.row], (real *)out->delta.data + 4 * (size_t)row);
    int label = truth->label[truth_row];
    out->object_label[object] = label;
    out->label[row] = label;
    out->object_truth[object] = truth_row;
  }
  for (int i = 0; i < s->background.n; i++) {
    out->label[*out->rois.count] = 0;
    put_roi(&out->rois, candidate_box(c, s->background.items[i].index), image);
  }
}

void OP(roi_sample)(Device *dev, const RoiSample *p, const ImageInfo *images, const Boxes *proposals,
                    const Truth *truth, const RoiTargets *out) {
  size_t slots = sampler_slots(p->batch, p->positive), ranked_bytes = truth->images * slots * sizeof(TopKItem);
  char *workspace = device_workspace(dev, ranked_bytes + truth->images * sizeof(BalancedSampler));
  if (!workspace) return;
  CHECK(proposals->groups == truth->images && out->rois.capacity >= truth->images * p->batch);
  CHECK(out->objects.capacity >= truth->images * most_positives(p->batch, p->positive));
  BalancedSampler *sampler = (BalancedSampler *)(workspace + ranked_bytes);
#pragma omp parallel for schedule(dynamic)
  for (int n = 0; n < truth->images; n++) {
    sampler[n] =
        sampler_begin((TopKItem *)workspace + n * slots, rng_key(images[n].key, RNG_ROI), p->batch, p->positive);
    Candidates candidates = image_candidates(proposals, truth, n, &p->coder);
    if (images[n].h > 0) match_rois(p, &candidates, &sampler[n]);
  }
  *out->objects.count = 0;
  *out->rois.count = 0;
  for (int n = 0; n < truth->images; n++) {
    Candidates candidates = image_candidates(proposals, truth, n, &p->coder);
    append_rois(p, &candidates, &sampler[n], truth, out, n);
  }
}
