// infer: images or a data set → boxes and masks: COCO results, overlays, scores, latency. A data set is shared out over
// ranks, of which the first speaks and has the results.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/latency.h"
#include "base/output.h"
#include "base/rng.h"
#include "base/threads.h"
#include "data/images/image.h"
#include "engine/benchmark.h"
#include "engine/engine.h"
#include "engine/evaluate.h"
#include "engine/findings.h"
#include "engine/identity.h"
#include "engine/job.h"
#include "engine/rank_sum.h"
#include "engine/state.h"

// clang-format off
#define INFER_OPTIONS(X)                                                                                               \
  X(STRING, weights,   NULL,            "FILE", "a checkpoint of ./train or torchvision's, .pth or .safetensors")      \
  X(STRING, data,      NULL,            "DIR",  "a COCO data set, or name IMAGEs")                                     \
  X(STRING, split,     "val",           "NAME", "of --data")                                                           \
  X(INT,    limit,     0, 0, INT32_MAX, "N",    "only the first N images of --data by id; 0 = all")                    \
  X(FLAG,   exif,      false,                   "turn images of --data as their EXIF orientation says, as IMAGEs "     \
                                                "always are; COCO's annotations want it off")                          \
  X(STRING, out,       "out",           "DIR",  "where overlays go; one run at a time")                                \
  X(INT,    overlays,  -1, -1, INT32_MAX, "N",  "pictures to draw at most; -1 = every IMAGE, or 16 of --data")         \
  X(STRING, json,      NULL,            "FILE", "COCO results with compressed RLE, called FILE.partial until all "     \
                                                "are there; default OUT/detections.json")                              \
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
  X(STRING, gpus,      "1",             "N",    "share --data out over so many GPUs; all: as many as there are")       \
  X(STRING, rendezvous, NULL,           "PLACE", "where ranks of several nodes meet: tcp:HOST:PORT or file:PATH; "     \
                                                "default: as torchrun, srun or mpirun say")                            \
  X(FLOAT,  rendezvous_timeout, 300, 1, 86400, "SECONDS", "that ranks wait for each other at the beginning")           \
  X(FLOAT,  timeout,   60, 1, 86400,    "SECONDS", "after which a rank that says nothing is lost")                     \
  X(FLAG,   sync_nodes, false,                  "wait after every node and kernel, so that an error of the GPU names " \
                                                "it; slow, the same results")
// clang-format on

typedef struct InferOptions {
  OPTION_FIELDS(INFER_OPTIONS)
  char **images; // IMAGE…
  int num_images;
  int ranks; // of `gpus`; 0 = all
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
  Err err;
  if (!job_parse(o.gpus, &o.ranks, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!o.data && o.ranks != 1) die(EXIT_USAGE, "--gpus shares out --data DIR: leave it out where images are named");
  if (o.eval && o.benchmark) die(EXIT_USAGE, "--benchmark stops after its record: leave out --eval");
  o.images = cli.args;
  o.num_images = cli.num_args;
  return o;
}

// ---- ranks ------------------------------------------------------------------------------------------------------

static JobOptions job_options(const InferOptions *o) {
  return (JobOptions){.gpus = o->ranks,
                      .device = o->device,
                      .rendezvous = o->rendezvous,
                      .timeout = o->timeout,
                      .rendezvous_timeout = o->rendezvous_timeout};
}

// Of every value in the file, so that the same name on two hosts is no proof.
static uint64_t weights_key(const Checkpoint *c) {
  uint64_t key = 0;
  for (size_t i = 0; i < c->num_tensors; i++) {
    const CkptTensor *t = &c->tensors[i];
    const char *bytes = t->data;
    for (size_t at = 0; at < t->bytes; at += sizeof key) {
      uint64_t word = 0;
      memcpy(&word, bytes + at, MIN(sizeof word, t->bytes - at));
      key = rng_key(key, word);
    }
  }
  return key;
}

// Where images are named there is nothing to share out.
static void refuse_ranks(const Job *job) {
  if (job->launch.world == 1) return;
  if (job->launch.rank > 0) comm_barrier(job->comm); // ends with the first rank
  die(EXIT_USAGE, "%s has started %d ranks, which share out --data DIR: name images to one", job->launch.by,
      job->launch.world);
}

// All ranks end with the status of which the first has said why: it is not that of one that failed.
static void end_job(Job *job, int status) {
  Crew *crew = job->launch.crew;
  if (status && crew) crew_claim(crew, status);
  job_end(job);
}

// What all ranks have to have the same, so that the results are those of one.
static char *agreement(const InferOptions *o, const ModelConfig *config, const Checkpoint *c, const Dataset *d) {
  Record j = {0};
  char value[512];
  record_begin(&j);
  record_str(&j, "split", o->split);
  record_int(&j, "images", d->num_images);
  record_int(&j, "objects", d->first_object[d->num_images]);
  record_int(&j, "canvases", d->num_canvases);
  record_int(&j, "missing_files", d->missing);
  snprintf(value, sizeof value, "%016llx", (unsigned long long)dataset_key(d));
  record_str(&j, "data", value);
  record_int(&j, "batch", o->batch);
  record_str(&j, "amp", amp_names[o->amp]);
  record_bool(&j, "exif", o->exif);
  record_bool(&j, "eval", o->eval);
  record_int(&j, "overlays", o->overlays);
  record_int(&j, "benchmark", o->benchmark);
  for (int i = 0; i < config_fields(); i++) {
    config_get(config, i, value, sizeof value);
    record_str(&j, config_field_name(i), value);
  }
  snprintf(value, sizeof value, "%016llx", (unsigned long long)weights_key(c));
  record_str(&j, "weights", value);
  char *text = xstrdup(record_end(&j));
  record_free(&j);
  return text;
}

// Ranks that another program has started, perhaps on several hosts; those of --gpus come of one set-up.
static void agree(Comm *comm, const InferOptions *o, const ModelConfig *config, const Checkpoint *c, const Dataset *d) {
  Err err;
  if (comm_alone(comm)) return;
  char *text = agreement(o, config, c, d);
  if (!comm_agree(comm, text, identity_agrees, &err)) die(EXIT_USAGE, "%s", err.msg);
  free(text);
}

// ---- the folder of a run ----------------------------------------------------------------------------------------

// Makes it this run's alone.
static void take_folder(const InferOptions *o) {
  Err err;
  if (!folder_take(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
}

static bool same_folder(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Where there is such a data set, and not in the midst of its images; a mistyped --data leaves no folder behind.
static void take_folder_for_data(const InferOptions *o) {
  Err err;
  char *annotations, *images;
  if (!coco_find_split(o->data, o->split, &annotations, &images, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (same_folder(o->out, images))
    die(EXIT_USAGE, "--out %s: that is the folder of the images; give another one", o->out);
  take_folder(o);
  free(annotations);
  free(images);
}

// The first rank takes the folder for all. Other hosts may have one of their own, for overlays.
static void share_folder(const InferOptions *o, const Job *job) {
  Err err;
  if (job->launch.rank == 0) take_folder_for_data(o);
  comm_barrier(job->comm);
  if (job->launch.rank > 0 && !dirs_make(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
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

static void times_print(const Times *t, int batch, int world) {
  double sum = 0;
  char ranks[32] = "";
  if (world > 1) snprintf(ranks, sizeof ranks, " on %d ranks", world);
  for (int i = 0; i < t->n; i++) sum += t->ms[i];
  qsort(t->ms, (size_t)t->n, sizeof *t->ms, ascending);
  printf("latency of %d batches of %d%s, from decoded images to masks:\n", t->n, batch, ranks);
  printf("  %-10s %12s\n", "", "ms");
  printf("  %-10s %12.2f   %.2f images/s%s\n", "average", sum / t->n, 1e3 * batch * t->n / sum,
         world > 1 ? " and rank" : "");
  static const int percent[] = {50, 90, 95, 99};
  for (int i = 0; i < COUNT(percent); i++)
    printf("  %d%-8s %12.2f\n", percent[i], "%", quantile(t->ms, t->n, percent[i] / 100.0));
}

// ---- a data set -------------------------------------------------------------------------------------------------

typedef struct Visit {
  const Engine *e;
  Findings findings;
  Times times;
} Visit;

static void visit_image(void *context, const Dataset *d, int i, const CocoResult *found, int n) {
  Visit *v = context;
  (void)d;
  (void)i;
  findings_record(&v->findings, found, n);
}

static void visit_time(void *context, double seconds) {
  Visit *v = context;
  times_add(&v->times, seconds);
}

static void visit_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, int64_t before) {
  Visit *v = context;
  (void)d;
  for (int i = 0, first = 0, n; i < b->images; i++, first += n) {
    for (n = 0; first + n < found->n && found->items[first + n].image == i;) n++;
    if (b->index[i] < 0) continue; // it could not be read
    const ImageInfo *info = &b->info[i];
    const Image image = {.h = info->h, .w = info->w, .rgb = b->bytes + info->offset};
    findings_draw(&v->findings, v->e, before++, b->index[i], &image, &found->items[first], n);
  }
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

// What all ranks have been told; the first one says it.
_Noreturn static void give_up(Visit *v, const Err *err) {
  if (comm_rank(v->e->comm) > 0) comm_barrier(v->e->comm); // ends with the first rank
  if (!v->findings.images) findings_abort(&v->findings);
  die_unforeseen("%s", err->msg);
}

static void report(const InferOptions *o, const Dataset *d, const Evaluation *all, bool complete, Visit *v) {
  (complete ? findings_commit : findings_keep)(&v->findings);
  if (v->times.n) times_print(&v->times, o->batch, comm_world(v->e->comm));
  if (complete && all->left_out)
    fprintf(stderr, "%d of %d images could not be read: left out\n", all->left_out, all->images + all->left_out);
  if (complete && o->eval) report_scores(d, all);
}

// Returns the program's exit status.
static int find_and_score(const InferOptions *o, Engine *e, const Dataset *d, Visit *v) {
  Err err;
  Evaluation all;
  const int rank = comm_rank(e->comm);
  if (rank) findings_follow(&v->findings, rank);
  if (!rank && !findings_begin(&v->findings, &err)) die(EXIT_USAGE, "%s", err.msg);
  const Visitor visitor = {
      .context = v, .image = visit_image, .took = visit_time, .batch = visit_batch, .stopped = interrupted};
  const bool complete = evaluate_run(e, d, o->threads, &visitor, &all, &err);
  if (!complete && *err.msg) give_up(v, &err);
  v->findings.failed = (int)rank_sum(e->comm, v->findings.failed);
  const bool failed = v->findings.failed;
  if (rank)
    findings_leave(&v->findings);
  else
    report(o, d, &all, complete, v);
  evaluation_free(&all);
  return complete && !failed ? 0 : EXIT_RUN;
}

static Compute compute_of(const InferOptions *o) {
  return (Compute){.device = o->device, .amp = amp_types[o->amp], .sync_nodes = o->sync_nodes};
}

// What is written must be none of the files that are read.
static void plan_outputs(const InferOptions *o, const Dataset *d, Findings *f) {
  Err err;
  FileSet inputs = {0};
  file_set_add(&inputs, o->weights);
  file_set_add(&inputs, d->coco.path);
  const char **files = xmalloc((size_t)d->num_images * sizeof *files);
  for (int i = 0; i < d->num_images; i++) {
    char *path = dataset_path(d, i);
    file_set_add(&inputs, path);
    free(path);
    files[i] = d->coco.images[d->image[i]].file_name;
  }
  if (!findings_open(f, o->json, o->out, o->overlays < 0 ? 16 : o->overlays, files, d->num_images, &inputs, &err))
    die(EXIT_USAGE, "%s", err.msg);
  free(files);
  file_set_free(&inputs);
}

// On the rank's own device; waits for the other ranks, so that the first batch is no one's alone.
static void open_engine(const InferOptions *o, const Job *job, const ModelConfig *config, const Category *category,
                        const Checkpoint *c, const Dataset *d, Engine *e) {
  Err err;
  Shapes none = {0}, shapes = shapes_of(d, o->batch);
  shapes.threads = o->threads;
  Compute compute = compute_of(o);
  compute.device = job->device;
  compute.ranks.comm = job->comm;
  if (!engine_open(e, &compute, model_of(config), config, category, &none, &shapes, false, &err))
    die(err_exit(&err), "%s", err.msg);
  if (!state_load(e, c, &(LoadOptions){0}, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  if (o->eval && !evaluate_categories(e, d, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (*e->dev->why_cpu && job->launch.rank == 0) device_print(e->dev, stderr);
}

// All that ranks have in common is set up before they are forked.
static int run_data(const InferOptions *o, Job *job, const ModelConfig *config, const Category *category,
                    const Checkpoint *c) {
  Err err;
  Dataset d;
  const JobOptions wanted = job_options(o);
  DatasetOptions options = {.resize = resize_of(config),
                            .patience = STORAGE_PATIENCE,
                            .upright = o->exif,
                            .max_canvases = o->canvases,
                            .keep_empty = true,
                            .limit = o->limit,
                            .index = o->benchmark ? NULL : o->out};
  if (!o->benchmark) share_folder(o, job);
  if (!dataset_open(&d, o->data, o->split, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
  Engine e;
  Visit visit = {.e = &e};
  if (!o->benchmark) plan_outputs(o, &d, &visit.findings);
  agree(job->comm, o, config, c, &d);
  job_start(job, &wanted);
  open_engine(o, job, config, category, c, &d, &e);
  BenchSetting setting = {.bench = "infer", .amp = amp_names[o->amp], .steps = o->benchmark, .profile = o->profile};
  int status = 0;
  if (!o->benchmark)
    status = find_and_score(o, &e, &d, &visit);
  else if (!benchmark_infer(&e, &setting, &d, o->threads, &err))
    die(EXIT_RUN, "%s", err.msg);
  free(visit.times.ms);
  engine_close(&e);
  dataset_close(&d);
  return status;
}

// ---- loose images -----------------------------------------------------------------------------------------------

typedef struct LooseRun {
  const InferOptions *o;
  const ModelConfig *config;
  const Category *category;
  const Checkpoint *weights;
  Engine e; // for the canvas of the last image; not open before the first
  Findings findings;
  Times times;
  int bad; // images
} LooseRun;

// What is wrong is wrong for every image.
_Noreturn static void refuse(LooseRun *r, const char *message) {
  if (!r->findings.images) findings_abort(&r->findings);
  die(EXIT_USAGE, "%s", message);
}

// An engine for one image on its own canvas, a multiple of 32, at batch size 1. It is rebuilt only when the canvas
// changes. False when there is not enough memory for it, which may be there for another image.
static bool fit_engine(LooseRun *r, const ImageInfo *info, Err *err) {
  const InferOptions *o = r->o;
  Shapes none = {0}, s = {.canvases = 1,
                          .canvas = {{.h = (info->rh + 31) / 32 * 32, .w = (info->rw + 31) / 32 * 32}},
                          .images = 1,
                          .max_bytes = 3 * (int64_t)info->h * info->w};
  const Shapes *now = &r->e.infer.shapes;
  bool same = r->e.dev && now->canvas[0].h == s.canvas[0].h && now->canvas[0].w == s.canvas[0].w;
  if (same && now->max_bytes >= s.max_bytes) return true;
  engine_close(&r->e);
  const Compute compute = compute_of(o);
  if (!engine_open(&r->e, &compute, model_of(r->config), r->config, r->category, &none, &s, false, err)) {
    if (!r->e.memory.rows) refuse(r, err->msg); // no plan was made
    engine_close(&r->e);
    return false;
  }
  if (*r->e.dev->why_cpu && !r->times.n) device_print(r->e.dev, stderr);
  Err why;
  if (!state_load(&r->e, r->weights, &(LoadOptions){0}, &why)) {
    err_set(err, "%s: %s", o->weights, why.msg);
    refuse(r, err->msg);
  }
  return true;
}

static void find_in_image(LooseRun *r, int i, const Image *image, const ImageInfo *info) {
  int zero = 0;
  Batch batch = {.images = 1,
                 .used = 1,
                 .index = &zero,
                 .info = (ImageInfo *)info,
                 .bytes = image->rgb,
                 .num_bytes = 3 * (int64_t)image->h * image->w,
                 .count = &zero};
  double start = now_seconds();
  Detections found;
  engine_infer(&r->e, &batch);
  engine_detections(&r->e, &batch, 0.5f, &found);
  times_add(&r->times, now_seconds() - start);
  line_print(stdout, "%s: %d detections, %d above %.2f", r->o->images[i], found.n, findings_shown(found.items, found.n),
             SHOWN_PERCENT / 100.0);
  findings_add(&r->findings, &r->e, i + 1, i, image, found.items, found.n);
  detections_free(&found);
}

// False when the image cannot be read or does not fit into memory.
static bool visit_loose(LooseRun *r, int i, Err *err) {
  Image image;
  const char *path = r->o->images[i];
  findings_context(&r->findings, path);
  if (!image_load_upright(&image, path, err)) return false;
  ImageInfo info = {.h = image.h, .w = image.w};
  Resize resize = resize_of(r->config);
  resize_shape(&resize, image.h, image.w, &info.rh, &info.rw);
  Err why;
  bool fits = fit_engine(r, &info, &why) || err_set(err, "%s: %s", path, why.msg);
  if (fits) find_in_image(r, i, &image, &info);
  image_free(&image);
  return fits;
}

static int run_images(const InferOptions *o, const ModelConfig *config, const Category *category, const Checkpoint *c) {
  Err err;
  LooseRun r = {.o = o, .config = config, .category = category, .weights = c};
  FileSet inputs = {0};
  file_set_add(&inputs, o->weights);
  for (int i = 0; i < o->num_images; i++) file_set_add(&inputs, o->images[i]);
  const char *const *files = (const char *const *)o->images;
  int pictures = o->overlays < 0 ? o->num_images : o->overlays;
  if (!findings_open(&r.findings, o->json, o->out, pictures, files, o->num_images, &inputs, &err))
    die(EXIT_USAGE, "%s", err.msg);
  file_set_free(&inputs);
  take_folder(o);
  if (!findings_begin(&r.findings, &err)) die(EXIT_USAGE, "%s", err.msg);
  for (int i = 0; i < o->num_images && !interrupted(); i++) {
    if (visit_loose(&r, i, &err)) continue;
    if (o->num_images == 1) refuse(&r, err.msg);
    fprintf(stderr, "%s\n", err.msg);
    r.bad++;
  }
  if (r.bad == o->num_images) refuse(&r, "none of the images can be used");
  bool complete = r.findings.images + r.bad == o->num_images;
  (complete ? findings_commit : findings_keep)(&r.findings);
  if (complete) fprintf(stderr, "image_id is an image's place on the command line\n");
  if (r.times.n) times_print(&r.times, 1, 1);
  free(r.times.ms);
  engine_close(&r.e);
  if (r.bad) die(EXIT_USAGE, "%d of %d images left out", r.bad, o->num_images);
  return complete && !r.findings.failed ? 0 : EXIT_RUN;
}

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  interrupt_by_writing();
  InferOptions o = parse(argc, argv);
  Err err;
  Job job;
  const JobOptions wanted = job_options(&o);
  job_begin(&job, &wanted);
  if (!o.data) refuse_ranks(&job);
  Checkpoint c;
  ModelConfig config;
  Category *category;
  if (!state_open(&c, o.weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!state_config(&c, &config, &category, &err)) die(EXIT_USAGE, "%s: %s", o.weights, err.msg);
  config.min_score = o.score;
  if (o.size) config_resize(&config, o.size);
  if (o.max_size) config.max_size = o.max_size;
  if (!config_check(&config, &err)) die(EXIT_USAGE, "%s", err.msg);
  char *json = o.json ? xstrdup(o.json) : xasprintf("%s/detections.json", o.out);
  o.json = json;
  if (job.launch.rank == 0) state_note(&c, o.weights);
  interrupt_catch();
  int status = o.data ? run_data(&o, &job, &config, category, &c) : run_images(&o, &config, category, &c);
  free(json);
  free(category);
  ckpt_close(&c);
  stdout_close();
  end_job(&job, status);
  return status;
}
