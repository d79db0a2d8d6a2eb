// Catches mask targets and pasted masks that differ from torchvision's.
//
// Mask targets, selection and pasting on the GPU against the CPU reference. Both take what is sampled where from
// exact/mask_bins.h, so that targets and pasted bits are equal; only the sigmoid may differ.
#include "base/alloc.h"
#include "test/harness/gpu_boxes.h"

static const DType dtypes[] = {F32, BF16, F16};

static int below(Draw *d, int n) { return (int)draw(d, 0, (float)n); }

// Images decoded at h × w and resized to rh × rw: reduced, enlarged, mirrored, a single pixel.
enum { IMAGES = 4 };
static const int sizes[IMAGES][4] = {{40, 50, 64, 80}, {70, 45, 35, 23}, {33, 66, 50, 100}, {1, 1, 1, 1}};

static TwinArray images(void) {
  ImageInfo info[IMAGES];
  for (int n = 0; n < IMAGES; n++) {
    const int *s = sizes[n];
    info[n] = (ImageInfo){.h = s[0], .w = s[1], .rh = s[2], .rw = s[3], .flip = n % 2};
  }
  return twin_array(IMAGES, sizeof info[0], info);
}

// ---- targets --------------------------------------------------------------------------------------------------------

enum { OBJECTS = 3, ROIS = 24, MAX_WORDS = 4096 };

// Bitmaps over the whole image, one pixel wide, without a pixel; boxes over the whole image, thin, outside.
typedef struct ObjectTwins {
  TwinArray info, bitmap, bits, box, image, row, count;
} ObjectTwins;

static ObjectTwins objects_random(int count) {
  Draw r = {rng_key(21, RNG_TEST), 0};
  Bitmap bitmap[IMAGES * OBJECTS];
  uint32_t *bits = xmalloc(MAX_WORDS * sizeof *bits);
  int64_t words = 0;
  for (int i = 0; i < IMAGES * OBJECTS; i++) {
    const int *s = sizes[i / OBJECTS];
    Bitmap *b = &bitmap[i];
    *b = (Bitmap){.offset = words, .w = s[1], .h = s[0]};
    if (i % OBJECTS == 1) *b = (Bitmap){.offset = words, .x = s[1] / 2, .w = 1, .h = s[0]};
    if (i % OBJECTS == 2) *b = (Bitmap){.offset = words, .x = s[1] / 3, .y = s[0] / 3, .w = s[1] / 2, .h = s[0] / 2};
    for (int j = 0; j < b->h * ((b->w + 31) / 32); j++) bits[words++] = rng_u32(r.key, r.i++);
    CHECK(words < MAX_WORDS);
  }
  float box[ROIS][4];
  int image[ROIS], row[ROIS];
  for (int i = 0; i < ROIS; i++) {
    int n = i % IMAGES;
    float w = (float)sizes[n][3], h = (float)sizes[n][2], x = draw(&r, -2, w), y = draw(&r, -2, h);
    memcpy(box[i], (float[]){x, y, draw(&r, x, w + 2), draw(&r, y, h + 2)}, sizeof box[i]);
    if (i < IMAGES) memcpy(box[i], (float[]){0, 0, w, h}, sizeof box[i]);
    if (i == 5) memcpy(box[i], (float[]){7, 7, 7, 7}, sizeof box[i]);
    if (i == 6) memcpy(box[i], (float[]){3, 0, 3.25f, h}, sizeof box[i]);
    if (i == 9) memcpy(box[i], (float[]){w + 9, h + 9, w + 20, h + 30}, sizeof box[i]);
    image[i] = n;
    row[i] = n * OBJECTS + below(&r, OBJECTS);
  }
  ObjectTwins o = {.info = images(),
                   .bitmap = twin_array(IMAGES * OBJECTS, sizeof bitmap[0], bitmap),
                   .bits = twin_array((size_t)words, sizeof *bits, bits),
                   .box = twin_array(ROIS, sizeof box[0], box),
                   .image = twin_array(ROIS, sizeof image[0], image),
                   .row = twin_array(ROIS, sizeof row[0], row),
                   .count = twin_array(1, sizeof count, &count)};
  free(bits);
  return o;
}

static void target_on(Device *dev, bool gpu, const ObjectTwins *o, const MaskTarget *p, const Tensor *target) {
  Truth truth = {.images = IMAGES,
                 .capacity = OBJECTS,
                 .bitmap = twin_array_data(&o->bitmap, gpu),
                 .bits = twin_array_data(&o->bits, gpu)};
  RoiTargets targets = {.object_truth = twin_array_data(&o->row, gpu)};
  targets.objects = (Rois){.capacity = ROIS,
                           .box = tensor_packed(F32, ROIS, 4),
                           .image = twin_array_data(&o->image, gpu),
                           .count = twin_array_data(&o->count, gpu)};
  targets.objects.box.data = twin_array_data(&o->box, gpu);
  dev->ops->mask_target(dev, p, twin_array_data(&o->info, gpu), &truth, &targets, target);
}

// Rows of size × size pixels of one float, no padding.
static Twin one_channel(int rows, int size, float *values) {
  Twin t = twin_packed(rows * size * size, 1, values);
  t.cpu.n = t.gpu.n = rows;
  t.cpu.h = t.gpu.h = t.cpu.w = t.gpu.w = size;
  return t;
}

TEST(cuda_mask_target) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  for (int variant = 0; variant < 6; variant++) {
    int count = variant < 4 ? ROIS - 2 : 0;
    MaskTarget p = {.size = variant & 1 ? 28 : 7, .source = variant & 2 ? MASK_BITMAP : MASK_SOFT};
    ObjectTwins o = objects_random(count);
    Twin t = one_channel(ROIS, p.size, NULL);
    twin_rows(&t, count);
    target_on(gpu, true, &o, &p, &t.gpu);
    target_on(cpu_device(), false, &o, &p, &t.cpu);
    if (!twin_check(&t, NULL, 0)) printf("  size %d, source %d\n", p.size, (int)p.source); // equal
    twin_check_guards(&t, false);
    twin_free(&t);
    TwinArray *inputs[] = {&o.info, &o.bitmap, &o.bits, &o.box, &o.image, &o.row, &o.count};
    for (int i = 0; i < COUNT(inputs); i++) {
      twin_array_check_equal(inputs[i], inputs[i]->n);
      twin_array_free(inputs[i]);
    }
  }
}

// Every third object has its bits; the others polygons of one to five parts, of up to 300 points, partly outside the
// box, all of it or none.
static ObjectTwins objects_polygons(void) {
  enum { PARTS = 5, POINTS = 300 };
  Draw r = {rng_key(25, RNG_TEST), 0};
  ObjectTwins o = objects_random(ROIS);
  uint32_t *words = xmalloc(MAX_WORDS * 64 * sizeof *words);
  int64_t at = (int64_t)o.bits.n;
  memcpy(words, o.bits.cpu, o.bits.n * sizeof *words);
  Bitmap bitmap[IMAGES * OBJECTS];
  memcpy(bitmap, o.bitmap.cpu, sizeof bitmap);
  for (int i = 0; i < IMAGES * OBJECTS; i++) {
    if (i % 3 == 0) continue;
    const int *s = sizes[i / OBJECTS];
    bitmap[i] = (Bitmap){.offset = at, .parts = 1 + below(&r, PARTS)};
    for (int k = 0; k < bitmap[i].parts; k++) {
      int points = i % 4 ? 3 + below(&r, 20) : POINTS;
      words[at++] = (uint32_t)points;
      for (int j = 0; j < 2 * points; j++) {
        float side = (float)s[j % 2 ? 2 : 3], far = i % 5 ? .2f : 20, value = draw(&r, -far * side, (1 + far) * side);
        memcpy(&words[at++], &value, sizeof value);
      }
    }
  }
  twin_array_free(&o.bits);
  twin_array_free(&o.bitmap);
  o.bits = twin_array((size_t)at, sizeof *words, words);
  o.bitmap = twin_array(IMAGES * OBJECTS, sizeof bitmap[0], bitmap);
  free(words);
  return o;
}

TEST(cuda_mask_target_polygons) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  for (int variant = 0; variant < 4; variant++) {
    MaskTarget p = {
        .size = (const int[]){7, 28, 64, 33}[variant], .source = MASK_POLYGON, .least_side = variant % 2 ? 1 : .1f};
    ObjectTwins o = objects_polygons();
    Twin t = one_channel(ROIS, p.size, NULL);
    twin_rows(&t, ROIS);
    target_on(gpu, true, &o, &p, &t.gpu);
    target_on(cpu_device(), false, &o, &p, &t.cpu);
    if (!twin_check(&t, NULL, 0)) printf("  size %d\n", p.size); // equal
    twin_check_guards(&t, false);
    int set = 0;
    for (int i = 0; i < ROIS * p.size * p.size; i++) set += ((float *)t.cpu.data)[i] == 1;
    EXPECT(set > ROIS * p.size && set < ROIS * p.size * p.size);
    twin_free(&t);
    TwinArray *inputs[] = {&o.info, &o.bitmap, &o.bits, &o.box, &o.image, &o.row, &o.count};
    for (int i = 0; i < COUNT(inputs); i++) {
      twin_array_check_equal(inputs[i], inputs[i]->n);
      twin_array_free(inputs[i]);
    }
  }
}

// ---- predictions ----------------------------------------------------------------------------------------------------

enum { CAPACITY = 6, CLASSES = 5, PLACES = IMAGES * CAPACITY };
static const int counts[IMAGES] = {CAPACITY, 0, 3, 1};

typedef struct DetectionTwins {
  TwinArray info, box, index, count;
  Boxes side[2];
} DetectionTwins;

static DetectionTwins predictions_random(void) {
  Draw r = {rng_key(22, RNG_TEST), 0};
  float box[PLACES][4];
  int index[PLACES];
  for (int i = 0; i < PLACES; i++) {
    const int *s = sizes[i / CAPACITY];
    float w = (float)s[3], h = (float)s[2], x = draw(&r, 0, w), y = draw(&r, 0, h);
    memcpy(box[i], (float[]){x, y, draw(&r, x, w), draw(&r, y, h)}, sizeof box[i]);
    if (i % CAPACITY == 0) memcpy(box[i], (float[]){0, 0, w, h}, sizeof box[i]);
    if (i % CAPACITY == 2) memcpy(box[i], (float[]){x, y, x + .01f, y + .01f}, sizeof box[i]);
    index[i] = 10 * CLASSES * i + 1 + i % (CLASSES - 1);
  }
  DetectionTwins p = {.info = images(),
                      .box = twin_array(PLACES, sizeof box[0], box),
                      .index = twin_array(PLACES, sizeof index[0], index),
                      .count = twin_array(IMAGES, sizeof counts[0], counts)};
  for (int gpu = 0; gpu < 2; gpu++) {
    Boxes *b = &p.side[gpu];
    *b = (Boxes){.groups = IMAGES,
                 .capacity = CAPACITY,
                 .box = tensor_packed(F32, PLACES, 4),
                 .index = twin_array_data(&p.index, gpu),
                 .count = twin_array_data(&p.count, gpu)};
    b->box.data = twin_array_data(&p.box, gpu);
  }
  return p;
}

static void predictions_free(DetectionTwins *p) {
  TwinArray *inputs[] = {&p->info, &p->box, &p->index, &p->count};
  for (int i = 0; i < COUNT(inputs); i++) {
    twin_array_check_equal(inputs[i], inputs[i]->n);
    twin_array_free(inputs[i]);
  }
}

static int detections(void) {
  int n = 0;
  for (int i = 0; i < IMAGES; i++) n += counts[i];
  return n;
}

TEST(cuda_mask_select) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  for (int d = 0; d < COUNT(dtypes); d++) {
    DetectionTwins p = predictions_random();
    int size = d ? 5 : 28;
    Twin logits = twin_random(dtypes[d], PLACES, size, size, CLASSES, 4, 23), probs = one_channel(PLACES, size, NULL);
    twin_rows(&probs, detections());
    gpu->ops->mask_select(gpu, &p.side[1], &logits.gpu, &probs.gpu);
    cpu_device()->ops->mask_select(cpu_device(), &p.side[0], &logits.cpu, &probs.cpu);
    twin_check(&probs, NULL, 12); // on either side exp is off by two steps at most, then a sum and a quotient
    twin_check_guards(&probs, false);
    twin_check_guards(&logits, true);
    twin_free(&probs);
    twin_free(&logits);
    predictions_free(&p);
  }
}

// Every word of the valid rows equals the CPU's; the rest is left alone.
static void check_paste(Device *gpu, DetectionTwins *p, int size, const MaskPaste *how, int64_t words) {
  Draw r = {rng_key(24, RNG_TEST), 0};
  float *values = xmalloc((size_t)(PLACES * size * size) * sizeof *values);
  for (int i = 0; i < PLACES * size * size; i++) values[i] = draw(&r, 0, 1);
  Twin probs = one_channel(PLACES, size, values);
  free(values);
  TwinArray bits = twin_array((size_t)PLACES * (size_t)words, sizeof(uint32_t), NULL);
  gpu->ops->mask_paste(gpu, how, p->info.gpu, &p->side[1], &probs.gpu, bits.gpu, words);
  cpu_device()->ops->mask_paste(cpu_device(), how, p->info.cpu, &p->side[0], &probs.cpu, bits.cpu, words);
  twin_array_check_equal(&bits, bits.n);
  int set = 0;
  for (int64_t i = 0; i < detections() * words; i++) set += __builtin_popcount(((uint32_t *)bits.cpu)[i]);
  EXPECT(set > 100);
  twin_check_guards(&probs, true);
  twin_array_free(&bits);
  twin_free(&probs);
}

TEST(cuda_mask_paste) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  DetectionTwins p = predictions_random();
  for (int exact = 0; exact < 2; exact++) {
    check_paste(gpu, &p, 28, &(MaskPaste){.threshold = .5f, .exact = exact}, (70 * 45 + 31) / 32);
    check_paste(gpu, &p, 3, &(MaskPaste){.threshold = .25f, .exact = exact}, 3 * 70 * 45 / 32); // longer than any image
    check_paste(gpu, &p, 28, &(MaskPaste){.threshold = .5f, .first = 2, .rows = 5}, (70 * 45 + 31) / 32);
  }
  predictions_free(&p);
}

// An image of so many words that a thread makes several.
TEST(cuda_mask_paste_large) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  DetectionTwins p = predictions_random();
  ImageInfo *info = p.info.cpu;
  info[0] = (ImageInfo){.h = 3001, .w = 3001, .rh = 200, .rw = 200};
  device_upload(gpu, p.info.gpu, info, IMAGES * sizeof *info);
  check_paste(gpu, &p, 28, &(MaskPaste){.threshold = .5f}, (3001 * 3001 + 31) / 32);
  predictions_free(&p);
}
