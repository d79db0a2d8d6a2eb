// Command lines: every kind of option, every way to get one wrong, and what people are told then.
#include "base/cli.h"
#include "test/harness/test.h"

// A program's options, and what they are before parsing.
typedef struct Args {
  const char *data;
  int batch, schedule, amp;
  int64_t seed;
  float momentum;
  double lr;
  bool resume, strict;
} Args;

static const char *const schedules[] = {"step", "cosine", NULL};
static const char *const amps[] = {"off", "bf16", "fp16", NULL};

enum { NUM_OPTIONS = 11, MAX_ARGS = 16 };
typedef struct Fixture {
  Args a;
  Option table[NUM_OPTIONS];
  Cli cli;
  Err err;
  char *argv[MAX_ARGS];
  char line[512];
} Fixture;

// Splits `line` at spaces and parses it.
static bool parse(Fixture *f, const char *line) {
  f->a = (Args){.batch = 2, .seed = 1, .momentum = 0.9f, .lr = 0.02, .strict = true};
  Args *a = &f->a;
  Option table[NUM_OPTIONS] = {
      {.kind = OPT_HEADING, .help = "data"},
      {.name = "data", .kind = OPT_STRING, .target = &a->data, .arg = "DIR", .help = "folder of the data set"},
      {.name = "batch", .kind = OPT_INT, .target = &a->batch, .arg = "N", .help = "images", .min = 1, .max = 1024},
      {.kind = OPT_HEADING, .help = "training"},
      {.name = "seed", .kind = OPT_INT64, .target = &a->seed, .arg = "N", .help = "of everything random"},
      {.name = "momentum", .kind = OPT_FLOAT, .target = &a->momentum, .help = "of SGD", .min = 0, .max = 1},
      {.name = "lr", .kind = OPT_DOUBLE, .target = &a->lr, .arg = "X", .help = "learning rate", .max = INFINITY},
      {.name = "schedule", .kind = OPT_CHOICE, .target = &a->schedule, .choices = schedules, .help = "its decay"},
      {.name = "amp", .kind = OPT_CHOICE, .target = &a->amp, .choices = amps, .implied = "bf16", .help = "16 bit"},
      {.name = "resume", .kind = OPT_FLAG, .target = &a->resume, .help = "go on where the last run ended"},
      {.name = "strict", .kind = OPT_FLAG, .target = &a->strict, .help = "stop at odd data"},
  };
  memcpy(f->table, table, sizeof table);
  f->cli = (Cli){.usage = "[options]", .about = "Tests.", .options = f->table, .num_options = NUM_OPTIONS};
  f->cli.positional = "IMAGE";
  snprintf(f->line, sizeof f->line, "%s", line);
  int argc = 0;
  f->argv[argc++] = "prog";
  for (char *save, *word = strtok_r(f->line, " ", &save); word; word = strtok_r(NULL, " ", &save))
    f->argv[argc++] = word;
  return cli_parse(&f->cli, argc, f->argv, &f->err);
}

static void expect_error(const char *line, const char *message) {
  Fixture f;
  if (EXPECT(!parse(&f, line))) EXPECT_STR(f.err.msg, message);
}

// What a printing function writes.
static char *printed(const Cli *cli, bool help) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  if (help)
    cli_print_help(cli, "./prog", out);
  else
    cli_print_config(cli, out);
  fclose(out);
  return text;
}

TEST(cli_defaults) {
  Fixture f;
  if (!EXPECT(parse(&f, ""))) return;
  EXPECT(!f.a.data && !f.a.resume && f.a.strict);
  EXPECT_INT(f.a.batch, 2);
  EXPECT_INT(f.cli.num_args, 0);
  EXPECT(!cli_given(&f.cli, "batch"));
}

TEST(cli_values) {
  Fixture f;
  if (!EXPECT(parse(&f, "--data a=b --batch=8 --seed -9223372036854775808 --momentum 0.5 --lr=1e-3 --schedule cosine "
                        "--amp=fp16 --resume --strict=false")))
    return;
  EXPECT_STR(f.a.data, "a=b");
  EXPECT_INT(f.a.batch, 8);
  EXPECT(f.a.seed == INT64_MIN);
  EXPECT(f.a.momentum == 0.5f && f.a.lr == 1e-3);
  EXPECT_INT(f.a.schedule, 1);
  EXPECT_INT(f.a.amp, 2);
  EXPECT(f.a.resume && !f.a.strict);
  EXPECT(cli_given(&f.cli, "batch") && cli_given(&f.cli, "strict"));
}

TEST(cli_optional_value_takes_no_argument) {
  Fixture f;
  if (!EXPECT(parse(&f, "--amp fp16"))) return;
  EXPECT_INT(f.a.amp, 1);
  EXPECT_INT(f.cli.num_args, 1);
  EXPECT_STR(f.cli.args[0], "fp16");
}

// A number can stand apart even where it may be left out: nothing else begins with a digit and is meant for it.
TEST(cli_optional_number) {
  struct {
    char *argv[4];
    int argc, steps, args;
  } cases[] = {{{"prog", "--steps"}, 2, 200, 0},
               {{"prog", "--steps", "7"}, 3, 7, 0},
               {{"prog", "--steps=7", "8"}, 3, 7, 1},
               {{"prog", "--steps", "--flag"}, 3, 200, 0},
               {{"prog", "--steps", "image.png"}, 3, 200, 1}};
  for (int i = 0; i < COUNT(cases); i++) {
    int steps = 0;
    bool flag = false;
    Option table[] = {{.name = "steps", .kind = OPT_INT, .target = &steps, .implied = "200"},
                      {.name = "flag", .kind = OPT_FLAG, .target = &flag}};
    Cli cli = {.usage = "", .about = "", .options = table, .num_options = COUNT(table), .positional = "IMAGE"};
    Err err;
    if (!EXPECT(cli_parse(&cli, cases[i].argc, cases[i].argv, &err))) continue;
    EXPECT_INT(steps, cases[i].steps);
    EXPECT_INT(cli.num_args, cases[i].args);
  }
}

TEST(cli_last_of_several_counts) {
  Fixture f;
  EXPECT(parse(&f, "--batch 3 --batch 4 --resume --resume=false"));
  EXPECT_INT(f.a.batch, 4);
  EXPECT(!f.a.resume);
}

TEST(cli_positional) {
  Fixture f;
  if (!EXPECT(parse(&f, "a.jpg --batch 3 - b.jpg -- --lr -x"))) return;
  const char *want[] = {"a.jpg", "-", "b.jpg", "--lr", "-x"};
  if (!EXPECT_INT(f.cli.num_args, COUNT(want))) return;
  for (int i = 0; i < COUNT(want); i++) EXPECT_STR(f.cli.args[i], want[i]);
  f.cli.positional = NULL;
  EXPECT(!cli_parse(&f.cli, 2, (char *[]){"prog", "a.jpg"}, &f.err));
  EXPECT_STR(f.err.msg, "unexpected argument \"a.jpg\"; --help shows the usage");
}

TEST(cli_unknown_option_names_the_nearest) {
  expect_error("--bacth 4", "unknown option --bacth; did you mean --batch? --help lists them all");
  expect_error("--sched=step", "unknown option --sched; did you mean --schedule? --help lists them all");
  expect_error("--Resume", "unknown option --Resume; did you mean --resume? --help lists them all");
  expect_error("--q", "unknown option --q; --help lists them all");
  expect_error("--=3", "unknown option --; --help lists them all");
  expect_error("-b 4", "unknown option -b; options begin with two dashes, --help lists them all");
  char line[400] = "--";
  memset(line + 2, 'a', sizeof line - 3);
  line[sizeof line - 1] = 0;
  Fixture f;
  EXPECT(!parse(&f, line));
}

TEST(cli_bad_values_say_what_is_accepted) {
  expect_error("--batch 0", "--batch takes an integer from 1 to 1024, not \"0\"");
  expect_error("--batch=1025", "--batch takes an integer from 1 to 1024, not \"1025\"");
  expect_error("--batch=4x", "--batch takes an integer from 1 to 1024, not \"4x\"");
  expect_error("--batch=", "--batch takes an integer from 1 to 1024, not \"\"");
  expect_error("--batch 2.5", "--batch takes an integer from 1 to 1024, not \"2.5\"");
  expect_error("--batch 4294967298", "--batch takes an integer from 1 to 1024, not \"4294967298\""); // 2 in 32 bits
  expect_error("--seed 9223372036854775808", "--seed takes an integer, not \"9223372036854775808\"");
  expect_error("--lr -1", "--lr takes a number of at least 0, not \"-1\"");
  expect_error("--lr nan", "--lr takes a number of at least 0, not \"nan\"");
  expect_error("--lr inf", "--lr takes a number of at least 0, not \"inf\"");
  expect_error("--lr=\t1", "--lr takes a number of at least 0, not \"\t1\"");
  expect_error("--momentum 1.5", "--momentum takes a number from 0 to 1, not \"1.5\"");
  expect_error("--schedule linear", "--schedule takes step or cosine, not \"linear\"");
  expect_error("--amp=fp8", "--amp takes off, bf16 or fp16, not \"fp8\"");
  expect_error("--resume=maybe", "--resume takes true or false, not \"maybe\"");
  expect_error("--batch", "--batch needs a value: an integer from 1 to 1024");
  expect_error("--data --batch 2", "--data needs a value: text");
}

TEST(cli_help_shows_defaults_whatever_stands_before) {
  Fixture f;
  if (!EXPECT(parse(&f, "--batch 7 --nonsense -h"))) return;
  EXPECT(f.cli.help);
  char *text = printed(&f.cli, true);
  EXPECT_STR(text, "usage: ./prog [options]\n"
                   "Tests.\n"
                   "\n"
                   "data\n"
                   "  --data DIR              folder of the data set\n"
                   "  --batch N               images (default 2)\n"
                   "\n"
                   "training\n"
                   "  --seed N                of everything random (default 1)\n"
                   "  --momentum VALUE        of SGD (default 0.9)\n"
                   "  --lr X                  learning rate (default 0.02)\n"
                   "  --schedule step|cosine  its decay (default step)\n"
                   "  --amp[=off|bf16|fp16]   16 bit (default off)\n"
                   "  --resume                go on where the last run ended\n"
                   "  --strict                stop at odd data (default true)\n");
  free(text);
}

TEST(cli_config) {
  Fixture f;
  if (!EXPECT(parse(&f, "--lr 0.0001 --data d\"ir --amp"))) return;
  char *text = printed(&f.cli, false);
  EXPECT_STR(text, "  --data=d\"ir\n  --batch=2\n  --seed=1\n  --momentum=0.9\n  --lr=0.0001\n  --schedule=step\n"
                   "  --amp=bf16\n  --resume=false\n  --strict=true\n");
  free(text);
  Record r = {0};
  record_begin(&r);
  cli_record_config(&f.cli, &r);
  EXPECT_STR(record_end(&r), "{\"data\":\"d\\\"ir\",\"batch\":2,\"seed\":1,\"momentum\":0.9,\"lr\":0.0001,"
                             "\"schedule\":\"step\",\"amp\":\"bf16\",\"resume\":false,\"strict\":true}");
  record_free(&r);
}
