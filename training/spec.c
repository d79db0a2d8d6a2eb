#include "training/spec.h"
#include <stdlib.h>
#include <string.h>
#include "base/output.h"
#include "base/text.h"
#include "base/wrap.h"
#include "training/data.h"
#include "training/setup.h"
#include "training/table.h"
#include "training/targets.h"

static const RenamedOption renamed[] = {{"recipe", "conventions", "1.2", "auto", "own"}, {0}};

static char *command_of(int argc, char **argv) {
  char *command;
  size_t size;
  FILE *text = text_open(&command, &size);
  for (int i = 0; i < argc; i++) {
    if (i) fputc(' ', text);
    char *word = i ? cli_word(argv[i]) : xstrdup(argv[i]); // "maskrcnn train" is two words
    fputs(word, text);
    free(word);
  }
  text_close(text);
  return command;
}

void train_spec_free(TrainSpec *o) {
  free(o->command);
  free(o->own_sizes);
  *o = (TrainSpec){0};
}

// ---- before the model is known --------------------------------------------------------------------------------------

// The default location of a data set.
static const char *data_default(void) {
  static const char *const annotations = "coco/annotations";
  const char *dir = getenv("MASKRCNN_DATA");
  if (dir && *dir) return dir;
  if (!path_is_dir(annotations))
    die(EXIT_USAGE, "--data DIR is missing, $MASKRCNN_DATA is not set, and there is no data set in ./coco; --help "
                    "lists the options");
  return "coco";
}

// Whether --benchmark uses synthetic images for this model if there is no data.
static bool makes_images_up(const char *model) {
  ModelConfig c;
  Err err;
  if (!model) return false;
  if (!config_init(&c, model, &err)) die(EXIT_USAGE, "%s", err.msg);
  return model_of(&c)->targets == BATCH_BIT(BATCH_LABEL);
}

// Decides what is timed, and on which images.
static void resolve_benchmark(TrainSpec *o) {
  Err err;
  if (!o->benchmark) o->from.benchmark = FROM_NOTHING;
  if (!o->benchmark_loader) o->from.benchmark_loader = FROM_NOTHING;
  o->made_up = o->benchmark && !o->data && makes_images_up(o->model);
  if (o->benchmark < 0) o->benchmark = o->made_up ? 100 : 200;
  if (o->forward_only && !o->made_up)
    die(EXIT_USAGE, "--forward-only needs --benchmark of a classifier without --data");
  if (o->batches && !o->made_up) die(EXIT_USAGE, "--batches needs --benchmark of a classifier without --data");
  if (o->batches && !batch_list_parse(&o->batch_sizes, o->batches, &err)) die(EXIT_USAGE, "--batches %s", err.msg);
  if (o->made_up && o->gpus != 1) {
    if (o->gpus) die(EXIT_USAGE, "--gpus %d: random images are timed on one GPU; give --data", o->gpus);
    die(EXIT_USAGE, "--gpus all: random images are timed on one GPU; give --data");
  }
}

static void check_together(TrainSpec *o) {
  Err err;
  if (o->reset_heads && !o->weights) die(EXIT_USAGE, "--reset-heads needs --weights FILE");
  if (o->full_masks && !o->benchmark)
    die(EXIT_USAGE, "--full-masks needs --benchmark, because it changes the training");
  if (o->same_images && !o->benchmark)
    die(EXIT_USAGE, "--same-images needs --benchmark, because it changes the training");
  resolve_benchmark(o);
  if (o->train_images && !o->train_json) die(EXIT_USAGE, "--train-images needs --train-json FILE");
  if (o->val_images && !o->val_json) die(EXIT_USAGE, "--val-images needs --val-json FILE");
  if (!o->data) o->data = o->train_json; // the name of the data
  if (!o->data && !o->made_up) o->data = data_default();
  SampleRange range;
  if (strcmp(o->range, "auto") && !sample_range_parse(&range, o->range, &err))
    die(EXIT_USAGE, "--range %s; or auto", err.msg);
  if (o->sizes && !sizes_parse(&o->shorter_sides, o->sizes, &err)) die(EXIT_USAGE, "--sizes %s", err.msg);
  if (o->drops && !drops_parse(&o->drop_list, o->drops, &err)) die(EXIT_USAGE, "--drops %s", err.msg);
  if (o->amend && !o->resume) die(EXIT_USAGE, "--amend needs --resume: it allows changes to a resumed run");
  if (o->val_loss && o->eval_every == EVAL_NEVER)
    die(EXIT_USAGE, "--val-loss needs evaluations, but --eval-every never turns them off: leave one of them out");
  if (o->reduce == REDUCE_NONE && !o->benchmark)
    die(EXIT_USAGE, "--reduce none needs --benchmark: otherwise each process would train a model of its own");
}

// ---- what does not go together --------------------------------------------------------------------------------------

// Options that do not apply to the model are refused, rather than silently ignored.
static void check_traits(const TrainSpec *o) {
  static const struct {
    unsigned trait;
    const char *is, *one, *what_to_do;
  } traits[] = {{MODEL_DETECTOR, "is for detectors", "a classifier", "leave it out"},
                {MODEL_CLASSIFIER, "is for classifiers", "a detector", "leave it out"},
                {MODEL_MASKS, "is for models with masks", "not one", "leave it out"},
                {MODEL_STAGES, "is for ResNets", "not one", "leave it out to train all layers"},
                {MODEL_NORMS, "is for models with selectable normalization", "not one", "leave it out"}};
  int n;
  const Option *rows = train_rows(&n);
  for (int i = 0; i < n; i++) {
    const unsigned lacks = rows[i].needs & ~model_of(&o->config)->traits;
    if (rows[i].type == OPT_HEADING || !lacks || option_source(&rows[i], o) != FROM_GIVEN) continue;
    for (int t = 0; t < COUNT(traits); t++)
      if (lacks & traits[t].trait)
        die(EXIT_USAGE, "--%s %s, but %s is %s: %s", option_name(&rows[i]).text, traits[t].is,
            o->model ? o->model : model_of(&o->config)->name, traits[t].one, traits[t].what_to_do);
  }
}

static void exclude(bool given, const char *what, const char *why) {
  if (given) die(EXIT_USAGE, "%s %s", what, why);
}

// A field that has an option is set by one of the two.
static void check_set(const TrainSpec *o) {
  int n;
  Err err;
  const Option *rows = train_rows(&n);
  if (!config_list_alone(o->set, rows, n, o, &err)) die(EXIT_USAGE, "%s", err.msg);
  const struct {
    const char *option, *field;
    bool given;
  } others[] = {{"anchors", "anchor_size", o->from.anchors == FROM_GIVEN},
                {"proposals", "rpn_post_nms_test", o->from.proposals == FROM_GIVEN},
                {"score", "min_score", o->from.score == FROM_GIVEN}};
  for (int i = 0; i < COUNT(others); i++)
    if (others[i].given && config_list_sets(o->set, others[i].field))
      die(EXIT_USAGE, "--%s and --set %s cannot be combined: leave one of them out", others[i].option, others[i].field);
}

static void check_holdout(TrainSpec *o) {
  Err err;
  if (!holdout_options(&o->holdout, o->val_fraction, o->fold, o->group, (uint64_t)o->split_seed, &err))
    die(EXIT_USAGE, "%s", err.msg);
  const char *by = o->fold ? "--fold" : "--val-fraction";
  if (!holdout_wanted(&o->holdout)) {
    exclude(o->from.split_seed == FROM_GIVEN, "--split-seed", "needs --val-fraction P or --fold I/N");
    return;
  }
  if (o->val_json)
    die(EXIT_USAGE, "--val-json and %s cannot be combined: %s evaluates on training images that it holds out", by, by);
  if (!strcmp(o->val_split, o->train_split))
    die(EXIT_USAGE, "--val-split %s and %s cannot be combined: the evaluation would use training images", o->val_split,
        by);
}

// A model's own phases apply unless length or rate were given.
static void choose_phases(TrainSpec *o) {
  static const char why[] = "and --phases cannot be combined: --phases sets epochs and learning rates";
  const struct {
    const char *name;
    bool given;
  } others[] = {{"--epochs", o->from.epochs == FROM_GIVEN}, {"--iters", o->from.iters == FROM_GIVEN},
                {"--lr", o->from.lr == FROM_GIVEN},         {"--schedule", o->from.schedule == FROM_GIVEN},
                {"--drops", o->from.drops == FROM_GIVEN},   {"--warmup", o->from.warmup == FROM_GIVEN}};
  bool any = false;
  Err err;
  for (int i = 0; i < COUNT(others); i++) {
    any |= others[i].given;
    exclude(o->phases && others[i].given, others[i].name, why);
  }
  if (!o->phases) o->from.phases = FROM_NOTHING;
  if (!o->phases && !any && (o->phases = model_of(&o->config)->learning.phases)) o->from.phases = FROM_MODEL;
  if (o->phases && !phases_parse(&o->phase_list, o->phases, &err)) die(EXIT_USAGE, "--phases %s", err.msg);
}

// If two options express the same setting, the other one counts as given. --eval-every end is then the default anyway.
static void choose_given(TrainSpec *o) {
  if (!strcmp(o->range, "auto")) o->from.range = FROM_DEFAULT;
  if (o->from.iters == FROM_GIVEN) o->from.epochs = FROM_NOTHING;
  if (o->from.eval_every != FROM_GIVEN || o->from.eval_epochs != FROM_GIVEN || !o->eval_epochs) return;
  if (o->eval_every == EVAL_AT_END)
    o->from.eval_every = FROM_DEFAULT;
  else
    o->from.eval_epochs = FROM_NOTHING;
}

static void check_evaluations(const TrainSpec *o) {
  if (o->eval_every > 0 || o->eval_epochs) return;
  const Targets t = targets_of(o);
  if (o->patience)
    die(EXIT_USAGE, "--patience counts evaluations during the run: give --eval-every STEPS, or leave --eval-every out");
  if (t.n)
    die(EXIT_USAGE, "%s is checked at evaluations during the run: give --eval-every STEPS, or leave --eval-every out",
        t.of[0].option);
}

// ---- the whole ------------------------------------------------------------------------------------------------------

static Cli command_line(TrainSpec *o) {
  Cli cli = {.usage = "--data DIR [options]",
             .about = "Trains Mask R-CNN on a data set in COCO format, or a classifier on images sorted by class.",
             .values = o,
             .renamed = renamed};
  cli.options = train_rows(&cli.num_options);
  return cli;
}

// Prepares --help: defaults depend on --model, --conventions and --data, wherever they appear; or lists the fields of
// the configuration.
static void before_help(Cli *cli, int argc, char **argv) {
  static char more[1024]; // static, because it is printed later
  char models[768];
  TrainSpec *o = cli->values;
  Err err;
  const char *conventions = cli_peek(argc, argv, "conventions");
  o->data = cli_peek(argc, argv, "data");
  o->model = cli_peek(argc, argv, "model");
  if (!o->model) o->model = DEFAULT_MODEL;
  for (int i = 0; conventions && conventions_choices[i]; i++)
    if (!strcmp(conventions, conventions_choices[i])) o->conventions = i;
  if (!config_init(&o->config, o->model, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (cli->topic && strcmp(cli->topic, "all") && strcmp(cli->topic, "model"))
    die(EXIT_USAGE, "--help takes all or model, not \"%.200s\"", cli->topic);
  o->config = setup_model(o);
  if (cli->topic && !strcmp(cli->topic, "model")) {
    const bool detects = model_of(&o->config)->traits & MODEL_DETECTOR;
    const int columns = wrap_columns(stdout);
    char about[256];
    snprintf(
        about, sizeof about,
        "The configuration of %.64s%s%s when it is trained from scratch; with --weights, the weights' own applies.\n",
        o->model, detects ? " with --conventions " : "", detects ? conventions_choices[o->conventions] : "");
    wrap_print(stdout, about, 0, 0, columns);
    model_print_help(&o->config, columns, stdout);
    stdout_close();
    exit(0);
  }
  choose_phases(o);
  train_settle(o, &(Basis){.ranks = 1, .idx = train_on_gray(o, &o->config), .help = true});
  o->from.model = FROM_NOTHING; // shows the default without --model
  cli->has = model_of(&o->config)->traits;
  model_choices(models, sizeof models);
  snprintf(
      more, sizeof more,
      "--model NAME --help shows the options of another model, --help model its configuration fields.\nModels: %s.",
      models);
  cli->more = more;
}

TrainSpec train_spec(int argc, char **argv) {
  TrainSpec o = {OPTION_DEFAULTS(TRAIN_OPTIONS)};
  Cli cli = command_line(&o);
  cli.before_help = before_help;
  o.command = command_of(argc, argv); // before the parser reorders arguments
  cli_parse_or_exit(&cli, argc, argv);
  check_together(&o);
  if (!o.model && !o.weights) o.model = train_default_model(&o);
  o.config = setup_model(&o);
  check_traits(&o);
  check_set(&o);
  choose_phases(&o);
  check_holdout(&o);
  choose_given(&o);
  train_settle(&o, &(Basis){.idx = train_on_gray(&o, &o.config)});
  exclude(o.drops && o.schedule != DECAY_STEP, "--drops", "needs --schedule step");
  check_evaluations(&o);
  return o;
}

TrainSpec train_spec_complete(const TrainSpec *o, int ranks, int64_t per_epoch) {
  TrainSpec complete = *o;
  CHECK(per_epoch > 0); // otherwise what o has settled would be settled again
  complete.gpus = ranks;
  complete.per_epoch = per_epoch;
  train_settle(&complete, &(Basis){.ranks = ranks, .per_epoch = per_epoch});
  return complete;
}
