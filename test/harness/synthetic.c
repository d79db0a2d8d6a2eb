#include "test/harness/synthetic.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/rng.h"

enum { MAX_SIDE = 64 }; // of an object, decoded pixels: two words of bits

ModelConfig synthetic_config(int canvas_h, int canvas_w, int classes) {
  ModelConfig c;
  Err err;
  CHECK(config_init(&c, "tiny", &err));
  c.size = MIN(canvas_h, canvas_w);
  c.max_size = MAX(canvas_h, canvas_w);
  c.classes = classes;
  c.width = 8;
  c.norm_groups = 4;
  c.fpn_channels = 8;
  c.rpn_batch = 32;
  c.rpn_pre_nms_train = c.rpn_pre_nms_test = 40;
  c.rpn_post_nms_train = 20;
  c.rpn_post_nms_test = 12;
  c.box_pool = 3;
  c.box_dim = 12;
  c.roi_batch = 8;
  c.mask_pool = 4;
  c.mask_dim = 6;
  c.mask_layers = 2;
  c.detections = 10;
  return c;
}

static int pick(uint64_t *key, int low, int high) {
  *key = rng_key(*key, RNG_TEST);
  return low + (int)(*key % (uint64_t)(high - low + 1));
}

static bool inside_ellipse(const Bitmap *m, int x, int y) {
  double dx = (x + 0.5) / m->w * 2 - 1, dy = (y + 0.5) / m->h * 2 - 1;
  return dx * dx + dy * dy <= 1;
}

static void draw_object(Batch *b, const ImageInfo *info, int row, int label, uint64_t *key) {
  Bitmap m = {
      .offset = b->num_words, .w = pick(key, 8, MIN(MAX_SIDE, info->w)), .h = pick(key, 8, MIN(MAX_SIDE, info->h))};
  m.x = pick(key, 0, info->w - m.w);
  m.y = pick(key, 0, info->h - m.h);
  int words = (m.w + 31) / 32;
  for (int y = 0; y < m.h; y++)
    for (int x = 0; x < m.w; x++) {
      if (!inside_ellipse(&m, x, y)) continue;
      b->bits[m.offset + y * words + x / 32] |= 1u << (x % 32);
      b->bytes[info->offset + 3 * ((int64_t)(m.y + y) * info->w + m.x + x) + label % 3] = 255;
    }
  b->num_words += (int64_t)m.h * words;
  float sx = (float)info->rw / (float)info->w, sy = (float)info->rh / (float)info->h, *box = b->box + 4 * row;
  box[0] = (float)m.x * sx;
  box[2] = (float)(m.x + m.w) * sx;
  box[1] = (float)m.y * sy;
  box[3] = (float)(m.y + m.h) * sy;
  if (info->flip) {
    float left = (float)info->rw - box[2];
    box[2] = (float)info->rw - box[0];
    box[0] = left;
  }
  b->label[row] = label;
  b->bitmap[row] = m;
}

Batch synthetic_batch(int images, int canvas_h, int canvas_w, int capacity, int classes, const int *objects,
                      uint64_t key) {
  const BatchSize room = {.images = images,
                          .capacity = capacity,
                          .bytes = 3 * (int64_t)images * canvas_h * canvas_w,
                          .words = (int64_t)images * capacity * MAX_SIDE * MAX_SIDE / 32};
  Batch b = {.images = images, .capacity = capacity, .index = xcalloc((size_t)images, sizeof *b.index)};
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++)
    batch_set_array(&b, a, xcalloc(batch_elements(&room, a), batch_layout[a].element));
  for (int i = 0; i < images; i++) {
    b.index[i] = objects[i] == SYNTHETIC_EMPTY ? -1 : i;
    if (objects[i] == SYNTHETIC_EMPTY) continue;
    uint64_t random = rng_key(key, (uint64_t)i);
    b.used++;
    ImageInfo *info = &b.info[i];
    *info = (ImageInfo){.offset = b.num_bytes,
                        .h = pick(&random, canvas_h / 2, canvas_h),
                        .w = pick(&random, canvas_w / 2, canvas_w),
                        .rh = pick(&random, canvas_h * 3 / 4, canvas_h),
                        .rw = pick(&random, canvas_w * 3 / 4, canvas_w),
                        .flip = i % 2,
                        .key = random};
    for (int64_t j = 0; j < (int64_t)info->h * info->w * 3; j++)
      b.bytes[b.num_bytes + j] = (uint8_t)(rng_u32(random, (uint64_t)j) % 160);
    b.num_bytes += (int64_t)info->h * info->w * 3;
    b.count[i] = objects[i];
    for (int j = 0; j < objects[i]; j++)
      draw_object(&b, info, i * capacity + j, 1 + pick(&random, 0, classes - 2), &random);
  }
  return b;
}

void synthetic_free(Batch *b) {
  free(b->index);
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) free(batch_array(b, a));
  *b = (Batch){0};
}
