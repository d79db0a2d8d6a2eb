#include "data/batches/loader.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "data/batches/outage.h"
#include "data/batches/sampler.h"
#include "data/images/shrink.h"

enum { MAX_REPLACEMENTS = 64 }; // draws for one bad image before its position in the batch stays empty

// One batch of the ring. While it is filled, slot i has its own memory for bytes and words, so that slots can be
// decoded in any order; packing then closes the gaps.
typedef struct Slot {
  Batch batch;
  char *block; // holds the batch's arrays
  int64_t epoch;
  int *copy;      // [images] which of the epoch's copies of its image a position holds
  int64_t *words; // [images] words of each position's bitmaps
  int pending;    // positions that are not decoded yet
  bool ready;
  bool lacking;     // out of memory, or files cannot be read: the image itself may be fine
  int bad_position; // the first position with a bad image, or -1
  Err bad;          // what is wrong with it
} Slot;

struct Loader {
  const Dataset *data;
  LoaderOptions options;
  Slot *slots; // step s lives in slots[s % num_slots]
  int num_slots;
  struct Worker *worker;
  int num_workers;
  atomic_uchar *bad; // [num_images] those met so far
  atomic_int bad_images;
  Outage outage;

  pthread_mutex_t lock;  // guards everything below, and the slots' progress
  pthread_cond_t room;   // a slot came free, or stop
  pthread_cond_t filled; // a slot is ready
  Sampler sampler;       // its groups never change and are read without the lock
  bool stop;
  int64_t oldest;    // the first step whose slot the consumer may be looking at; all before are free
  int64_t next;      // the step the consumer gets next
  int64_t item_step; // the next position to decode
  int item_position;
  double seconds[LOADER_STAGES]; // of all workers
};

typedef struct Worker { // a decoder thread
  Loader *loader;
  pthread_t thread;
  Scratch scratch;               // for the image being decoded
  uint8_t *pasted;               // another image, whose objects are pasted over it; NULL: none ever is
  double seconds[LOADER_STAGES]; // not added to the loader's yet
  double mark;                   // when the current stage began
} Worker;

const char *const loader_stage_names[LOADER_STAGES] = {"read", "decode", "masks", "copy"};

// Ends a stage, and starts the next.
static void lap(Worker *w, LoaderStage stage) {
  double now = now_seconds();
  w->seconds[stage] += now - w->mark;
  w->mark = now;
}

// One image

static bool stopping(Loader *l) {
  pthread_mutex_lock(&l->lock);
  bool stop = l->stop;
  pthread_mutex_unlock(&l->lock);
  return stop;
}

// Whether to retry a file that could not be read: it existed, and the patience is not over.
static bool try_again(Loader *l, int i, double begin, const Err *why) {
  const Dataset *d = l->data;
  return !d->absent[d->image[i]] && !atomic_load(&l->bad[i]) && !stopping(l) && outage_wait(&l->outage, begin, why);
}

// The file of image i; also returns its path; both last until the scratch is reset. NULL with a message.
static const uint8_t *read_file(Worker *worker, int i, char **path, size_t *size, Err *err) {
  Loader *l = worker->loader;
  const double begin = worker->mark;
  const size_t length = dataset_path_size(l->data, i);
  const uint8_t *bytes = NULL;
  do {
    scratch_reset(&worker->scratch);
    if (!(*path = scratch_take(&worker->scratch, length))) {
      err_memory(err, length, "the name of an image", NULL);
      return NULL;
    }
    dataset_path_to(l->data, i, *path);
    bytes = scratch_read_file(&worker->scratch, *path, size, err);
  } while (!bytes && !worker->scratch.lacking && try_again(l, i, begin, err));
  if (bytes) outage_end(&l->outage);
  lap(worker, LOADER_READ);
  return bytes;
}

// Decodes an image of the data set's size, and scales it down if the data set says so.
static bool decode_image(Worker *worker, int i, int orientation, const uint8_t *bytes, size_t size, const char *path,
                         uint8_t *rgb, Err *err) {
  const Dataset *d = worker->loader->data;
  const CocoImage *im = &d->coco.images[d->image[i]];
  const int by = d->shrink ? d->shrink[d->image[i]] : 1;
  if (by == 1) return image_decode_into(rgb, orientation, d->range, bytes, size, &worker->scratch, path, err);
  uint8_t *whole = scratch_take(&worker->scratch, (size_t)im->h * im->w * 3);
  if (!whole) return err_memory(err, worker->scratch.lacking, path, "--threads");
  if (!image_decode_into(whole, orientation, d->range, bytes, size, &worker->scratch, path, err)) return false;
  shrink(whole, im->h, im->w, by, rgb);
  return true;
}

// Reads the file of image i into rgb[h, w, 3], sizes as dataset_size has them.
static bool read_image(Worker *worker, int i, uint8_t *rgb, Err *err) {
  const Dataset *d = worker->loader->data;
  worker->mark = now_seconds();
  if (d->gray) {
    dataset_pixels(d, i, rgb);
    lap(worker, LOADER_DECODE);
    return true;
  }
  char *path;
  size_t size;
  const uint8_t *bytes = read_file(worker, i, &path, &size, err);
  int h, w;
  if (!bytes || !image_measure(bytes, size, path, &h, &w, err)) return false;
  const int orientation = image_orientation(bytes, size);
  if (!dataset_fits(d, i, path, h, w, orientation, err)) return false;
  bool ok = decode_image(worker, i, d->upright ? orientation : 1, bytes, size, path, rgb, err);
  lap(worker, LOADER_DECODE);
  return ok;
}

// Whether images are augmented in this epoch.
static bool is_augmented(const LoaderOptions *o, int64_t epoch) { return o->train && epoch >= o->augment_after; }

// Bad images, and images

// Records what is wrong with a batch: the first slot's error, but out-of-memory has precedence.
static void keep_bad(Loader *l, Slot *slot, int position, bool lacking, const Err *err) {
  pthread_mutex_lock(&l->lock);
  bool sooner = slot->bad_position < 0 || position < slot->bad_position;
  if (lacking == slot->lacking ? sooner : lacking) {
    slot->lacking = lacking;
    slot->bad_position = position;
    slot->bad = *err;
  }
  pthread_mutex_unlock(&l->lock);
}

static void report_bad(Loader *l, Slot *slot, int position, int i, const Err *err) {
  keep_bad(l, slot, position, false, err);
  if (atomic_exchange(&l->bad[i], 1)) return;
  atomic_fetch_add(&l->bad_images, 1);
  if (!l->options.strict) dataset_tell_bad(l->data, i, l->options.train ? "replaced" : "left out", err->msg);
}

// Draws another image whose objects are pasted over image i, and decodes it; -1: none is, or it cannot be read.
static int read_pasted(Worker *w, Slot *slot, int position, uint64_t key) {
  Loader *l = w->loader;
  const Dataset *d = l->data;
  const uint64_t k = rng_key(key, RNG_PASTE);
  Err err;
  if (!w->pasted || !(rng_uniform(k, 0) < l->options.augment.paste)) return -1;
  const int source = (int)(rng_u32(k, 1) % (uint32_t)d->num_images);
  if (read_image(w, source, w->pasted, &err)) return source;
  if (!w->scratch.lacking && !outage_lasts(&l->outage)) report_bad(l, slot, position, source, &err);
  return -1;
}

static bool write_image(Worker *w, Slot *slot, int position, int i, Err *err) {
  const Loader *l = w->loader;
  const LoaderOptions *o = &l->options;
  const Dataset *d = l->data;
  Batch *b = &slot->batch;
  const Canvas *canvas = &d->canvas[b->canvas];
  const Size size = dataset_size(d, i);
  const Augment *augment = is_augmented(o, slot->epoch) ? &o->augment : NULL;
  ImageInfo info = {.offset = position * d->max_bytes, .h = size.h, .w = size.w};
  if (!read_image(w, i, b->bytes + info.offset, err)) return false;
  info.key = rng_key(rng_key(o->seed, (uint64_t)slot->epoch), (uint64_t)d->coco.images[d->image[i]].id);
  if (slot->copy[position]) info.key = rng_key(info.key, (uint64_t)slot->copy[position]);
  const int source = augment ? read_pasted(w, slot, position, info.key) : -1;
  if (w->scratch.lacking) return false;
  b->index[position] = i;
  b->info[position] = info;
  slot->words[position] = d->type->write(d, &(ImageSlot){.batch = b,
                                                         .position = position,
                                                         .image = i,
                                                         .canvas_h = canvas->h,
                                                         .canvas_w = canvas->w,
                                                         .resize = augment_resize(augment, info.key, d->resize),
                                                         .augment = augment,
                                                         .source = source,
                                                         .pasted = source < 0 ? NULL : w->pasted,
                                                         .masks = o->masks,
                                                         .scratch = &w->scratch});
  lap(w, LOADER_MASKS);
  return !w->scratch.lacking;
}

// The image to try after `attempt` failures in a slot meant for image i: another one with the same canvas.
static int replacement(const Loader *l, int canvas, int i, int attempt) {
  const Dataset *d = l->data;
  const int *member = l->sampler.member + l->sampler.first[canvas];
  const int members = l->sampler.first[canvas + 1] - l->sampler.first[canvas];
  uint64_t key = rng_key(rng_key(l->options.seed, RNG_REPLACE), (uint64_t)d->coco.images[d->image[i]].id);
  return member[rng_key(key, (uint64_t)attempt) % (uint64_t)members];
}

static void clear_position(const Loader *l, Slot *slot, int position) {
  Batch *b = &slot->batch;
  batch_clear(b, position);
  b->label[(int64_t)position * b->capacity] = l->data->type->no_label;
  slot->words[position] = 0;
}

static void lack_memory(Worker *w, Slot *slot, int position, int i) {
  const Dataset *d = w->loader->data;
  Err err;
  char what[512];
  snprintf(what, sizeof what, "decoding %s", d->coco.images[d->image[i]].file_name);
  err_memory(&err, w->scratch.lacking, what, "--threads");
  keep_bad(w->loader, slot, position, true, &err);
}

// Decodes the image of a position, or a replacement. If no file can be read, the image is not known to be bad.
static void fill_position(Worker *w, Slot *slot, int position) {
  Loader *l = w->loader;
  const int image = slot->batch.index[position];
  clear_position(l, slot, position);
  if (image < 0) return;
  Err err, first;
  bool unknown = false; // whether it is unknown if the first image is bad
  for (int i = image, attempt = 0; attempt <= MAX_REPLACEMENTS; attempt++) {
    if (attempt > 0) i = replacement(l, slot->batch.canvas, image, attempt - 1);
    if (attempt > 0 && atomic_load(&l->bad[i])) continue; // once is enough, for finding out may take a while
    if (write_image(w, slot, position, i, &err)) {
      if (unknown) report_bad(l, slot, position, image, &first);
      return;
    }
    if (w->scratch.lacking) { // the image may be fine
      lack_memory(w, slot, position, i);
      return;
    }
    const bool replaced = l->options.train && !l->options.strict;
    if (!replaced || !outage_lasts(&l->outage)) {
      report_bad(l, slot, position, i, &err);
    } else if (attempt == 0) {
      first = err;
      unknown = true;
    }
    if (!replaced) return;
  }
  if (outage_lasts(&l->outage)) keep_bad(l, slot, position, true, &err);
}

// Closes the gaps between the bytes and words of the images, and adjusts the offsets.
static void pack(Slot *slot, int64_t max_bytes, int64_t max_words) {
  Batch *b = &slot->batch;
  b->used = 0;
  b->num_bytes = b->num_words = 0;
  for (int position = 0; position < b->images; position++) {
    ImageInfo *info = &b->info[position];
    int64_t size = (int64_t)info->h * info->w * 3;
    memmove(b->bytes + b->num_bytes, b->bytes + position * max_bytes, (size_t)size);
    info->offset = b->num_bytes;
    b->num_bytes += size;
    if (slot->words[position] > 0)
      memmove(b->bits + b->num_words, b->bits + position * max_words, (size_t)slot->words[position] * sizeof *b->bits);
    for (int o = 0; o < b->count[position]; o++) b->bitmap[(int64_t)position * b->capacity + o].offset += b->num_words;
    b->num_words += slot->words[position];
    b->used += b->index[position] >= 0;
  }
}

// Threads

static int64_t end_of(const Loader *l) {
  if (!l->options.train) return l->sampler.steps;
  return l->options.end_step ? l->options.end_step : INT64_MAX;
}

// Waits for a position to decode, in step order. False: the loader is closing, or no steps are left.
static bool take_position(Loader *l, Slot **slot, int *position) {
  const int64_t end = end_of(l);
  pthread_mutex_lock(&l->lock);
  while (!l->stop && l->item_step < end && l->item_step >= l->oldest + l->num_slots)
    pthread_cond_wait(&l->room, &l->lock);
  bool more = !l->stop && l->item_step < end;
  if (more) {
    Slot *s = *slot = &l->slots[l->item_step % l->num_slots];
    Batch *b = &s->batch;
    if (l->item_position == 0) {
      CHECK(b->step < l->oldest); // the consumer has released this slot
      b->step = l->item_step;
      b->canvas = sampler_batch(&l->sampler, b->step, b->index, s->copy);
      s->epoch = sampler_epoch(&l->sampler, b->step);
      s->pending = b->images;
      s->ready = false;
      s->bad_position = -1;
      s->lacking = false;
    }
    *position = l->item_position++;
    if (l->item_position == b->images) {
      l->item_position = 0;
      l->item_step++;
    }
  }
  pthread_mutex_unlock(&l->lock);
  return more;
}

// Adds the worker's times to the loader's, whose lock is held.
static void add_seconds(Worker *w) {
  for (int i = 0; i < LOADER_STAGES; i++) {
    w->loader->seconds[i] += w->seconds[i];
    w->seconds[i] = 0;
  }
}

static void *decode_positions(void *worker) {
  Worker *w = worker;
  Loader *l = w->loader;
  Slot *slot;
  for (int position; take_position(l, &slot, &position);) {
    fill_position(w, slot, position);
    pthread_mutex_lock(&l->lock);
    bool last = --slot->pending == 0;
    add_seconds(w);
    pthread_mutex_unlock(&l->lock);
    if (!last) continue;
    w->mark = now_seconds();
    pack(slot, l->data->max_bytes, l->data->max_words);
    lap(w, LOADER_COPY);
    pthread_mutex_lock(&l->lock);
    add_seconds(w);
    slot->ready = true;
    pthread_cond_signal(&l->filled);
    pthread_mutex_unlock(&l->lock);
  }
  return NULL;
}

// Where batches live

static int held_of(const LoaderOptions *o) { return MAX(o->held, 1); }

static void *malloc_for(void *context, size_t bytes) {
  (void)context;
  return malloc(MAX(bytes, 1));
}
static void free_for(void *context, void *p) {
  (void)context;
  free(p);
}
static const HostMemory c_library = {malloc_for, free_for, NULL};

static void *take(char *block, size_t *offset, size_t bytes) {
  void *p = block ? block + *offset : NULL;
  *offset += (bytes + 63) / 64 * 64;
  return p;
}

// The arrays of a batch that are copied to the device share one block, so that only one allocation is page-locked.
// Returns its size.
static size_t lay_out(Batch *b, const BatchSize *room, char *block) {
  size_t offset = 0;
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++)
    batch_set_array(b, a, take(block, &offset, batch_elements(room, a) * batch_layout[a].element));
  return offset;
}

size_t loader_ring_bytes(const BatchSize *room, int prefetch, int held) {
  return (size_t)(prefetch + held) * lay_out(&(Batch){0}, room, NULL);
}

// Per pixel, whose image has three bytes: the file, 5 bytes of a progressive JPEG (7 if it is CMYK; data/images), and 3
// of an image that is scaled down afterwards.
size_t loader_scratch_bytes(int threads, int64_t image_bytes) { return 4 * (size_t)threads * (size_t)image_bytes; }

static bool slot_open(Slot *slot, const Dataset *d, const LoaderOptions *o, Err *err) {
  const size_t images = (size_t)o->batch;
  Batch *b = &slot->batch;
  b->images = o->batch;
  b->capacity = MAX(d->max_objects, 1);
  b->step = -1;
  b->index = xmalloc(images * sizeof *b->index);
  slot->copy = xmalloc(images * sizeof *slot->copy);
  slot->words = xcalloc(images, sizeof *slot->words);
  const BatchSize room = {.images = b->images,
                          .capacity = b->capacity,
                          .bytes = b->images * d->max_bytes,
                          .words = o->masks ? b->images * d->max_words : 0};
  const size_t bytes = lay_out(b, &room, NULL);
  slot->block = o->memory.alloc(o->memory.context, bytes);
  if (!slot->block) return err_memory(err, bytes, "a batch of images on the host", "--batch");
  lay_out(b, &room, slot->block);
  return true;
}

static void slot_close(Slot *slot, const HostMemory *memory) {
  free(slot->batch.index);
  free(slot->copy);
  free(slot->words);
  if (slot->block) memory->free(memory->context, slot->block);
}

int loader_threads(const LoaderOptions *o) { return o->threads > 0 ? o->threads : parallel_cores(); }

Loader *loader_open(const Dataset *d, const LoaderOptions *options, Err *err) {
  CHECK(options->prefetch >= 1 && options->first_step >= 0);
  Loader *l = xcalloc(1, sizeof *l);
  l->data = d;
  l->options = *options;
  if (!options->memory.alloc) l->options.memory = c_library;
  l->oldest = l->next = l->item_step = options->first_step;
  l->num_slots = options->prefetch + held_of(options);
  l->slots = xcalloc((size_t)l->num_slots, sizeof *l->slots);
  l->bad = xcalloc((size_t)d->num_images, sizeof *l->bad);
  const SamplerOptions order = {options->batch, options->rank,  options->world,
                                options->seed,  options->train, d->repeat};
  sampler_open(&l->sampler, d->image_canvas, d->num_images, d->num_canvases, &order);
  pthread_mutex_init(&l->lock, NULL);
  outage_open(&l->outage, d->patience);
  pthread_cond_init(&l->room, NULL);
  pthread_cond_init(&l->filled, NULL);
  for (int i = 0; i < l->num_slots; i++)
    if (!slot_open(&l->slots[i], d, &l->options, err)) {
      loader_close(l);
      return NULL;
    }
  const int threads = loader_threads(options);
  l->worker = xcalloc((size_t)threads, sizeof *l->worker);
  for (; l->num_workers < threads; l->num_workers++) {
    Worker *w = &l->worker[l->num_workers];
    w->loader = l;
    if (options->train && options->augment.paste > 0) w->pasted = xmalloc((size_t)d->max_bytes);
    int failed = pthread_create(&w->thread, NULL, decode_positions, w);
    if (failed) {
      err_set(err,
              "cannot start decoder thread %d of %d: %s; raise the limit of processes (ulimit -u), free memory or "
              "reduce --threads",
              l->num_workers + 1, threads, strerror(failed));
      loader_close(l);
      return NULL;
    }
  }
  return l;
}

// Counted from 1: the step in training, the batch among those of all ranks in evaluation.
static int64_t number_of(const Loader *l, const Batch *b) {
  const LoaderOptions *o = &l->options;
  return o->train ? b->step + 1 : b->step * o->world + o->rank + 1;
}

const Batch *loader_next(Loader *l, Err *err) {
  if (err) err->msg[0] = 0;
  if (l->next >= end_of(l)) return NULL;
  const double start = now_seconds();
  Slot *slot = &l->slots[l->next % l->num_slots];
  pthread_mutex_lock(&l->lock);
  l->oldest = MAX(l->oldest, l->next + 1 - held_of(&l->options));
  pthread_cond_broadcast(&l->room);
  while (!(slot->ready && slot->batch.step == l->next)) pthread_cond_wait(&l->filled, &l->lock);
  pthread_mutex_unlock(&l->lock);
  Batch *b = &slot->batch;
  b->wait_seconds = now_seconds() - start;
  const bool stop = slot->lacking || l->options.strict || (l->options.train && b->used == 0);
  if (slot->bad_position >= 0 && stop) {
    err_set(err, "step %lld: %s", (long long)number_of(l, b), slot->bad.msg);
    return NULL;
  }
  l->next++;
  return b;
}

void loader_settle(Loader *l) {
  pthread_mutex_lock(&l->lock);
  const int64_t end = MIN(l->oldest + l->num_slots, end_of(l));
  for (int64_t step = l->next; step < end; step++) {
    const Slot *slot = &l->slots[step % l->num_slots];
    while (!(slot->ready && slot->batch.step == step)) pthread_cond_wait(&l->filled, &l->lock);
  }
  pthread_mutex_unlock(&l->lock);
}

int64_t loader_steps_per_epoch(const Loader *l) { return l->sampler.steps; }

int loader_bad_images(const Loader *l) { return atomic_load(&l->bad_images); }

void loader_seconds(Loader *l, double seconds[LOADER_STAGES]) {
  pthread_mutex_lock(&l->lock);
  memcpy(seconds, l->seconds, sizeof l->seconds);
  pthread_mutex_unlock(&l->lock);
}

void loader_close(Loader *l) {
  if (!l) return;
  pthread_mutex_lock(&l->lock);
  l->stop = true;
  pthread_cond_broadcast(&l->room);
  pthread_mutex_unlock(&l->lock);
  for (int i = 0; i < l->num_workers; i++) {
    pthread_join(l->worker[i].thread, NULL);
    scratch_free(&l->worker[i].scratch);
    free(l->worker[i].pasted);
  }
  pthread_mutex_destroy(&l->lock);
  outage_close(&l->outage);
  pthread_cond_destroy(&l->room);
  pthread_cond_destroy(&l->filled);
  for (int i = 0; i < l->num_slots; i++) slot_close(&l->slots[i], &l->options.memory);
  sampler_close(&l->sampler);
  free(l->slots);
  free(l->worker);
  free(l->bad);
  free(l);
}
