// Catches options that are parsed wrongly, and mistakes on a command line that pass or get no usable message.
#include "base/cli.h"
#include "test/harness/test.h"

static const char *const schedules[] = {"step", "cosine", NULL};
static const char *const amps[] = {"off", "bf16", "fp16", NULL};

// clang-format off
#define PROG_OPTIONS(X)                                                                                                \
  X(HEADING, "data")                                                                                                   \
  X(STRING, data,          NULL,            "DIR", "folder of the data set")                                           \
  X(INT,    batch,         2, 1, 1024,      "N",   "images")                                                           \
  X(INT_IMPLIED, time,     0, 0, 1e6,       "N", "200", "steps")                                                       \
  X(INT,    level,         0, 0, 0,         "N",   "any integer")                                                      \
  X(HEADING, "training")                                                                                               \
  X(INT64,  seed,          1, 0, 0,         "N",   "of everything random")                                             \
  X(FLOAT,  momentum,      0.9f, 0, 0.99f,  "X",   "of SGD")                                                           \
  X(FLOAT,  learning_rate, 0.02f, 0, INFINITY, "X", "of SGD, too")                                                     \
  X(CHOICE, schedule,      0, schedules,           "its decay")                                                        \
  X(CHOICE_IMPLIED, amp,   0, amps, "bf16",        "16 bit")                                                           \
  X(FLAG,   resume,        false,                  "go on where the last run ended")                                   \
  X(FLAG,   strict,        true,                   "stop at odd data")                                                 \
  X(STRING, set,           NULL,            "A=B", "a pair", .joins = true)
// clang-format on

typedef struct ProgOptions {
  double before; // a program's own members may stand on either side
  OPTION_FIELDS(PROG_OPTIONS)
  double after;
} ProgOptions;

enum { MAX_ARGS = 16 };
typedef struct Fixture {
  ProgOptions o;
  Cli cli;
  Err err;
  char *argv[MAX_ARGS];
  char line[512];
} Fixture;

// Splits `line` at spaces and parses it.
static bool parse(Fixture *f, const char *line) {
  OPTION_TABLE(table, ProgOptions, PROG_OPTIONS);
  f->o = (ProgOptions){OPTION_DEFAULTS(PROG_OPTIONS)};
  f->o.before = 1;
  f->o.after = 2;
  f->cli = (Cli){.usage = "[options]",
                 .about = "Tests.",
                 .options = table,
                 .num_options = COUNT(table),
                 .values = &f->o,
                 .positional = "IMAGE"};
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

// The options as they would be typed.
static char *typed(const Cli *cli) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  for (int i = 0; i < cli->num_options; i++) {
    char value[OPTION_TEXT];
    const char *is = option_text(&cli->options[i], cli->values, value);
    if (is) fprintf(out, "  --%s=%s\n", option_name(&cli->options[i]).text, is);
  }
  fclose(out);
  return text;
}

TEST(cli_defaults) {
  Fixture f;
  if (!EXPECT(parse(&f, ""))) return;
  EXPECT(!f.o.data && !f.o.resume && f.o.strict);
  EXPECT_INT(f.o.batch, 2);
  EXPECT_INT(f.cli.num_args, 0);
}

TEST(cli_values) {
  Fixture f;
  if (!EXPECT(parse(&f, "--data a=b --batch=8 --seed -9223372036854775808 --momentum 0.5 --learning-rate=1e-3 "
                        "--schedule cosine --amp=fp16 --resume --strict=false")))
    return;
  EXPECT_STR(f.o.data, "a=b");
  EXPECT_INT(f.o.batch, 8);
  EXPECT(f.o.seed == INT64_MIN);
  EXPECT(f.o.momentum == 0.5f && f.o.learning_rate == 1e-3f);
  EXPECT_INT(f.o.schedule, 1);
  EXPECT_INT(f.o.amp, 2);
  EXPECT(f.o.resume && !f.o.strict);
  EXPECT(f.o.before == 1 && f.o.after == 2);
}

TEST(cli_optional_value_takes_only_a_choice) {
  Fixture f;
  if (!EXPECT(parse(&f, "--amp photo.jpg"))) return;
  EXPECT_INT(f.o.amp, 1);
  EXPECT_INT(f.cli.num_args, 1);
  EXPECT_STR(f.cli.args[0], "photo.jpg");
  if (!EXPECT(parse(&f, "--amp fp16"))) return;
  EXPECT_INT(f.o.amp, 2);
  EXPECT_INT(f.cli.num_args, 0);
}

// A number can stand apart even where it may be left out: nothing else begins with a digit and is meant for it.
TEST(cli_optional_number) {
  const struct {
    const char *line;
    int time, args;
  } cases[] = {
      {"--time", 200, 0},          {"--time 7", 7, 0},           {"--time=7 8", 7, 1},
      {"--time --resume", 200, 0}, {"--time image.png", 200, 1},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    Fixture f;
    if (!EXPECT(parse(&f, cases[i].line))) continue;
    EXPECT_INT(f.o.time, cases[i].time);
    EXPECT_INT(f.cli.num_args, cases[i].args);
  }
}

TEST(cli_last_of_several_counts) {
  Fixture f;
  EXPECT(parse(&f, "--batch 3 --batch 4 --resume --resume=false"));
  EXPECT_INT(f.o.batch, 4);
  EXPECT(!f.o.resume);
}

TEST(cli_joins_several_values) {
  Fixture f;
  EXPECT(parse(&f, "--set a=1"));
  EXPECT_STR(f.o.set, "a=1");
  EXPECT(parse(&f, "--set a=1 --batch 3 --set=b=2 --set c"));
  EXPECT_STR(f.o.set, "a=1 b=2 c");
}

TEST(cli_positional) {
  Fixture f;
  if (!EXPECT(parse(&f, "a.jpg --batch 3 - b.jpg -- --seed -x"))) return;
  const char *want[] = {"a.jpg", "-", "b.jpg", "--seed", "-x"};
  if (!EXPECT_INT(f.cli.num_args, COUNT(want))) return;
  for (int i = 0; i < COUNT(want); i++) EXPECT_STR(f.cli.args[i], want[i]);
  f.cli.positional = NULL;
  EXPECT(!cli_parse(&f.cli, 2, (char *[]){"prog", "a.jpg"}, &f.err));
  EXPECT_STR(f.err.msg, "unexpected argument \"a.jpg\"; --help shows the usage");
}

TEST(cli_unknown_option_names_the_nearest) {
  expect_error("--bacth 4", "unknown option --bacth; did you mean --batch? --help all lists all options");
  expect_error("--sched=step", "unknown option --sched; did you mean --schedule? --help all lists all options");
  expect_error("--learning_rate 1",
               "unknown option --learning_rate; did you mean --learning-rate? --help all lists all options");
  expect_error("--Resume", "unknown option --Resume; did you mean --resume? --help all lists all options");
  expect_error("--q", "unknown option --q; --help all lists all options");
  expect_error("--=3", "unknown option --; --help all lists all options");
  expect_error("-b 4", "unknown option -b; options begin with two dashes, --help all lists them");
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
  expect_error("--level 4294967298", "--level takes an integer, not \"4294967298\"");
  expect_error("--seed 9223372036854775808", "--seed takes an integer, not \"9223372036854775808\"");
  expect_error("--learning-rate -1", "--learning-rate takes a number of at least 0, not \"-1\"");
  expect_error("--learning-rate nan", "--learning-rate takes a number of at least 0, not \"nan\"");
  expect_error("--learning-rate inf", "--learning-rate takes a number of at least 0, not \"inf\"");
  expect_error("--learning-rate 1e39", "--learning-rate takes a number of at least 0, not \"1e39\""); // no float
  expect_error("--learning-rate=\t1", "--learning-rate takes a number of at least 0, not \"\t1\"");
  expect_error("--momentum 1.5", "--momentum takes a number from 0 to 0.99, not \"1.5\"");
  expect_error("--schedule linear", "--schedule takes step or cosine, not \"linear\"");
  expect_error("--amp=fp8", "--amp takes off, bf16 or fp16, not \"fp8\"");
  expect_error("--resume=maybe", "--resume takes true or false, not \"maybe\"");
  expect_error("--batch", "--batch needs a value: an integer from 1 to 1024");
  expect_error("--data --batch 2", "--data needs a value: DIR");
}

TEST(cli_version_and_help_whatever_stands_before) {
  Fixture f;
  EXPECT(parse(&f, "--batch 7 --nonsense -h") && f.cli.help && f.o.batch == 2);
  EXPECT(parse(&f, "--batch 7 --nonsense --version") && f.cli.version && !f.cli.help);
  EXPECT(parse(&f, "--batch 7") && !f.cli.version);
}

TEST(cli_config) {
  Fixture f;
  if (!EXPECT(parse(&f, "--learning-rate 0.0001 --data d\"ir --amp"))) return;
  char *text = typed(&f.cli);
  EXPECT_STR(
      text,
      "  --data=d\"ir\n  --batch=2\n  --time=0\n  --level=0\n  --seed=1\n  --momentum=0.9\n  --learning-rate=0.0001\n"
      "  --schedule=step\n  --amp=bf16\n  --resume=false\n  --strict=true\n");
  free(text);
  if (!EXPECT(parse(&f, ""))) return;
  text = typed(&f.cli); // what was not given has no value to show
  EXPECT(!strstr(text, "--data"));
  free(text);
}

TEST(cli_words_are_what_a_shell_reads) {
  static const char *const words[][2] = {
      {"runs/a-1.pth", "runs/a-1.pth"}, {"sp ace", "'sp ace'"}, {"it's $HOME", "'it'\\''s $HOME'"}, {"", "''"}};
  for (int i = 0; i < COUNT(words); i++) {
    char *word = cli_word(words[i][0]);
    EXPECT_STR(word, words[i][1]);
    free(word);
  }
}
