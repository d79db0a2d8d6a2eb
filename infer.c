// infer: images or a data set → boxes and masks: COCO results, overlays, scores, latency.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/latency.h"
#include "base/threads.h"
#include "data/images/image.h"
#include "data/images/png.h"
#include "data/reports/draw.h"
#include "engine/benchmark.h"
#include "engine/engine.h"
#include "engine/evaluate.h"
#include "engine/state.h"

// clang-format off
#define INFER_OPTIONS(X)                                                                                               \
  X(STRING, weights,   NULL,            "FILE", "a checkpoint of ./train or torchvision's, .pth or .safetensors")      \
  X(STRING, data,      NULL,            "DIR",  "a COCO data set, or name IMAGEs")                                     \
  X(STRING, split,     "val",           "NAME", "of --data")                                                           \
  X(INT,    limit,     0, 0, INT32_MAX, "N",    "only the first N images of --data by id; 0 = all")                    \
  X(FLAG,   exif,      false,                   "turn images of --data as their EXIF orientation says, as IMAGEs "     \
                                                "always are; COCO's annotations want it off")                          \
  X(STRING, out,       "out",           "DIR",  "where overlays go")                                                   \
  X(INT,    overlays,  -1, -1, INT32_MAX, "N",  "pictures to draw at most; -1 = every IMAGE, or 16 of --data")         \
  X(STRING, json,      NULL,            "FILE", "COCO results with compressed RLE; default OUT/detections.json")       \
  X(FLAG,   eval,      false,                   "score against the annotations of --data")                             \
  X(FLOAT,  score,     0.05f, 0, 1,     "X",    "detections below this are dropped")                                   \
  X(INT,    size,      0, 0, 8192,      "N",    "shorter side in pixels; 0 = as trained")                              \
  X(INT,    max_size,  0, 0, 16384,     "N",    "longer side at most; 0 = as trained, or 5/3 of --size")               \
  X(INT,    batch,     1, 1, 1024,      "N",    "images at a time (--data)")                                           \
  X(INT,    canvases,  2, 1, MAX_CANVASES, "N", "how many padded shapes at most (--data)")                             \
  X(INT,    threads,   0, 0, 256,       "N",    "decoder threads; 0 = one per core")                                   \
  X(INT_IMPLIED, benchmark, 0, 0, 1e6,  "STEPS", "200",                                                                \
                                                "time STEPS batches of --data (alone: 200) after half as many to "     \
                                                "warm up, print a record, stop")                                       \
  X(FLAG,   profile,   false,                   "with --benchmark: for every node its time and how near it comes to "  \
                                                "what the device can do")                                              \
  X(CHOICE_IMPLIED, amp, 0, amp_names, "bf16",  "16-bit activations (GPU)")                                            \
  X(STRING, device,    "auto",          "NAME", "auto, cpu or cuda:N")                                                 \
  X(FLAG,   sync_nodes, false,                  "wait after every node and kernel, so that an error of the GPU names " \
                                                "it; slow, the same results")
// clang-format on

typedef struct InferOptions {
  OPTION_FIELDS(INFER_OPTIONS)
  char **images; // IMAGE…
  int num_images;
} InferOptions;

static InferOptions parse(int argc, char **argv) {
  InferOptions o = {OPTION_DEFAULTS(INFER_OPTIONS)};
  OPTION_TABLE(table, InferOptions, INFER_OPTIONS);
  Cli cli = {.usage = "--weights FILE (IMAGE… | --data DIR) [options]",
             .about = "Finds objects and their masks with a trained Mask R-CNN.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "IMAGE"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.weights) die(EXIT_USAGE, "--weights FILE is missing; --help lists the options");
  if (!o.data == !cli.num_args) die(EXIT_USAGE, "name either images or --data DIR");
  if ((o.eval || o.benchmark) && !o.data) die(EXIT_USAGE, "--%s needs --data DIR", o.eval ? "eval" : "benchmark");
  if (o.profile && !o.benchmark) die(EXIT_USAGE, "--profile needs --benchmark");
  if (o.eval && o.benchmark) die(EXIT_USAGE, "--benchmark stops after its record: leave out --eval");
  o.images = cli.args;
  o.num_images = cli.num_args;
  return o;
}

// ---- pictures ---------------------------------------------------------------------------------------------------

// Draws the detections of one image. Frees nothing.
static void write_overlay(const Engine *e, const Image *image, const Detection *d, int n, const char *path) {
  DrawItem *items = xcalloc((size_t)n, sizeof *items);
  for (int i = 0; i < n; i++) {
    const float *box = d[i].box;
    items[i] = (DrawItem){box[0], box[1], box[2], box[3], e->category[d[i].label - 1].name, d[i].score, &d[i].mask};
  }
  Image picture = image_alloc(image->h, image->w);
  memcpy(picture.rgb, image->rgb, 3 * (size_t)image->h * (size_t)image->w);
  draw_overlay(&picture, items, n);
  Err err;
  if (!png_write(path, &picture, PNG_SMALL, &err)) die(EXIT_RUN, "%s", err.msg);
  image_free(&picture);
  free(items);
}

// OUT/<file name without folder and ending>.png
static char *overlay_path(const char *out, const char *file) {
  const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file, *dot = strrchr(base, '.');
  int length = dot && dot > base ? (int)(dot - base) : (int)strlen(base);
  return xasprintf("%s/%.*s.png", out, length, base);
}

// The same for the i-th of several files, which may have one name in different folders.
static char *distinct_overlay_path(const char *out, char **files, int i) {
  char *path = overlay_path(out, files[i]);
  for (int j = 0; j < i; j++) {
    char *earlier = overlay_path(out, files[j]);
    bool same = !strcmp(earlier, path);
    free(earlier);
    if (!same) continue;
    char *numbered = xasprintf("%.*s-%d.png", (int)strlen(path) - 4, path, i + 1);
    free(path);
    return numbered;
  }
  return path;
}

static bool same_file(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// An overlay of a PNG has the name of the image itself, which must survive `--out .`.
static void keep_originals(const InferOptions *o) {
  for (int i = 0; i < o->num_images; i++) {
    char *path = distinct_overlay_path(o->out, o->images, i);
    for (int j = 0; path_is_file(path) && j < o->num_images; j++)
      if (same_file(path, o->images[j]))
        die(EXIT_USAGE, "--out %s: an overlay would overwrite %s; give another folder", o->out, o->images[j]);
    free(path);
  }
}

// Only what is worth looking at: the threshold of results is far below what a picture should show.
enum { SHOWN_PERCENT = 50 };
static int shown(const Detection *d, int n) {
  int k = 0;
  while (k < n && d[k].score * 100 >= SHOWN_PERCENT) k++;
  return k;
}

// ---- latency ----------------------------------------------------------------------------------------------------

typedef struct Times {
  double *ms;
  int n;
} Times;

static void times_add(Times *t, double seconds) {
  t->ms = xrealloc(t->ms, (size_t)(t->n + 1) * sizeof *t->ms);
  t->ms[t->n++] = 1e3 * seconds;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void times_print(const Times *t, int batch) {
  double sum = 0;
  for (int i = 0; i < t->n; i++) sum += t->ms[i];
  qsort(t->ms, (size_t)t->n, sizeof *t->ms, ascending);
  printf("latency of %d batches of %d, from decoded images to masks:\n", t->n, batch);
  printf("  %-10s %12s\n", "", "ms");
  printf("  %-10s %12.2f   %.2f images/s\n", "average", sum / t->n, 1e3 * batch * t->n / sum);
  static const int percent[] = {50, 90, 95, 99};
  for (int i = 0; i < COUNT(percent); i++)
    printf("  %d%-8s %12.2f\n", percent[i], "%", quantile(t->ms, t->n, percent[i] / 100.0));
}

// ---- a data set -------------------------------------------------------------------------------------------------

typedef struct Visit {
  const InferOptions *o;
  Engine *e;
  Times times;
  int overlays, done;
} Visit;

static void visit_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, double seconds) {
  Visit *v = context;
  times_add(&v->times, seconds);
  for (int i = 0, first = 0; i < b->images; i++) {
    int n = 0;
    while (first + n < found->n && found->items[first + n].image == i) n++;
    if (b->index[i] >= 0 && v->overlays > 0) {
      v->overlays--;
      const ImageInfo *info = &b->info[i];
      Image image = {.h = info->h, .w = info->w, .rgb = b->bytes + info->offset};
      char *path = overlay_path(v->o->out, d->coco.images[d->image[b->index[i]]].file_name);
      write_overlay(v->e, &image, &found->items[first], shown(&found->items[first], n), path);
      free(path);
    }
    v->done += b->index[i] >= 0;
    first += n;
  }
  if (v->times.n % 10 == 0) fprintf(stderr, "%d images of %d\n", v->done, d->num_images);
}

static void report_scores(const Dataset *d, const Evaluation *all) {
  Scores s;
  Err err;
  if (!evaluate_score(d, all, &s, &err)) die(EXIT_RUN, "%s", err.msg);
  printf("bbox\n");
  cocoeval_print(stdout, &s.bbox);
  cocoeval_print_categories(stdout, &s.bbox);
  printf("segm\n");
  cocoeval_print(stdout, &s.segm);
  cocoeval_print_categories(stdout, &s.segm);
  printf("bbox AP %.3f  mask AP %.3f  on %d images", s.bbox.stats[0], s.segm.stats[0], all->images);
  if (all->left_out) printf("; %d left out: they cannot be read", all->left_out);
  printf("\n");
  scores_free(&s);
}

static void find_and_score(const InferOptions *o, Engine *e, const Dataset *d) {
  Err err;
  Visit v = {.o = o, .e = e, .overlays = o->overlays < 0 ? 16 : o->overlays};
  Evaluation all;
  if (!evaluate_run(e, d, o->threads, &(Visitor){.batch = visit_batch, .context = &v}, &all, &err))
    die(EXIT_RUN, "%s", err.msg);
  if (!coco_results_save(&all.found, o->json, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (v.times.n) times_print(&v.times, o->batch);
  fprintf(stderr, "done: %d detections in %s, overlays in %s\n", all.found.n, o->json, o->out);
  if (all.left_out)
    fprintf(stderr, "%d of %d images could not be read: left out\n", all.left_out, all.images + all.left_out);
  if (o->eval) report_scores(d, &all);
  free(v.times.ms);
  evaluation_free(&all);
}

static Compute compute_of(const InferOptions *o) {
  return (Compute){.device = o->device, .amp = amp_types[o->amp], .sync_nodes = o->sync_nodes};
}

static void run_data(const InferOptions *o, const ModelConfig *config, const Category *category, const Checkpoint *c) {
  Err err;
  Dataset d;
  DatasetOptions options = {.resize = resize_of(config),
                            .patience = STORAGE_PATIENCE,
                            .upright = o->exif,
                            .max_canvases = o->canvases,
                            .keep_empty = true,
                            .limit = o->limit,
                            .index = o->benchmark ? NULL : o->out};
  if (!dataset_open(&d, o->data, o->split, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (same_file(o->out, d.folder))
    die(EXIT_USAGE, "--out %s: overlays would overwrite the images; give another folder", o->out);
  Engine e;
  Shapes none = {0}, shapes = shapes_of(&d, o->batch);
  shapes.threads = o->threads;
  Compute compute = compute_of(o);
  if (!engine_open(&e, &compute, model_of(config), config, category, &none, &shapes, false, &err))
    die(err_exit(&err), "%s", err.msg);
  if (!state_load(&e, c, &(LoadOptions){0}, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  if (o->eval && !evaluate_categories(&e, &d, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (*e.dev->why_cpu) device_print(e.dev, stderr);
  BenchSetting setting = {.bench = "infer", .amp = amp_names[o->amp], .steps = o->benchmark, .profile = o->profile};
  if (!o->benchmark)
    find_and_score(o, &e, &d);
  else if (!benchmark_infer(&e, &setting, &d, o->threads, &err))
    die(EXIT_RUN, "%s", err.msg);
  engine_close(&e);
  dataset_close(&d);
}

// ---- loose images -----------------------------------------------------------------------------------------------

// One image on its own canvas, a multiple of 32, at batch size 1. Engines are rebuilt only when the canvas changes.
static void run_images(const InferOptions *o, const ModelConfig *config, const Category *category,
                       const Checkpoint *c) {
  Err err;
  Engine e = {0};
  Compute compute = compute_of(o);
  Times times = {0};
  CocoResults results = {0};
  int bad = 0, left = o->overlays < 0 ? INT32_MAX : o->overlays;
  keep_originals(o);
  for (int i = 0; i < o->num_images; i++) {
    Image image;
    if (!image_load_upright(&image, o->images[i], &err)) {
      if (o->num_images == 1) die(EXIT_USAGE, "%s", err.msg);
      fprintf(stderr, "%s\n", err.msg);
      bad++;
      continue;
    }
    ImageInfo info = {.h = image.h, .w = image.w};
    Resize resize = resize_of(config);
    resize_shape(&resize, image.h, image.w, &info.rh, &info.rw);
    int64_t bytes = 3 * (int64_t)image.h * image.w;
    Shapes none = {0}, s = {.canvases = 1,
                            .canvas = {{.h = (info.rh + 31) / 32 * 32, .w = (info.rw + 31) / 32 * 32}},
                            .images = 1,
                            .max_bytes = bytes};
    const Shapes *now = &e.infer.shapes;
    if (!e.dev || now->canvas[0].h != s.canvas[0].h || now->canvas[0].w != s.canvas[0].w || now->max_bytes < bytes) {
      engine_close(&e);
      if (!engine_open(&e, &compute, model_of(config), config, category, &none, &s, false, &err))
        die(err_exit(&err), "%s", err.msg);
      if (!state_load(&e, c, &(LoadOptions){0}, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
      if (*e.dev->why_cpu && !times.n) device_print(e.dev, stderr);
    }
    int zero = 0;
    Batch batch = {
        .images = 1, .used = 1, .index = &zero, .info = &info, .bytes = image.rgb, .num_bytes = bytes, .count = &zero};
    double start = now_seconds();
    Detections found;
    engine_infer(&e, &batch);
    engine_detections(&e, &batch, 0.5f, &found);
    times_add(&times, now_seconds() - start);
    int n = shown(found.items, found.n);
    printf("%s: %d detections, %d above %.2f\n", o->images[i], found.n, n, SHOWN_PERCENT / 100.0);
    if (left-- > 0) {
      char *path = distinct_overlay_path(o->out, o->images, i);
      write_overlay(&e, &image, found.items, n, path);
      free(path);
    }
    evaluate_append(&e, i + 1, &found, &results);
    detections_free(&found);
    image_free(&image);
  }
  if (!coco_results_save(&results, o->json, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (times.n) times_print(&times, 1);
  fprintf(stderr, "done: %d detections in %s (image_id = place on the command line), overlays in %s\n", results.n,
          o->json, o->out);
  free(times.ms);
  coco_results_free(&results);
  engine_close(&e);
  if (bad) die(EXIT_USAGE, "%d of %d images could not be read", bad, o->num_images);
}

// Whether a file can be written there: found out before the work, not after it.
static void check_writable(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? xasprintf("%.*s", (int)MAX(slash - path, 1), path) : xstrdup(".");
  const char *what = access(path, F_OK) ? folder : path; // a device may be writable where its folder is not
  if (path_is_dir(path)) die(EXIT_USAGE, "cannot write %s: it is a folder", path);
  if (access(what, W_OK)) die(EXIT_USAGE, "cannot write %s: %s: %s", path, what, strerror(errno));
  free(folder);
}

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  InferOptions o = parse(argc, argv);
  Err err;
  Checkpoint c;
  ModelConfig config;
  Category *category;
  if (!state_open(&c, o.weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!state_config(&c, &config, &category, &err)) die(EXIT_USAGE, "%s: %s", o.weights, err.msg);
  config.min_score = o.score;
  if (o.size) config_resize(&config, o.size);
  if (o.max_size) config.max_size = o.max_size;
  if (!config_check(&config, &err) || (!o.benchmark && !dirs_make(o.out, &err))) die(EXIT_USAGE, "%s", err.msg);
  char *json = o.json ? xstrdup(o.json) : xasprintf("%s/detections.json", o.out);
  o.json = json;
  if (!o.benchmark) check_writable(json);
  state_note(&c, o.weights);
  if (o.data)
    run_data(&o, &config, category, &c);
  else
    run_images(&o, &config, category, &c);
  free(json);
  free(category);
  ckpt_close(&c);
  return 0;
}
