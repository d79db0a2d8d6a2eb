#include "training/options.h"
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "comm/job.h"
#include "engine/engine.h"
#include "nn/optim.h"

const char *const schedule_choices[] = {"auto", [1 + DECAY_STEP] = "step", [1 + DECAY_COSINE] = "cosine",
                                        [1 + DECAY_CONSTANT] = "constant", NULL};

const char *const optimizer_choices[] = {"auto", [1 + OPTIMIZER_SGD] = "sgd", [1 + OPTIMIZER_ADAM] = "adam",
                                         [1 + OPTIMIZER_ADAMW] = "adamw", NULL};
const char *const resume_names[] = {[RESUME_NO] = "no", [RESUME_LAST] = "last", [RESUME_PREVIOUS] = "previous", NULL};
const char *const divergence_names[] = {[DIVERGENCE_STOP] = "stop", [DIVERGENCE_ROLLBACK] = "rollback", NULL};

static const RenamedOption renamed[] = {{"recipe", "conventions", "1.2"}, {0}};

static char *command_of(int argc, char **argv) {
  char *command;
  size_t size;
  FILE *text = text_open(&command, &size);
  for (int i = 0; i < argc; i++) {
    if (i) fputc(' ', text);
    char *word = cli_word(argv[i]);
    fputs(word, text);
    free(word);
  }
  text_close(text);
  return command;
}

void train_options_free(TrainOptions *o) {
  free(o->resolved);
  free(o->command);
  *o = (TrainOptions){0};
}

// Where a data set is usually looked for.
static const char *data_default(void) {
  static const char *const annotations = "coco/annotations";
  const char *dir = getenv("MASKRCNN_DATA");
  if (dir && *dir) return dir;
  if (!path_is_dir(annotations))
    die(EXIT_USAGE,
        "--data DIR is missing, $MASKRCNN_DATA is not set, and ./coco holds no data set; --help lists the options");
  return "coco";
}

// Whether a model of that name learns classes of images.
static bool classifies(const char *model) {
  ModelConfig c;
  Err err;
  if (!model) return false;
  if (!config_init(&c, model, &err)) die(EXIT_USAGE, "%s", err.msg);
  return model_of(&c)->traits & MODEL_CLASSIFIER;
}

// What is timed, and on which images.
static void resolve_benchmark(TrainOptions *o) {
  Err err;
  o->made_up = o->benchmark && !o->data && classifies(o->model);
  if (o->benchmark < 0) o->benchmark = o->made_up ? 100 : 200;
  if (o->forward_only && !o->made_up)
    die(EXIT_USAGE, "--forward-only is for --benchmark of a classifier without --data");
  if (o->batches && !o->made_up) die(EXIT_USAGE, "--batches is for --benchmark of a classifier without --data");
  if (o->batches && !batch_list_parse(&o->batch_sizes, o->batches, &err)) die(EXIT_USAGE, "--batches %s", err.msg);
  if (o->made_up && o->ranks != 1)
    die(EXIT_USAGE, "--gpus %s: made-up images are timed on one GPU; give --data", o->gpus);
}

void train_options_show(TrainOptions *o) {
  OPTION_TABLE(table, TrainOptions, TRAIN_OPTIONS);
  const Cli cli = {.options = table, .num_options = COUNT(table), .values = o};
  size_t size;
  free(o->resolved);
  FILE *text = text_open(&o->resolved, &size);
  cli_print_config(&cli, text);
  text_close(text);
}

TrainOptions train_options(int argc, char **argv) {
  TrainOptions o = {OPTION_DEFAULTS(TRAIN_OPTIONS)};
  OPTION_TABLE(table, TrainOptions, TRAIN_OPTIONS);
  Cli cli = {.usage = "--data DIR [options]",
             .about = "Trains Mask R-CNN on a data set in COCO format, or a classifier on images by class.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .renamed = renamed};
  o.command = command_of(argc, argv); // before the parser moves arguments
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.model && !o.weights) o.model = DEFAULT_MODEL;
  if (o.reset_heads && !o.weights) die(EXIT_USAGE, "--reset-heads needs --weights FILE, whose heads it resets");
  if (o.full_masks && !o.benchmark) die(EXIT_USAGE, "--full-masks is for --benchmark: it changes what is learnt");
  if (o.same_images && !o.benchmark) die(EXIT_USAGE, "--same-images is for --benchmark: it changes what is learnt");
  Err err;
  if (!job_parse(o.gpus, &o.ranks, &err)) die(EXIT_USAGE, "%s", err.msg);
  resolve_benchmark(&o);
  if (!o.data && !o.made_up) o.data = data_default();
  if (o.sizes && !sizes_parse(&o.shorter_sides, o.sizes, &err)) die(EXIT_USAGE, "--sizes %s", err.msg);
  if (o.amend && !o.resume) die(EXIT_USAGE, "--amend needs --resume: it changes a run that goes on");
  if (o.val_loss && o.eval_every < 0)
    die(EXIT_USAGE, "--val-loss is part of evaluations, which --eval-every -1 leaves out");
  if (o.reduce == REDUCE_NONE && !o.benchmark)
    die(EXIT_USAGE, "--reduce none is for --benchmark: every rank would learn for itself");
  train_options_show(&o);
  return o;
}

// ---- ranks --------------------------------------------------------------------------------------------------------

// The option's name of a line "  --name=value", NUL-terminated.
static void name_of(const char *line, char *name, size_t room) {
  line += strspn(line, " -");
  snprintf(name, room, "%.*s", (int)strcspn(line, "=\n"), line);
}

static bool is_local(const char *name) {
  static const char *const local[] = {"data", "weights", "out", "threads", "device", "rendezvous", "trace"};
  for (int i = 0; i < COUNT(local); i++)
    if (!strcmp(name, local[i])) return true;
  return false;
}

// The next line at *at that is about the run, `length` bytes; NULL: there is none.
static const char *next_line(const char **at, int *length) {
  char name[64];
  while (**at) {
    const char *line = *at;
    const size_t n = strcspn(line, "\n");
    *at += n + (line[n] != '\0');
    *length = (int)n;
    name_of(line, name, sizeof name);
    if (!is_local(name)) return line;
  }
  *length = 0;
  return NULL;
}

bool train_options_same(const char *of_first, const char *other, Err *err) {
  for (;;) {
    int n, m;
    const char *a = next_line(&of_first, &n), *b = next_line(&other, &m);
    if (!a && !b) return true;
    if (a && b && n == m && !strncmp(a, b, (size_t)n)) continue;
    const int skip = a ? (int)strspn(a, " ") : 0, skip_b = b ? (int)strspn(b, " ") : 0;
    return err_set(err, "it has %.*s, the first rank %.*s: give all ranks the same options", b ? m - skip_b : 7,
                   b ? b + skip_b : "nothing", a ? n - skip : 7, a ? a + skip : "nothing");
  }
}
