// Catches images lost, reordered or put into wrong batches between a list and its results.
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/images/png.h"
#include "inference/stream.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

enum { GROUPS = 3, UNDER_WAY = 3, ROOM = 400 };

// Images of group g are g + 1 rows high. A batch is done in any order, some calls after it began.
typedef struct Fake {
  int batch[GROUPS];
  int calls_to_finish; // of `next` without waiting
  bool refuses_group_1, fails_at_once;
  int drops_after;    // batches that are done; asks the stream to stop then. 0: never
  int batches, early; // begun; of these not full while others were under way
  struct {
    QueuedBatch *runs; // NULL: none does
    int images, calls;
    int first[16]; // pixel of each image
  } flight[UNDER_WAY];
  uint64_t key;
} Fake;

static int stop_after; // images; for seen_stopped, which knows no context
static int seen_so_far;

static int fake_group(void *context, int h, int w) {
  (void)context;
  (void)w;
  return h - 1;
}

static int fake_batch(void *context, int group) { return ((Fake *)context)->batch[group]; }

static int fake_runs(const Fake *f) {
  int runs = 0;
  for (int t = 0; t < UNDER_WAY; t++) runs += f->flight[t].runs != NULL;
  return runs;
}

static bool fake_start(void *context, BatchQueue *q, QueuedBatch *b, const Image *const *image, Err *err) {
  (void)q;
  Fake *f = context;
  int t = 0;
  if (f->fails_at_once) return err_set(err, "the network is gone");
  EXPECT(fake_runs(f) < UNDER_WAY && b->images >= 1 && b->images <= f->batch[b->group]);
  while (f->flight[t].runs) t++;
  f->flight[t].runs = b;
  f->flight[t].calls = 0;
  f->flight[t].images = f->refuses_group_1 && b->group == 1 ? -1 : b->images;
  for (int i = 0; i < b->images; i++) {
    EXPECT_INT(image[i]->h, b->group + 1);
    f->flight[t].first[i] = image[i]->rgb[0] + 256 * image[i]->rgb[1];
  }
  f->batches++;
  f->early += b->images < f->batch[b->group] && fake_runs(f) > 1;
  return true;
}

static QueueState fake_next(void *context, BatchQueue *q, bool wait, Err *err) {
  (void)err;
  Fake *f = context;
  if (!fake_runs(f)) return QUEUE_EMPTY;
  int t = (int)(rng_u32(rng_key(f->key++, 1), 0) % UNDER_WAY); // not the oldest first
  while (!f->flight[t].runs) t = (t + 1) % UNDER_WAY;
  if (!wait && ++f->flight[t].calls <= f->calls_to_finish) return QUEUE_BUSY;
  QueuedBatch *b = f->flight[t].runs;
  f->flight[t].runs = NULL;
  if (f->drops_after && --f->drops_after == 0) {
    seen_so_far = stop_after = 1;
    queue_dropped(q, b);
    return QUEUE_DONE;
  }
  if (f->flight[t].images < 0) {
    Err why;
    err_set(&why, "too large");
    queue_done(q, b, NULL, &why);
    return QUEUE_DONE;
  }
  int *results = xmalloc(sizeof f->flight[t].first);
  memcpy(results, f->flight[t].first, sizeof f->flight[t].first);
  queue_done(q, b, results, NULL);
  return QUEUE_DONE;
}

static void fake_release(void *context, void *results) {
  (void)context;
  free(results);
}

typedef struct Seen {
  int n, bad, batches;
  bool wrong_order;
  int keep; // every so many images keep their pixels; 0: none
  int tell; // a byte for every image is written here; 0: nowhere
} Seen;

static bool seen_stopped(void) { return stop_after && seen_so_far >= stop_after; }

static bool seen_keeps(void *context, const Decoded *image) {
  const Seen *s = context;
  return s->keep && image->number % s->keep == 0;
}

static void seen_image(void *context, const Decoded *image, const void *results, int in_batch) {
  Seen *s = context;
  const int *first = results;
  s->wrong_order |= image->number != s->n || first[in_batch] != image->number;
  EXPECT_INT(image->image.rgb != NULL, seen_keeps(s, image));
  s->n++;
  seen_so_far++;
  if (s->tell) CHECK(write(s->tell, "", 1) == 1);
}

static void seen_bad(void *context, const Decoded *image, const Err *why) {
  Seen *s = context;
  s->wrong_order |= image->number != s->n;
  EXPECT(*why->msg);
  s->n++;
  s->bad++;
}

static void seen_took(void *context, int group, int images, double seconds) {
  Seen *s = context;
  EXPECT(group >= 0 && group < GROUPS && images >= 1 && seconds >= 0);
  s->batches++;
}

// Image i of a folder says its number, and is of a group drawn for it: the first and second often, the third rarely.
static const char *numbered(void) {
  static char folder[512];
  if (*folder) return folder;
  snprintf(folder, sizeof folder, "%s", test_kept("numbered"));
  CHECK(dirs_make(folder, NULL));
  for (int i = 0; i < ROOM; i++) {
    char path[600];
    Err err;
    const uint32_t draw = rng_u32(rng_key(7, (uint64_t)i), 0) % 32;
    Image im = image_alloc(draw == 0 ? 3 : 1 + (int)(draw % 2), 5);
    im.rgb[0] = (uint8_t)(i % 256);
    im.rgb[1] = (uint8_t)(i / 256);
    snprintf(path, sizeof path, "%s/%04d.png", folder, i);
    CHECK(png_write(path, &im, PNG_FAST, &err));
    image_free(&im);
  }
  return folder;
}

static bool run(Fake *f, Seen *seen, size_t bytes, const char *name, int list, Err *err) {
  const Runner runner = {.context = f,
                         .groups = GROUPS,
                         .under_way = UNDER_WAY,
                         .group = fake_group,
                         .batch = fake_batch,
                         .start = fake_start,
                         .next = fake_next,
                         .release = fake_release};
  const StreamVisitor visitor = {.context = seen,
                                 .keeps = seen_keeps,
                                 .image = seen_image,
                                 .bad = seen_bad,
                                 .took = seen_took,
                                 .stopped = seen_stopped};
  Sources *s = sources_open(&name, 1, list, err);
  CHECK(s);
  const DecodersOptions options = {.threads = 3, .ahead = 20, .bytes = bytes};
  Decoders *d = decoders_open(s, &options, err);
  CHECK(d);
  test_limit(100);
  BatchQueue q = queue_of(&runner);
  const bool ok = stream_run(d, &q, &visitor, err);
  decoders_close(d);
  queue_free(&q);
  sources_close(s);
  return ok;
}

// Of any batch sizes, however slow the network is, and with room for hardly any pixels.
TEST(stream_keeps_the_order_and_loses_nothing) {
  static const Fake fakes[] = {{.batch = {1, 1, 1}},
                               {.batch = {8, 4, 1}},
                               {.batch = {8, 8, 8}, .calls_to_finish = 3},
                               {.batch = {5, 3, 2}, .calls_to_finish = 20}};
  static const size_t bytes[] = {1, 200, 1 << 20};
  for (int i = 0; i < COUNT(fakes); i++)
    for (int b = 0; b < COUNT(bytes); b++) {
      Err err;
      Fake f = fakes[i];
      Seen seen = {.keep = b};
      EXPECT(run(&f, &seen, bytes[b], numbered(), -1, &err));
      EXPECT(seen.n == ROOM && seen.bad == 0 && !seen.wrong_order && seen.batches == f.batches);
    }
}

// While the network is busy images gather.
TEST(stream_fills_batches) {
  Err err;
  Fake f = {.batch = {8, 8, 8}, .calls_to_finish = 1 << 30}; // a batch is done only when it is waited for
  Seen seen = {0};
  const double begin = now_seconds();
  EXPECT(run(&f, &seen, 1 << 20, numbered(), -1, &err));
  EXPECT(seen.n == ROOM && !seen.wrong_order);
  // A batch that is not full waits for its images, but for the last of each group, those that make room where all of
  // 4 · (3 + 3 + 1) · 8 places are taken, and those for which half a second is over.
  const int waited = (int)((now_seconds() - begin) / 0.5);
  EXPECT(f.early <= GROUPS * (1 + ROOM / (4 * 7 * 8) + waited));
  EXPECT(f.batches < ROOM / 4); // twice as many as full ones would be
}

TEST(stream_counts_what_the_network_refuses) {
  Err err;
  Fake f = {.batch = {4, 4, 4}, .refuses_group_1 = true};
  Seen seen = {0};
  EXPECT(run(&f, &seen, 1 << 20, numbered(), -1, &err));
  EXPECT(seen.n == ROOM && !seen.wrong_order && seen.bad > ROOM / 4 && seen.bad < ROOM);
}

TEST(stream_stops_when_asked_or_when_the_network_fails) {
  Err err;
  Fake f = {.batch = {4, 4, 4}, .calls_to_finish = 2};
  Seen seen = {0};
  seen_so_far = 0;
  stop_after = 10;
  EXPECT(!run(&f, &seen, 1 << 20, numbered(), -1, &err) && !*err.msg);
  EXPECT(seen.n >= 10 && seen.n < ROOM && !seen.wrong_order);
  stop_after = 0;
  f = (Fake){.batch = {4, 4, 4}, .fails_at_once = true};
  seen = (Seen){0};
  EXPECT(!run(&f, &seen, 1 << 20, numbered(), -1, &err));
  EXPECT_STR(err.msg, "the network is gone");
  EXPECT_INT(seen.n, 0);
}

// A network that hears of it amidst a batch: those under way besides are waited for, and no image behind is visited.
TEST(stream_ends_in_front_of_what_is_dropped) {
  for (int after = 1; after < 20; after++) {
    Err err;
    Fake f = {.batch = {4, 4, 4}, .calls_to_finish = 2, .drops_after = after};
    Seen seen = {0};
    stop_after = 0;
    EXPECT(!run(&f, &seen, 1 << 20, numbered(), -1, &err) && !*err.msg);
    EXPECT(seen.n < ROOM && seen.bad == 0 && !seen.wrong_order);
    for (int t = 0; t < UNDER_WAY; t++) EXPECT(!f.flight[t].runs);
  }
  stop_after = 0;
}

// A writer that names one image and no other before it has been done: it is not kept for a fuller batch.
TEST(stream_of_a_list_that_pauses) {
  Err err;
  int list[2], told[2];
  CHECK(!pipe(list) && !pipe(told));
  char line[600], byte;
  const int length = snprintf(line, sizeof line, "%s/0000.png\n", numbered());
  fflush(stdout);
  const pid_t writer = fork();
  CHECK(writer >= 0);
  if (writer == 0) {
    const bool ok = write(list[1], line, (size_t)length) == length && read(told[0], &byte, 1) == 1;
    _exit(!ok);
  }
  close(list[1]);
  Fake f = {.batch = {8, 8, 8}, .calls_to_finish = 2};
  Seen seen = {.tell = told[1]};
  EXPECT(run(&f, &seen, 1 << 20, "-", list[0], &err));
  EXPECT_INT(seen.n, 1);
  int status;
  EXPECT(waitpid(writer, &status, 0) == writer && status == 0);
  const int ends[] = {list[0], told[0], told[1]};
  for (int i = 0; i < COUNT(ends); i++) close(ends[i]);
}
