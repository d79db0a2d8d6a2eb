// doctor: reads a data set as ./train does; says what there is, what is wrong, what will hurt, which options suit.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/file_set.h"
#include "base/output.h"
#include "base/record.h"
#include "base/text.h"
#include "data/batches/source.h"
#include "data/survey/advice.h"
#include "models/model.h"
#include "nn/optim.h"
#include "page/album.h"

// clang-format off
#define DOCTOR_OPTIONS(X)                                                                                              \
  X(STRING, data, NULL, "DIR", "data set in COCO's layout, IDX files, or a folder per class in train/ and val/")       \
  X(STRING, train_split, "train", "NAME", "split to train on")                                                         \
  X(STRING, val_split, "val", "NAME", "split to evaluate on")                                                          \
  X(STRING, model, DEFAULT_MODEL, "NAME", "model whose input size is the default")                                     \
  X(INT, size, 0, 1, 8192, "PIXELS", "shorter side of the input", .usual = "the model's")                              \
  X(INT, max_size, 0, 1, 16384, "PIXELS", "longest side of the input",                                                 \
    .usual = "the model's; 5/3 of --size where that is given")                                                         \
  X(INT, canvases, 2, 1, MAX_CANVASES, "N", "number of padded input shapes")                                           \
  X(FLAG, keep_empty, false, "images without objects are trained on, too, as with ./train --keep-empty")               \
  X(FLAG, exif, false, "images are turned as their EXIF orientation says, as with ./train --exif")                     \
  X(FLAG, decode, true, "decode all images and rasterize all masks; --decode=false reads the annotations only")        \
  X(FLAG, json, false, "print one JSON object instead of text")                                                        \
  X(STRING, html, NULL, "FILE", "also write a page that shows images with their masks")                                \
  X(INT, html_images, 200, 1, 2000, "N", "with --html: number of images, those with defects first")
// clang-format on

typedef struct DoctorOptions {
  OPTION_FIELDS(DOCTOR_OPTIONS)
} DoctorOptions;

// The source whose own survey suits what is in the folder; NULL: there are objects to look at, one by one.
static const Source *surveyed_by(const char *dir) {
  for (int i = 0; models[i]; i++) {
    const Source *s = models[i]->source;
    if (s->survey && s->contents(dir)) return s;
  }
  return NULL;
}

static DoctorOptions doctor_options(int argc, char **argv) {
  DoctorOptions o = {OPTION_DEFAULTS(DOCTOR_OPTIONS)};
  OPTION_TABLE(table, DoctorOptions, DOCTOR_OPTIONS);
  Cli cli = {.usage = "--data DIR [options]",
             .about =
                 "Reads a data set as ./train does: what there is, what is wrong, what will hurt, which options suit.\n"
                 "Exits 0 when training can start and nothing is wrong, 1 otherwise.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.data) die(EXIT_USAGE, "--data DIR is missing; --help lists the options");
  if (surveyed_by(o.data)) return o;
  ModelConfig c;
  Err err;
  if (!config_init(&c, o.model, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o.size) {
    c.size = o.size;
    c.max_size = o.size * 5 / 3;
  }
  if (o.max_size) c.max_size = o.max_size;
  c.classes = 2; // at least; the data set tells
  if (!config_check(&c, &err)) die(EXIT_USAGE, "%s", err.msg);
  o.size = c.size;
  o.max_size = c.max_size;
  return o;
}

// ---- reading --------------------------------------------------------------------------------------------------------

static void show_progress(int done, int total) {
  if (done % 16 && done < total) return;
  fprintf(stderr, "\rdoctor: %d of %d images%s", done, total, done == total ? "\n" : "");
}

static void split_open(Split *s, const char *name, const DoctorOptions *o, bool keep_empty) {
  *s = (Split){.name = name};
  DatasetOptions options = {.resize = {.size = o->size, .max_size = o->max_size},
                            .upright = o->exif,
                            .max_canvases = o->canvases,
                            .keep_empty = keep_empty};
  s->open = dataset_open(&s->data, o->data, name, &options, &s->stop);
  if (!s->open) return;
  survey_take(&s->survey, &s->data);
  defects_find(&s->defects, &s->data, o->decode, isatty(STDERR_FILENO) ? show_progress : NULL);
}

static void split_close(Split *s) {
  if (!s->open) return;
  defects_free(&s->defects, &s->data);
  survey_free(&s->survey);
  dataset_close(&s->data);
}

// What stops ./train once its data are open: no category, or one to evaluate that training does not know.
static void check_categories(Split *train, Split *val) {
  const Coco *v = &val->data.coco, *t = &train->data.coco;
  if (train->open && t->num_categories == 0) err_set(&train->stop, "%s: no category to train on", t->path);
  for (int i = 0; val->open && train->open && i < v->num_categories; i++)
    if (coco_find_category(t, v->categories[i].id) < 0) {
      err_set(&val->stop,
              "%s: category %lld (%s) is not in %s; give it its id there, add it there, or take it out here", v->path,
              (long long)v->categories[i].id, v->categories[i].name, t->path);
      return;
    }
}

static bool is_split(const DoctorOptions *o, const char *split) {
  char *annotations, *images;
  Err err;
  bool is = coco_find_split(o->data, split, &annotations, &images, &err);
  free(annotations);
  free(images);
  return is;
}

// What is known in the end; val.name is NULL without a split to evaluate on.
typedef struct Checkup {
  Split train, val;
  Advice advice;
  bool sound;
} Checkup;

static bool split_sound(const Split *s) {
  int wrong = 0;
  for (int k = 0; k < DEFECTS; k++) wrong += s->defects.found[k].count;
  return !s->name || (!*s->stop.msg && wrong == 0);
}

static void check(Checkup *c, const DoctorOptions *o) {
  *c = (Checkup){0};
  split_open(&c->train, o->train_split, o, o->keep_empty);
  if (is_split(o, o->val_split) || strcmp(o->val_split, "val")) split_open(&c->val, o->val_split, o, true);
  check_categories(&c->train, &c->val);
  if (c->train.open) advice_write(&c->advice, &c->train, c->val.open ? &c->val : NULL, o->keep_empty, o->canvases);
  c->sound = split_sound(&c->train) && split_sound(&c->val);
}

// ---- for people -----------------------------------------------------------------------------------------------------

static void print_split(const Split *s, int canvases) {
  const Dataset *d = &s->data;
  const Survey *v = &s->survey;
  line_print(stdout, "  %s", s->name);
  printf("    images      %d", d->num_images);
  if (d->without_objects) printf("; without an object: %d", d->without_objects);
  printf("; the median one %d x %d pixels, the largest %d x %d\n", v->image50.w, v->image50.h, v->image100.w,
         v->image100.h);
  printf("    resized     by %.2g (median) onto canvases", (double)v->scale50);
  for (int i = 0; i < d->num_canvases; i++) printf("%s %d x %d", i ? "," : "", d->canvas[i].w, d->canvas[i].h);
  printf(", of which %.0f %% is padding\n", 100 * v->padding[canvases - 1]);
  printf("    objects     %d in %d of %d categories", v->objects, v->used, d->coco.num_categories);
  if (v->objects) printf("; most in an image: %d", d->max_objects);
  if (d->crowds) printf("; crowds, which are left out: %d", d->crowds);
  printf("\n");
  if (v->objects)
    printf("    their size  %.0f, %.0f, %.0f pixels (a tenth, half, nine tenths of the objects are smaller)\n",
           (double)v->size10, (double)v->size50, (double)v->size90);
  if (s->defects.decode_ms > 0) printf("    decoding    %.1f ms an image on one core\n", s->defects.decode_ms);
}

typedef struct CategoryRow {
  int category, objects;
} CategoryRow;

static int compare_rows(const void *a, const void *b) {
  const CategoryRow *p = a, *q = b;
  return p->objects != q->objects ? q->objects - p->objects : p->category - q->category;
}

static void print_categories(const Checkup *c) {
  enum { MOST = 40 };
  const Coco *t = &c->train.data.coco;
  CategoryRow *rows = xmalloc((size_t)t->num_categories * sizeof *rows);
  for (int i = 0; i < t->num_categories; i++) rows[i] = (CategoryRow){i, c->train.survey.category[i].objects};
  qsort(rows, (size_t)t->num_categories, sizeof *rows, compare_rows);
  printf("\n  %-24s %10s %10s %10s %10s\n", "category", "objects", "in images", "median px",
         c->val.open ? c->val.name : "");
  for (int i = 0; i < MIN(t->num_categories, MOST); i++) {
    const CategorySurvey *s = &c->train.survey.category[rows[i].category];
    const CocoCategory *category = &t->categories[rows[i].category];
    int other = c->val.open ? coco_find_category(&c->val.data.coco, category->id) : -1;
    text_print(stdout, "  %-24.24s %10d %10d %10.0f", category->name, s->objects, s->images, (double)s->size);
    if (other >= 0) printf(" %10d", c->val.survey.category[other].objects);
    printf("\n");
  }
  if (t->num_categories > MOST) printf("  and %d more; --json has all\n", t->num_categories - MOST);
  free(rows);
}

static void print_finding(const Split *s, Defect kind) {
  const Finding *f = &s->defects.found[kind];
  const DefectInfo *info = &defect_info[kind];
  line_print(stdout, "  %s: %s: %d; %s", s->name, info->what, f->count, info->treatment);
  printf("    first: %s %lld", info->of, (long long)f->id);
  if (f->image >= 0) text_print(stdout, ", file %s", s->data.coco.images[f->image].file_name);
  if (kind == DEFECT_BOX_APART && 2 * s->defects.corners > f->count)
    printf("\n    most of these boxes fit when read as x1 y1 x2 y2; COCO's are x y width height");
  for (int i = 0; kind == DEFECT_FILE && i < s->data.num_images; i++)
    if (s->data.image[i] == f->image) printf("\n    %s", s->defects.reason[i]);
  printf("\n");
}

static void print_wrong(const Split *s) {
  if (*s->stop.msg) line_print(stdout, "  %s: training stops: %s", s->name, s->stop.msg);
  for (int k = 0; k < DEFECTS; k++)
    if (s->defects.found[k].count) print_finding(s, (Defect)k);
}

static void print_text(const Checkup *c, const DoctorOptions *o) {
  line_print(stdout, "%s, as ./train reads it with --size %d --max-size %d --canvases %d%s%s", o->data, o->size,
             o->max_size, o->canvases, o->exif ? " --exif" : "", o->keep_empty ? " --keep-empty" : "");
  printf("\nwhat there is\n");
  if (c->train.open) print_split(&c->train, o->canvases);
  if (c->val.open) print_split(&c->val, o->canvases);
  if (!c->val.name) line_print(stdout, "  no split %s to evaluate on", o->val_split);
  if (c->train.survey.used) print_categories(c);
  printf("\nwhat is wrong\n");
  print_wrong(&c->train);
  if (c->val.name) print_wrong(&c->val);
  if (c->sound)
    printf("  nothing%s\n", o->decode ? "" : " in the annotations; image files and masks were not looked at");
  if (!c->train.open) return;
  printf("\nwhat will hurt\n");
  for (int i = 0; i < c->advice.num_hurts; i++) line_print(stdout, "  %s", c->advice.hurts[i]);
  if (!c->advice.num_hurts) printf("  nothing\n");
  printf("\nsuggested\n");
  char *data = cli_word(o->data);
  line_print(stdout, "  ./train --data %s --model %s %s", data, o->model, c->advice.flags);
  free(data);
  printf("  the learning rate follows from the batch: %g; --plan prints the memory it takes\n",
         scaled_rate(0.02, 16, c->advice.batch));
}

// ---- for machines ---------------------------------------------------------------------------------------------------

// Text that grows: an array under construction.
typedef struct List {
  char *text;
  size_t size;
  FILE *f;
  bool any;
} List;

static void list_begin(List *l) {
  l->f = text_open(&l->text, &l->size);
  l->any = false;
  fputc('[', l->f);
}

static void list_add(List *l, const char *json) {
  fprintf(l->f, "%s%s", l->any ? "," : "", json);
  l->any = true;
}

// Closes the array and makes it a member of r.
static void list_end(List *l, Record *r, const char *key) {
  fputc(']', l->f);
  text_close(l->f);
  record_raw(r, key, l->text);
  free(l->text);
}

static void record_size(Record *r, const char *key, Size s) {
  char text[64];
  snprintf(text, sizeof text, "[%d,%d]", s.h, s.w);
  record_raw(r, key, text);
}

static void record_categories(Record *out, const Split *s) {
  List l;
  list_begin(&l);
  Record r = {0};
  for (int i = 0; i < s->data.coco.num_categories; i++) {
    const CategorySurvey *c = &s->survey.category[i];
    record_begin(&r);
    record_int(&r, "id", s->data.coco.categories[i].id);
    record_str(&r, "name", s->data.coco.categories[i].name);
    record_int(&r, "objects", c->objects);
    record_int(&r, "images", c->images);
    record_int(&r, "tiny", c->tiny);
    record_num(&r, "pixels", (double)c->size);
    list_add(&l, record_end(&r));
  }
  record_free(&r);
  list_end(&l, out, "categories");
}

static void record_wrong(Record *out, const Split *s) {
  List l;
  list_begin(&l);
  Record r = {0};
  for (int k = 0; k < DEFECTS; k++) {
    const Finding *f = &s->defects.found[k];
    if (!f->count) continue;
    record_begin(&r);
    record_str(&r, "defect", defect_info[k].key);
    record_int(&r, "count", f->count);
    record_str(&r, "what", defect_info[k].what);
    record_str(&r, "treatment", defect_info[k].treatment);
    record_str(&r, "of", defect_info[k].of);
    record_int(&r, "first_id", f->id);
    record_str(&r, "first_file", f->image >= 0 ? s->data.coco.images[f->image].file_name : NULL);
    list_add(&l, record_end(&r));
  }
  record_free(&r);
  list_end(&l, out, "wrong");
}

static void record_split(Record *out, const char *key, const Split *s) {
  const Survey *v = &s->survey;
  Record r = {0};
  record_begin(&r);
  record_str(&r, "split", s->name);
  record_str(&r, "stop", *s->stop.msg ? s->stop.msg : NULL);
  if (s->open) {
    record_int(&r, "images", s->data.num_images);
    record_int(&r, "without_objects", s->data.without_objects);
    record_int(&r, "objects", v->objects);
    record_int(&r, "crowds", s->data.crowds);
    record_int(&r, "tiny", v->tiny);
    record_int(&r, "most_objects", s->data.max_objects);
    record_int(&r, "crowded_images", v->crowded);
    record_int(&r, "place_bytes", v->place_bytes);
    record_size(&r, "median_image", v->image50);
    record_size(&r, "largest_image", v->image100);
    record_num(&r, "pixels_10", (double)v->size10);
    record_num(&r, "pixels_50", (double)v->size50);
    record_num(&r, "pixels_90", (double)v->size90);
    record_num(&r, "decode_ms", s->defects.decode_ms > 0 ? s->defects.decode_ms : NAN);
    record_categories(&r, s);
    record_wrong(&r, s);
  }
  record_raw(out, key, record_end(&r));
  record_free(&r);
}

static void print_json(const Checkup *c, const DoctorOptions *o) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "data", o->data);
  record_int(&r, "size", o->size);
  record_int(&r, "max_size", o->max_size);
  record_bool(&r, "sound", c->sound);
  record_split(&r, "train", &c->train);
  if (c->val.name) record_split(&r, "val", &c->val);
  record_strings(&r, "hurts", (const char *const *)c->advice.hurts, c->advice.num_hurts);
  record_str(&r, "flags", c->advice.flags);
  printf("%s\n", record_end(&r));
  record_free(&r);
}

// The page must take the place of nothing that was read.
static void check_page(const char *path, const Checkup *c) {
  FileSet inputs = {0};
  const Split *splits[] = {&c->train, &c->val};
  for (int s = 0; s < COUNT(splits); s++) {
    const Dataset *d = &splits[s]->data;
    if (splits[s]->open) file_set_add(&inputs, d->coco.path);
    for (int i = 0; splits[s]->open && i < d->num_images; i++) {
      char *image = dataset_path(d, i);
      file_set_add(&inputs, image);
      free(image);
    }
  }
  Err err;
  if (!file_set_spares(&inputs, path, &err)) die(EXIT_USAGE, "--html %s", err.msg);
  file_set_free(&inputs);
}

// Of such a folder there is no page, and its splits go by their names.
static int survey_all(const Source *s, const DoctorOptions *o) {
  const char *holds = s->contents(o->data);
  if (strcmp(o->train_split, "train") || strcmp(o->val_split, "val"))
    die(EXIT_USAGE, "%s holds %s, whose splits are train and val; leave out --train-split and --val-split", o->data,
        holds);
  if (o->html) die(EXIT_USAGE, "--html shows masks, and %s holds %s; leave it out", o->data, holds);
  const SourceSurvey survey = {.dir = o->data,
                               .canvas = {o->size, o->size},
                               .decode = o->decode,
                               .json = o->json,
                               .tick = isatty(STDERR_FILENO) ? show_progress : NULL};
  const bool sound = s->survey(&survey);
  stdout_close();
  return sound ? 0 : 1;
}

int main(int argc, char **argv) {
  DoctorOptions o = doctor_options(argc, argv);
  const Source *source = surveyed_by(o.data);
  if (source) return survey_all(source, &o);
  Checkup c;
  Err err;
  check(&c, &o);
  if (o.html) check_page(o.html, &c);
  (o.json ? print_json : print_text)(&c, &o);
  fflush(stdout); // the page takes a while
  const Split *splits[] = {&c.train, &c.val};
  if (o.html && !album_write(o.html, o.data, splits, COUNT(splits), o.html_images, &err)) die(EXIT_RUN, "%s", err.msg);
  bool sound = c.sound;
  advice_free(&c.advice);
  split_close(&c.train);
  split_close(&c.val);
  stdout_close();
  return sound ? 0 : 1;
}
