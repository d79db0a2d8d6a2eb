#include "data/survey/ranges.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/text.h"

enum {
  OUTLIERS = 500, // one in so many values at either end may be an outlier
  STRETCH = 4,    // … if these make the range so many times larger
  PICTURE = 16,   // an image of fewer values may be a drawing, where none is a mark
  OTHERS = 10,    // one image in so many may be of another kind
  REACH = 8,      // … if it reaches so many times as far as the rest
  DARK = 16,      // an image that uses no more than this part of the range is nearly black
  NAMED = 3       // images named in a note
};

// ---- one image ------------------------------------------------------------------------------------------------------

// `most`, the largest value, or the one before it if `most` is far from all others: then it marks pixels without data,
// and is white in either range. The smallest value is kept: as black, it must differ from the others.
static int without_mark(const uint32_t count[SAMPLE_VALUES], int least, int most) {
  int used = 0, before = most;
  for (int v = least; v < most; v++) {
    if (!count[v]) continue;
    used++;
    before = v;
  }
  return used >= PICTURE && most - before > STRETCH * (before - least) ? before : most;
}

bool image_range(const uint32_t count[SAMPLE_VALUES], ImageRange *r) {
  int64_t all = 0, below = 0, above = 0;
  int least = 0, most = SAMPLE_VALUES - 1;
  while (least < most && !count[least]) least++;
  while (most > least && !count[most]) most--;
  most = without_mark(count, least, most);
  for (int v = least; v <= most; v++) all += count[v];
  if (!all) return false;
  int low = least, high = most;
  while ((below += count[low]) <= all / OUTLIERS) low++;
  while ((above += count[high]) <= all / OUTLIERS) high--;
  const int span = high - low;
  const bool outliers_above = span > 0 && most - low > STRETCH * span;
  const bool outliers_below = span > 0 && high - least > STRETCH * span;
  *r = (ImageRange){
      .low = outliers_below ? low : least, .high = outliers_above ? high : most, .most_low = low, .most_high = high};
  return true;
}

// ---- all of them ----------------------------------------------------------------------------------------------------

SampleRange range_of_images(const ImageRange *of, int n) {
  if (n == 0) return (SampleRange){0};
  int *low = xmalloc((size_t)n * sizeof *low), *high = xmalloc((size_t)n * sizeof *high);
  for (int i = 0; i < n; i++) {
    low[i] = of[i].low;
    high[i] = of[i].high;
  }
  qsort(low, (size_t)n, sizeof *low, compare_int);
  qsort(high, (size_t)n, sizeof *high, compare_int);
  const int others = n / OTHERS, usual_low = low[others], usual_high = high[n - 1 - others];
  const int reach = (REACH - 1) * (usual_high - usual_low);
  int first = 0, last = n - 1;
  while (reach > 0 && usual_low - low[first] > reach) first++;
  while (reach > 0 && high[last] - usual_high > reach) last--;
  SampleRange r = {low[first], high[last]};
  free(low);
  free(high);
  return r.high > r.low ? r : (SampleRange){0}; // one value is no range
}

typedef struct Measuring {
  const Dataset *d;
  Ranges *r;
  bool *deep;       // [d->num_images]
  bool *read;       // [r->measured]
  uint32_t *count;  // [threads, SAMPLE_VALUES]
  Scratch *scratch; // [threads]
} Measuring;

static void look_at_header(void *of, int i, int thread) {
  (void)thread;
  Measuring *m = of;
  char *path = dataset_path(m->d, i);
  m->deep[i] = image_file_has_16_bits(path);
  free(path);
}

static void measure_image(void *of, int k, int thread) {
  Measuring *m = of;
  Err err;
  uint32_t *count = m->count + (size_t)thread * SAMPLE_VALUES;
  Scratch *scratch = &m->scratch[thread];
  char *path = dataset_path(m->d, m->r->image[k]);
  memset(count, 0, SAMPLE_VALUES * sizeof *count);
  scratch_reset(scratch);
  const double start = now_seconds();
  m->read[k] = image_count_samples(count, path, scratch, &err);
  if (m->read[k]) m->r->ms[m->r->image[k]] = 1e3 * (now_seconds() - start);
  m->read[k] = m->read[k] && image_range(count, &m->r->of[k]);
  free(path);
}

// All, or an evenly spaced part of them.
static void choose_sample(Ranges *r, const Dataset *d, const bool *deep) {
  int *all = xmalloc((size_t)d->num_images * sizeof *all);
  for (int i = 0; i < d->num_images; i++)
    if (deep[i])
      all[r->deep++] = i;
    else if (r->shallow++ < COUNT(r->first_shallow))
      r->first_shallow[r->shallow - 1] = i;
  r->measured = d->num_images < RANGES_SAMPLE ? r->deep : MIN(r->deep, RANGES_SAMPLE);
  r->image = xmalloc((size_t)r->measured * sizeof *r->image);
  for (int k = 0; k < r->measured; k++) r->image[k] = all[(int64_t)k * r->deep / r->measured];
  free(all);
}

// Removes images that could not be read.
static void keep_read(Ranges *r, const bool *read) {
  int n = 0;
  for (int k = 0; k < r->measured; k++) {
    if (!read[k]) continue;
    r->image[n] = r->image[k];
    r->of[n++] = r->of[k];
  }
  r->measured = n;
}

void ranges_measure(Ranges *r, const Dataset *d) {
  *r = (Ranges){0};
  if (d->gray) return;
  Measuring m = {.d = d, .r = r, .deep = xcalloc((size_t)d->num_images, sizeof *m.deep)};
  parallel_for(d->num_images, parallel_threads(d->num_images), look_at_header, &m);
  choose_sample(r, d, m.deep);
  free(m.deep);
  if (!r->measured) return;
  const int threads = parallel_threads(r->measured);
  r->of = xcalloc((size_t)r->measured, sizeof *r->of);
  r->ms = xcalloc((size_t)d->num_images, sizeof *r->ms);
  m.read = xcalloc((size_t)r->measured, sizeof *m.read);
  m.count = xmalloc((size_t)threads * SAMPLE_VALUES * sizeof *m.count);
  m.scratch = xcalloc((size_t)threads, sizeof *m.scratch);
  parallel_for(r->measured, threads, measure_image, &m);
  keep_read(r, m.read);
  r->range = range_of_images(r->of, r->measured);
  for (int t = 0; t < threads; t++) scratch_free(&m.scratch[t]);
  free(m.scratch);
  free(m.count);
  free(m.read);
}

void ranges_free(Ranges *r) {
  free(r->image);
  free(r->of);
  free(r->ms);
  *r = (Ranges){0};
}

bool ranges_try_image(const Ranges *r, const Dataset *d, int i, double *ms, Err *err) {
  Image im;
  int orientation;
  if (r && r->ms && r->ms[i] > 0) {
    *ms = r->ms[i];
    return dataset_header(d, i, &orientation, err);
  }
  const double start = now_seconds();
  if (!dataset_image(d, i, &im, err)) return false;
  *ms = 1e3 * (now_seconds() - start);
  image_free(&im);
  return true;
}

// ---- in words -------------------------------------------------------------------------------------------------------

char *ranges_text(const Ranges *r, SampleRange range) {
  return xasprintf("range %d to %d, measured on %d of %d 16-bit images", range.low, sample_range_high(range),
                   r->measured, r->deep);
}

void ranges_record(Record *record, const Ranges *r) {
  char range[SAMPLE_RANGE_TEXT + 2];
  record_int(record, "images_16_bit", r->deep);
  if (!r->measured) return;
  record_int(record, "measured_16_bit", r->measured);
  snprintf(range, sizeof range, "[%d,%d]", r->range.low, sample_range_high(r->range));
  record_raw(record, "range_16_bit", range);
}

static bool is_dark(const ImageRange *im, SampleRange range) {
  return (int64_t)DARK * (im->high - range.low) <= sample_range_span(range);
}

// By more than a sixteenth of the range.
static bool is_beyond(const ImageRange *im, SampleRange range) {
  const int64_t span = sample_range_span(range);
  return (int64_t)DARK * (im->most_high - sample_range_high(range)) > span ||
         (int64_t)DARK * (range.low - im->most_low) > span;
}

typedef struct Names {
  char *text;
  size_t size;
  FILE *f;
  int n;
} Names;

static void names_begin(Names *l) {
  l->n = 0;
  l->f = text_open(&l->text, &l->size);
}

static void names_add(Names *l, const Dataset *d, int i) {
  if (l->n++ < NAMED) fprintf(l->f, "%s%s", l->n > 1 ? ", " : "", d->coco.images[d->image[i]].file_name);
}

static const char *names_end(Names *l, int n) {
  if (n > NAMED) fprintf(l->f, " and %d more", n - NAMED);
  text_close(l->f);
  return l->text;
}

static void note_odd(const Ranges *r, const Dataset *d, SampleRange range,
                     bool (*is_odd)(const ImageRange *, SampleRange), const char *what, const char *split,
                     Notes *notes) {
  Names l;
  names_begin(&l);
  for (int k = 0; k < r->measured; k++)
    if (is_odd(&r->of[k], range)) names_add(&l, d, r->image[k]);
  const char *names = names_end(&l, l.n);
  if (l.n)
    notes_add(notes, "16-bit images of %s %s the range %d to %d: %d of %d (%s); --range LOW,HIGH sets another range",
              split, what, range.low, sample_range_high(range), l.n, r->measured, names);
  free(l.text);
}

void ranges_note(const Ranges *r, const Dataset *d, const char *split, SampleRange range, Notes *notes) {
  if (!r->deep && sample_range_same(range, (SampleRange){0})) return;
  note_odd(r, d, range, is_dark, "that are nearly black, because they use at most 1/16 of", split, notes);
  note_odd(r, d, range, is_beyond, "with values far outside", split, notes);
  if (!r->shallow) return;
  Names l;
  names_begin(&l);
  for (int i = 0; i < MIN(r->shallow, COUNT(r->first_shallow)); i++) names_add(&l, d, r->first_shallow[i]);
  notes_add(notes, "%d of %d images of %s have 8 bits, not 16, and are not scaled from the range %d to %d: %s",
            r->shallow, r->shallow + r->deep, split, range.low, sample_range_high(range), names_end(&l, r->shallow));
  free(l.text);
}
