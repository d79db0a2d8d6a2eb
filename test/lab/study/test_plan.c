// What is wrong in a plan is said with its line.
#include "base/file.h"
#include "lab/study/plan.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

typedef struct Mistake {
  const char *plan, *says; // says: behind the file's name
} Mistake;

#define C "[command c]\nrun: echo {n}\n"
#define N "[setting n]\nvalues: 1, 2\n"
#define M "[measure m]\nread: m\n"
// 49 values.
#define SEVEN(x) x "0, " x "1, " x "2, " x "3, " x "4, " x "5, " x "6"
#define MANY SEVEN("1") ", " SEVEN("2") ", " SEVEN("3") ", " SEVEN("4") ", " SEVEN("5") ", " SEVEN("6") ", " SEVEN("7")

static const Mistake mistakes[] = {
    {"", "1: a plan begins with a line \"title: …\""},
    {"title: T\n", "1: the plan has no [command NAME]"},
    {"title: T\n" N C, "1: the plan has no [measure NAME]"},
    {"title: T\nrepeat: 3\n", "2: the plan has no \"repeat\", did you mean repeats?"},
    {"title: T\ntitle: U\n", "2: \"title\" is in line 1 already"},
    {"title: T\nrepeats: 2\n", "2: 2 repeats are too few to tell an error by; at least 3, or a line \"fewest: 2\""},
    {"title: T\nfewest: 5\n", "2: 3 repeats are too few to tell an error by; at least 5, or a line \"fewest: 3\""},
    {"title: T\nrepeats: 3.5\n", "2: repeats takes a whole number"},
    {"title: T\nrepeats: many\n", "2: repeats takes a number of at least 1, not \"many\""},
    {"title: T\ntimeout: 0\n", "2: timeout takes a number of at least 0.001"},
    {"title: T\nwhat is this\n", "2: expected a line \"name: value\", not \"what is this\""},
    {"  title: T\n", "1: a line that begins with a blank continues none here"},
    {"title: T\n[seting n]\n", "2: there is no section [seting], did you mean setting?"},
    {"title: T\n[setting n\n", "2: a section begins with [KIND NAME]"},
    {"title: T\n[setting]\n", "2: [setting NAME]: a name has letters, digits and _"},
    {"title: T\n[given x]\n", "2: [given] has no name"},
    {"title: T\n" N N, "4: [setting n] is in line 2 already"},
    {"title: T\n[setting n]\nvalue: 1\n", "3: [setting] has no \"value\", did you mean values?"},
    {"title: T\n[setting n]\nlabel: N\n", "2: the setting n needs a line \"values: …\""},
    {"title: T\n[setting n]\nvalues: 1, 2, 1\n", "3: the value 1 is there twice"},
    {"title: T\n[setting n]\nvalues: 1,, 2\n", "3: a value is missing; they are separated by commas"},
    {"title: T\n[setting n]\nvalues: a b\n", "3: \"a b\": the name of a value has no blanks"},
    {"title: T\n[setting n]\nvalues: a = \"b\n", "3: a \" that is not closed"},
    {"title: T\n[setting x]\nvalues: " MANY "\n[setting y]\nvalues: " MANY "\n[setting z]\nvalues: " MANY
     "\n[command c]\nrun: echo {x} {y} {z}\n",
     "9: 117649 combinations of settings; at most 100000"},
    {"title: T\n[setting repeat]\nvalues: 1\n", "2: repeat has a meaning already"},
    {"title: T\n[given]\nn: 1\n" N, "4: n is the name of something else already"},
    {"title: T\n[setting batch]\nvalues: 1\n[command c]\nrun: echo {bach}\n",
     "5: {bach} is neither a setting nor a given, did you mean batch?"},
    {"title: T\n" N "[command c]\nrun: echo {n ${n:-1} {print}\n", "5: {n has no }; the shell's own brace"},
    {"title: T\n" N "[command c]\nrun: echo {n} {repeat\n", "5: {repeat has no }"},
    {"title: T\n" N "[command c]\nrun: echo\n", "2: no command has {n} in its run"},
    {"title: T\n" N "[command c]\nprepare: x\n", "4: the command c needs a line \"run: …\""},
    {"title: T\n" N "[command c]\nrun: echo {n} {k}\n[setting k]\nread: machine.gpu\n",
     "5: {k}: that setting is found"},
    {"title: T\n" N C "sweep: k\n", "6: sweep takes a setting that stands in run, not \"k\""},
    {"title: T\n" N "[command c]\nrun: echo\nsweep: n\n[command d]\nrun: {n}\n", "6: sweep takes a setting that"},
    {"title: T\n[setting n]\nvalues: a = \"1,2\", b\n" C "sweep: n\n", "6: sweep: the text of a is several"},
    {"title: T\n[setting n]\nvalues: a = \"\", b\n" C "sweep: n\n", "6: sweep: the text of a is empty"},
    {"title: T\n[setting n]\nvalues: 1 = 2, 2 = 4\n" C "sweep: n\n", "6: sweep: a record of 2 could be of 1, too"},
    {"title: T\n[setting n]\nvalues: 1 = a, 1.0 = b\n" C "sweep: n\n", "6: sweep: a record of 1 could be of 1.0, too"},
    {"title: T\n[setting n]\nvalues: 1, 1.0\n" C "sweep: n\n", "6: sweep: a record of 1 could be of 1.0, too"},
    {"title: T\n" N C M "[measure q]\nvalue: m / m[n=1,2]\n", "9: several values of n: a figure is at one of them"},
    {"title: T\n" N C M "[table t]\nshow: m, m[n=1,2]\n", "9: several values of n: a figure is at one of them"},
    {"title: T\n" N C "[skip]\nn=3\n", "7: the setting n has no value 3"},
    {"title: T\n" N C "[skip]\nbatch=3\n", "7: there is no setting batch"},
    {"title: T\n" N C "[skip]\nn\n", "7: expected SETTING=VALUE, not \"n\""},
    {"title: T\n" N C "[measure m]\nunit: s\n", "6: the measure m needs a line \"read: PATH\""},
    {"title: T\n" N C "[measure m]\nread: @second\n", "7: there is no @second; @seconds is"},
    {"title: T\n" N C M "[measure q]\nvalue: 2 *\n", "9: expected a name at \"\""},
    {"title: T\n" N C M "[measure q]\nvalue: m / x\n", "9: there is no measure x"},
    {"title: T\n" N C "[measure q]\nvalue: m\n" M, "7: the measure m has to stand above"},
    {"title: T\n" N C "[measure q]\nvalue: 1 + q\n" M, "7: the measure q has to stand above"},
    {"title: T\n" N C M "[measure q]\nvalue: m[n=7]\n", "9: the setting n has no value 7"},
    {"title: T\n" N C M "[measure q]\nvalue: (m\n", "9: a ( that is not closed"},
    {"title: T\n" N C M "[measure q]\nvalue: m m\n", "9: expected + - * / or the end at \"m\""},
    {"title: T\n" N C M "[measure q]\nvalue: mean(m)\n", "9: there is no mean(…); there are min, max and runs"},
    {"title: T\n" N C M "[measure q]\nvalue: m / theirs.m\n", "9: there is no [published theirs]"},
    {"title: T\n[setting n]\nvalues: 1, x\n" C M "[measure q]\nvalue: n\n", "9: the setting n has the value x"},
    {"title: T\n" N C "[measure m]\nread: m\nbetter: more\n", "8: better takes higher or lower"},
    {"title: T\n" N C "[measure m]\nread: m\nof: d\n", "8: there is no command \"d\""},
    {"title: T\n" N C "[measure m]\nread: m\nwhere: kind\n", "8: where takes MEMBER=VALUE, not \"kind\""},
    {"title: T\n" N C M "[table t]\nrows: k\n", "9: there is no setting k"},
    {"title: T\n" N C M "[table t]\nrows: n\ncolumns: n\n", "10: n is in rows already"},
    {"title: T\n" N C M "[table t]\nshow: q\n", "9: there is no measure q"},
    {"title: T\n" N C M "[table t]\nshow: m[n=3]\n", "9: the setting n has no value 3"},
    {"title: T\n" N C M "[table t]\nbest: n\n", "9: best: none of the measures shown has a line"},
    {"title: T\n" N C M "[plot p]\nx: n\n", "8: the plot p needs lines \"x: SETTING\" and \"y: MEASURE\""},
    {"title: T\n" N C M "[plot p]\nx: n\ny: m\nlog: z\n", "11: log takes x, y or x y"},
    {"title: T\n" N C M "[published p]\ncolumns: n, k\n", "9: k is neither a setting nor a measure"},
    {"title: T\n" N C M "[published p]\ncolumns: n, m\n1, 2\n3, 4\n", "11: the setting n has no value 3"},
    {"title: T\n" N C M "[published p]\ncolumns: n, m\n1, 2, 3\n", "10: a row of 2 columns has as many values"},
    {"title: T\n" N C M "[published p]\ncolumns: n, m\n1\n", "10: a row of 2 columns has as many values"},
    {"title: T\n" N C M "[published p]\ncolumns: n, m\n1, about 3\n", "10: expected a number or -, not \"about 3\""},
};

static void write_plan(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  CHECK(f);
  fputs(text, f);
  fclose(f);
}

TEST(plan_mistakes_are_said_with_their_line) {
  const char *path = in_tmp("mistake.plan");
  for (int i = 0; i < COUNT(mistakes); i++) {
    StudyPlan p;
    Err err = {"nothing"};
    write_plan(path, mistakes[i].plan);
    const bool ok = study_plan_read(&p, path, NULL, &err);
    const char *said = strstr(err.msg, "mistake.plan:");
    if (!EXPECT(!ok && said && !strncmp(said + 13, mistakes[i].says, strlen(mistakes[i].says))))
      printf("%s\nsays %s\nnot %s\n", mistakes[i].plan, err.msg, mistakes[i].says);
    study_plan_free(&p);
  }
}

// The plan that docs/studies.md shows, between its first fences behind "A whole plan".
TEST(plan_of_the_documentation_is_one) {
  size_t size;
  StudyPlan p;
  Err err;
  char *text = file_read("docs/studies.md", &size, &err), *head = text ? strstr(text, "## A whole plan") : NULL;
  char *begin = head ? strstr(head, "```\n") : NULL, *end = begin ? strstr(begin + 4, "```\n") : NULL;
  if (!EXPECT(end)) return;
  *end = '\0';
  const char *path = in_tmp("documented.plan");
  write_plan(path, begin + 4);
  free(text);
  if (!EXPECT(study_plan_read(&p, path, "data=/data/x", &err))) printf("%s\n", err.msg);
  EXPECT_INT(p.num_settings, 4);
  EXPECT_INT(p.num_measures, 4);
  EXPECT_STR(p.settings[3].values[1].text, "--amp");
  EXPECT_STR(p.givens[0].value, "/data/x");
  EXPECT(strstr(p.commands[0].run, "--seed {repeat} --benchmark 100"));
  StudyCell cell = {{0, 0, 1, 0}};
  EXPECT_NEAR(study_published_figure(&p, 0, &cell, study_measure_find(&p, "img_s")), 25, 0);
  EXPECT(isnan(study_published_figure(&p, 0, &cell, study_measure_find(&p, "speedup"))));
  study_plan_free(&p);
  EXPECT(study_plan_read(&p, path, "data=\"/data/x --norm gn\" price=3", &err));
  EXPECT_STR(p.givens[0].value, "/data/x --norm gn");
  EXPECT_STR(p.givens[1].value, "3");
  study_plan_free(&p);
  EXPECT(!study_plan_read(&p, path, "data=\"/data/x", &err) && strstr(err.msg, "not closed in \"/data/x"));
  study_plan_free(&p);
  EXPECT(!study_plan_read(&p, path, "dat=/x", &err) && strstr(err.msg, "no [given] of that name, did you mean data?"));
  study_plan_free(&p);
}
