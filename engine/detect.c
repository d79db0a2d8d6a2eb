#include "engine/detect.h"
#include <stdlib.h>

void detections_free(Detections *d) {
  for (int i = 0; i < d->n; i++) rle_free(&d->items[i].mask);
  free(d->items);
  *d = (Detections){0};
}

void engine_detections(Engine *e, const Batch *batch, float threshold, Detections *out) {
  Device *dev = e->dev;
  const Network *network = &e->infer.network[batch->canvas];
  const Boxes *b = &network->result[DETECTED_BOXES]->boxes;
  size_t rows = (size_t)b->groups * (size_t)b->capacity;
  int *count = xmalloc((size_t)b->groups * sizeof *count), *index = xmalloc(rows * sizeof *index);
  double *box = xmalloc(rows * 4 * sizeof *box), *score = xmalloc(rows * sizeof *score);
  device_download(dev, count, b->count, (size_t)b->groups * sizeof *count);
  device_download(dev, index, b->index, rows * sizeof *index);
  fetch_reals(dev, box, b->box.data, rows * 4);
  fetch_reals(dev, score, b->score.data, rows);

  int total = 0;
  int64_t words = 1;
  for (int i = 0; i < b->groups; i++) {
    total += count[i];
    if (count[i]) words = MAX(words, ((int64_t)batch->info[i].h * batch->info[i].w + 31) / 32);
  }
  size_t bytes = (size_t)total * (size_t)words * sizeof(uint32_t);
  uint32_t *device_bits = device_alloc(dev, bytes), *bits = xmalloc(bytes);
  CHECK(device_bits);
  MaskPaste paste = {.threshold = threshold, .exact = e->config.mask_paste_exact};
  dev->ops->mask_paste(dev, &paste, network->input->images.info, b, &network->result[DETECTED_MASKS]->x, device_bits,
                       words);
  device_download(dev, bits, device_bits, bytes);
  device_free(dev, device_bits);

  *out = (Detections){.items = xcalloc((size_t)total, sizeof *out->items)};
  for (int i = 0; i < b->groups; i++)
    for (int j = 0; j < count[i]; j++) {
      const ImageInfo *info = &batch->info[i];
      size_t row = (size_t)i * (size_t)b->capacity + (size_t)j;
      Detection *d = &out->items[out->n];
      double ratio_x = (double)info->w / info->rw, ratio_y = (double)info->h / info->rh;
      *d = (Detection){.image = i, .label = index[row] % e->config.classes, .score = (float)score[row]};
      for (int k = 0; k < 4; k++) d->box[k] = (float)(box[4 * row + (size_t)k] * (k % 2 ? ratio_y : ratio_x));
      d->mask = rle_from_bits(bits + (size_t)out->n * (size_t)words, info->h, info->w);
      out->n++;
    }
  free(bits);
  free(score);
  free(box);
  free(index);
  free(count);
}
