// Studies of commands that are stand-ins: they print records, fail, wait, and are killed.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/studies.h"
#include "test/harness/test.h"

// ---- figures --------------------------------------------------------------------------------------------------------

// Values by hand. a: 10, 12, 14: mean 12, deviations -2, 0, 2, so that the error is √(8 / 6) = 1.15. b: 13, 13, 16:
// mean 14, error √(6 / 6) = 1. They differ by 2 ± √(8 / 6 + 1) = 1.53. c: 100, 101, 102: 101 ± 0.58, far from both.
static const char figures_plan[] =
    "title: Figures\n"
    "[setting kind]\n"
    "values: a = 10 12 14, b = 13 13 16, c = 100 101 102\n"
    "[command draw]\n"
    "run: set -- {kind}; shift $(({repeat} - 1)); echo \"a line\"; echo \"{\\\"x\\\": $1}\"\n"
    "[measure x]\n"
    "read: x\n"
    "unit: km\n"
    "better: higher\n"
    "[measure ratio]\n"
    "value: x / x[kind=b]\n"
    "[measure coarse]\n"
    "value: x / x[kind=b]\n"
    "digits: 0\n"
    "[measure least]\n"
    "value: min(x)\n"
    "[table all]\n"
    "best: kind\n"
    "[plot x]\n"
    "x: kind\n"
    "y: x\n"
    "bars: yes\n"
    "[published others]\n"
    "columns: kind, x\n"
    "a, 11.50\n";

TEST(study_means_errors_and_what_they_tell_apart) {
  const char *plan = study_put("figures.plan", figures_plan);
  EXPECT_INT(study_of(plan, "figures", "", NULL), 0);
  char *text = study_text("figures", "tables.md");
  EXPECT_IN(text, "By `build/study` from 9 of 9 runs.");
  EXPECT_IN(text, "| kind | x, km | x, km: others | ratio | coarse | least |");
  // a / b = 0.857: relative errors 1.1547 / 12 and 1 / 14, √(0.09623² + 0.07143²) · 0.857 = 0.103.
  EXPECT_IN(text, "| a | 12.0 ± 1.2 | 11.50 | 0.86 ± 0.10 | 0.9 ± 0.1 | 10 |");
  EXPECT_IN(text, "| b | 14.0 ± 1.0 |  | 1 | 1 | 13 |");
  EXPECT_IN(text, "Best x: kind=c, 101.00 ± 0.58 km.");
  EXPECT_IN(
      text,
      "- x, kind a and b: 12.0 ± 1.2 and 14.0 ± 1.0, a difference of -2.0 ± 1.5 km, smaller than twice its error");
  EXPECT_IN(text, "1 of 3 differences are smaller than twice their error.");
  free(text);
  text = study_text("figures", "x.svg");
  EXPECT(strstr(text, "prefers-color-scheme: dark") && count_of(text, "class=\"error onbar\"") == 3);
  EXPECT_INT(count_of(text, "<rect class=\"theirs"), 2); // the bar and its line of the legend
  free(text);
  text = study_text("figures", "cells.jsonl");
  EXPECT_IN(text, "\"settings\":{\"kind\":\"a\"},\"state\":\"ok\",\"measures\":{\"x\":{\"mean\":12,\"error\":1.1547");
  free(text);
}

TEST(study_writes_no_more_digits_than_it_knows) {
  const char *plan =
      study_put("digits.plan", "title: Digits\n[setting a]\nvalues: diverged = 1e17 2e17 4e17, around = -0.003 "
                               "0.003 -0.001\n[command c]\nrun: set -- {a}; shift $(({repeat} - 1)); "
                               "echo \"{\\\"v\\\": $1}\"\n[measure v]\nread: v\ndigits: 2\n");
  EXPECT_INT(study_of(plan, "digits", "", NULL), 0);
  char *text = study_text("digits", "tables.md");
  EXPECT_IN(text, "| diverged | 2.33e+17 ± 8.8e+16 |");
  EXPECT_IN(text, "| around | 0.000 ± 0.002 |");
  free(text);
}

TEST(study_says_which_panel_of_a_plot_has_no_figures) {
  const char *plan = study_put("panels.plan", "title: Panels\n[setting a]\nvalues: 1, 2\n[setting b]\nvalues: 1, 2\n"
                                              "[command c]\nrun: echo '{\"v\": {a}{b}}'\n[measure v]\nread: v\n"
                                              "[plot v]\nx: a\ny: v\npanels: b\n");
  EXPECT_INT(study_of(plan, "panels", "--only b=1", NULL), 0);
  char *text = study_text("panels", "v.svg");
  EXPECT_INT(count_of(text, "class=\"panel\""), 1); // of what was wanted
  EXPECT_INT(count_of(text, "no figures"), 0);
  free(text);
  EXPECT_INT(study_of(plan, "panels", "--table", NULL), 0);
  text = study_text("panels", "v.svg");
  EXPECT_INT(count_of(text, "class=\"panel\""), 2);
  EXPECT_INT(count_of(text, "no figures"), 1);
  free(text);
}

// Its points have no panel of their own, and one of them all.
TEST(study_plots_a_command_that_does_not_use_the_panels) {
  const char *plan =
      study_put("across.plan", "title: Across\n[setting a]\nvalues: 1, 2\n[setting b]\nvalues: 1, 2\n"
                               "[command c]\nrun: echo '{\"v\": {a}{b}}'\n[command d]\nrun: echo '{\"v\": {a}}'\n"
                               "[measure v]\nread: v\n[plot v]\nx: a\ny: v\npanels: b\n");
  EXPECT_INT(study_of(plan, "across", "--only command=d", NULL), 0);
  char *text = study_text("across", "v.svg");
  EXPECT_INT(count_of(text, "class=\"panel\""), 1);
  EXPECT_INT(count_of(text, "<circle"), 3); // and one in the legend
  free(text);
}

TEST(study_runs_each_repeat_in_an_order_of_its_own_that_the_seed_gives) {
  const char *plan = study_put("order.plan", "title: Order\n[setting n]\nvalues: 1, 2, 3, 4, 5, 6\n[command c]\n"
                                             "run: echo '{\"y\":{n}}'\n[measure y]\nread: y\n");
  const char *said;
  EXPECT_INT(study_of(plan, "order", "--list", &said), 0);
  EXPECT_IN(said, "18 of 18 runs are left");
  EXPECT(!path_is_dir(in_tmp("study/order")));
  char orders[3][7] = {{0}};
  int at[3] = {0};
  for (const char *line = said; (line = strstr(line, "n=")); line++) {
    const char *repeat = strstr(line, "repeat ");
    const int r = repeat[7] - '1';
    if (EXPECT(r >= 0 && r < 3 && at[r] < 6)) orders[r][at[r]++] = line[2];
    if (r > 0) EXPECT_INT(at[r - 1], 6); // the repeat before is over
  }
  for (int r = 0; r < 3; r++)
    for (char n = '1'; n <= '6'; n++) EXPECT(strchr(orders[r], n));
  EXPECT(strcmp(orders[0], orders[1]) || strcmp(orders[1], orders[2]));
  char *before = xstrdup(said);
  study_of(plan, "order", "--list", &said);
  EXPECT_STR(said, before);
  free(before);
  EXPECT_INT(study_of(plan, "order", "--only n=2,5", NULL), 0);
  char *text = study_text("order", "tables.md");
  EXPECT_IN(text, "from 6 of 6 runs");
  EXPECT_IN(text, "| 5 | 5 |");
  EXPECT(!strstr(text, "| 1 |"));
  free(text);
  EXPECT_INT(study_of(plan, "order", "--table --only n=1", NULL), 0); // what has run is shown all the same
  text = study_text("order", "tables.md");
  EXPECT_IN(text, "from 6 of 9 runs");
  EXPECT_IN(text, "| 1 | not run |");
  EXPECT_IN(text, "| 5 | 5 |");
  EXPECT(!strstr(text, "| 3 |"));
  free(text);
}

TEST(study_of_one_command_without_settings) {
  const char *said,
      *plan = study_put("one.plan", "title: One\n[command alone]\nrun: echo '{\"y\": {repeat}}'; ls {out} >&2\n"
                                    "[measure y]\nread: y\n[measure s]\nread: @seconds\n");
  EXPECT_INT(study_of(plan, "one", "", &said), 0);
  EXPECT_IN(said, "[3 of 3] alone, repeat 3: ");
  EXPECT(path_is_dir(in_tmp("study/one/runs/alone-2")));
  char *table = study_text("one", "tables.md");
  EXPECT_IN(table, "| 2.00 ± 0.58 | 0.0");
  free(table);
}

// ---- failures -------------------------------------------------------------------------------------------------------

static const char failing_plan[] =
    "title: Failing\n"
    "timeout: 0.3\n"
    "[setting case]\n"
    "values: good, record, words, crash, killed, lacks, null, nan, huge, late\n"
    "[command c]\n"
    "run: case {case} in\n"
    "  good) echo '{\"v\": 1, \"machine\": {\"gpu\": \"G\"}}';;\n"
    "  record) echo '{\"out_of_memory\": true, \"why\": \"too little: 3 GB\"}';;\n"
    "  words) echo 'RuntimeError: CUDA Out Of Memory. Tried' >&2; echo bye >&2; exit 1;;\n"
    "  crash) echo '{\"v\": 1}'; echo first >&2; echo the last words >&2; exit 3;;\n"
    "  killed) kill -KILL $$;;\n"
    "  lacks) echo '{\"w\": 1, \"other\": 2}';;\n"
    "  null) echo '{\"v\": null}';;\n"
    "  nan) echo '{\"v\": NaN}';;\n"
    "  huge) echo '{\"v\": 1e400}';;\n"
    "  late) sleep 5; echo '{\"v\": 1}';;\n"
    "  esac\n"
    "[measure v]\n"
    "read: v\n";

TEST(study_makes_rows_of_failures_and_goes_on) {
  const char *said, *plan = study_put("failing.plan", failing_plan);
  EXPECT_INT(study_of(plan, "failing", "", &said), EXIT_RUN);
  EXPECT_IN(
      said,
      "failing.plan:6: the command c gave no figures in 21 of its 30 runs, which --rerun failed runs again; the last");
  char *text = study_text("failing", "tables.md");
  EXPECT_IN(text, "| good | 1 |");
  EXPECT_IN(text, "| record | out of memory |");
  EXPECT_IN(text, "| words | out of memory |");
  EXPECT_IN(text, "| crash | failed |");
  EXPECT_IN(text, "| lacks | no value |");
  EXPECT_IN(text, "| late | failed |");
  EXPECT_IN(text, "case=record: out of memory, 3 of 3 runs: too little: 3 GB");
  EXPECT_IN(text, "case=words: out of memory, 3 of 3 runs: RuntimeError: CUDA Out Of Memory. Tried");
  EXPECT_IN(text, "case=crash: failed, 3 of 3 runs: exit status 3: the last words");
  EXPECT_IN(text, "case=killed: failed, 3 of 3 runs: signal 9 (Killed)");
  EXPECT_IN(text, "case=lacks: no value, 3 of 3 runs: no record has v; the last has w, other");
  EXPECT_IN(text, "case=null: no value, 3 of 3 runs: v is null, which is no number");
  EXPECT_IN(text, "case=nan: no value, 3 of 3 runs: no JSON is printed: ");
  EXPECT_IN(text, "found 'NaN'");
  EXPECT_IN(text, "case=huge: no value, 3 of 3 runs: v is beyond 1.8e308, which is no number");
  EXPECT_IN(text, ", as timeout says: it printed nothing");
  EXPECT_IN(text, "- G: 3 runs");
  free(text);
  text = study_text("failing", "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 30);
  EXPECT_INT(count_of(text, "\"machine\":{\"cpu\""), 28); // the plan's, and of runs that print none
  free(text);
  EXPECT_INT(study_of(plan, "failing", "--only case=crash", &said), EXIT_RUN); // nothing runs again
  text = study_text("failing", "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 30);
  free(text);
  EXPECT_INT(study_of(plan, "failing", "--only case=crash --rerun failed", &said), EXIT_RUN);
  text = study_text("failing", "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 33);
  free(text);
  text = study_text("failing", "tables.md");
  EXPECT_IN(text, "from 30 of 30 runs"); // those that were run again replace the others
  free(text);
}

TEST(study_prepares_once_and_says_what_failed) {
  char plan[1500];
  snprintf(plan, sizeof plan,
           "title: Prepared\n[setting a]\nvalues: 1, 2\n[setting b]\nvalues: 1, 2\n[command c]\n"
           "prepare: echo {a} >>%s/prepared; [ {a} = 1 ] || { echo no compiler >&2; exit 1; }\n"
           "run: echo '{\"v\": {b}}' # {a}\n"
           "  ; : {a}\n[measure v]\nread: v\n",
           study_tmp());
  const char *said;
  EXPECT_INT(study_of(study_put("prepared.plan", plan), "prepared-out", "", &said), EXIT_RUN);
  char *text = study_text(".", "prepared");
  EXPECT_INT(count_of(text, "1\n"), 1);
  EXPECT_INT(count_of(text, "2\n"), 1);
  free(text);
  text = study_text("prepared-out", "tables.md");
  EXPECT_IN(text, "| 1 | 2 | 2 |");
  EXPECT_IN(text, "| 2 | 2 | failed |");
  EXPECT_IN(text, "a=2 b=1: failed, 3 of 3 runs: prepare failed: no compiler");
  free(text);
}

// ---- interruptions --------------------------------------------------------------------------------------------------

// Each run notes that it has begun; one that finds `hold` waits there, and would note that it went on.
static const char *waiting_plan(void) {
  char plan[2000];
  snprintf(plan, sizeof plan,
           "title: Waiting\n[setting n]\nvalues: 1, 2\n[command c]\n"
           "run: echo {n}-{repeat} >>%s/begun; [ ! -e {out}/* ] || exit 9; touch {out}/left;\n"
           "  if [ $(wc -l <%s/begun) = 3 ] && [ -e %s/hold ]; then touch %s/held; sleep 2; touch "
           "%s/survived; fi;\n"
           "  echo '{\"v\": {n}}'\n[measure v]\nread: v\n",
           study_tmp(), study_tmp(), study_tmp(), study_tmp(), study_tmp());
  return study_put("waiting.plan", plan);
}

static void interrupted_study(int signal_number, const char *folder) {
  const char *said;
  for (int i = 0; i < 4; i++)
    unlink(in_tmp((const char *[]){"study/begun", "study/held", "study/survived", "study/hold"}[i]));
  study_put("hold", "");
  char *plan = xstrdup(waiting_plan());
  const int status =
      command(&said,
              "{ %s %s --out %s/%s & s=$!; for i in $(seq 300); do [ -e %s/held ] || sleep 0.02; done; kill -%d $s; "
              "wait $s; }",
              tool("study"), plan, study_tmp(), folder, study_tmp(), signal_number);
  free(plan);
  EXPECT_INT(status, signal_number == SIGKILL ? 128 + SIGKILL : EXIT_RUN);
  if (signal_number == SIGTERM) EXPECT_IN(said, "interrupted: 4 of 6 runs are left; the same call goes on");
  char *text = study_text(folder, "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 2);
  free(text);
  unlink(in_tmp("study/hold"));
}

// What was begun: six runs, of which the one under way twice.
static void expect_no_repetition(void) {
  char *text = study_text(".", "begun");
  int twice = 0;
  for (int n = 1; n <= 2; n++)
    for (int repeat = 1; repeat <= 3; repeat++) {
      char name[16];
      snprintf(name, sizeof name, "%d-%d\n", n, repeat);
      const int times = count_of(text, name);
      EXPECT(times == 1 || times == 2);
      twice += times == 2;
    }
  EXPECT_INT(twice, 1);
  free(text);
}

TEST(study_goes_on_after_a_kill) {
  interrupted_study(SIGKILL, "kill");
  char path[600];
  snprintf(path, sizeof path, "%s/kill/results.jsonl", study_tmp());
  FILE *f = fopen(path, "a");
  if (!EXPECT(f)) return;
  fputs("{\"kind\":\"run\",\"comm", f); // as a kill within a write leaves it
  fclose(f);
  EXPECT_INT(study_of(in_tmp("study/waiting.plan"), "kill", "", NULL), 0);
  expect_no_repetition();
  char *text = study_text("kill", "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 6);
  EXPECT_INT(count_of(text, "\"kind\":\"plan\""), 1);
  free(text);
  usleep(2000000);
  EXPECT(!path_is_file(in_tmp("study/survived"))); // the command was ended with the study
}

TEST(study_keeps_what_is_done_on_an_interrupt) {
  interrupted_study(SIGTERM, "interrupt");
  EXPECT(!path_is_file(in_tmp("study/survived"))); // the run was not waited for
  char *text = study_text("interrupt", "tables.md");
  EXPECT_IN(text, "from 2 of 6 runs");
  free(text);
  EXPECT_INT(study_of(in_tmp("study/waiting.plan"), "interrupt", "", NULL), 0);
  expect_no_repetition();
}

TEST(study_begins_nothing_after_its_limit) {
  const char *said, *plan = study_put("limit.plan", figures_plan);
  EXPECT_INT(study_of(plan, "limit", "--limit 0", &said), EXIT_RUN);
  EXPECT_IN(said, "--limit: 9 of 9 runs are left; the same call goes on");
  EXPECT_INT(study_of(plan, "limit", "", NULL), 0);
}

// ---- plans that change, and other machines --------------------------------------------------------------------------

TEST(study_notices_a_changed_command) {
  static const char text[] = "title: T\n[setting n]\nvalues: 1, 2\n[command c]\nrun: echo '{\"v\": {n}%s}'\n"
                             "[measure v]\nread: v\n%s";
  char plan[600];
  const char *said;
  snprintf(plan, sizeof plan, text, "", "");
  EXPECT_INT(study_of(study_put("changed.plan", plan), "changed", "", NULL), 0);
  snprintf(plan, sizeof plan, text, "", "[measure double]\nvalue: 2 * v\n"); // what is shown may change
  EXPECT_INT(study_of(study_put("changed.plan", plan), "changed", "", NULL), 0);
  char *table = study_text("changed", "tables.md");
  EXPECT_IN(table, "| 2 | 2 | 4 |");
  free(table);
  snprintf(plan, sizeof plan, text, "0", "");
  EXPECT_INT(study_of(study_put("changed.plan", plan), "changed", "", &said), EXIT_USAGE);
  EXPECT_IN(said, "changed.plan:5: the command has changed since it ran: ");
  EXPECT_IN(said, "/results.jsonl:2 has \"echo '{\"v\": ");
  EXPECT_INT(study_of(in_tmp("study/changed.plan"), "changed", "--table", &said), 0);
  table = study_text("changed", "tables.md");
  EXPECT_IN(table, "; 6 runs had another command or value than the plan has");
  free(table);
  EXPECT_INT(study_of(in_tmp("study/changed.plan"), "changed", "--rerun changed", &said), 0);
  table = study_text("changed", "tables.md");
  EXPECT_IN(table, "| 2 | 20 |");
  EXPECT_IN(table, "from 6 of 6 runs.");
  free(table);
}

TEST(study_merges_records_of_other_machines) {
  static const char text[] =
      "title: Stack\n[given]\ndriver: 550\n%s"
      "[setting n]\nvalues: 1, 2\n[command c]\n"
      "run: echo '{\"v\": {n}.{repeat}, \"commit\": \"of {driver}\", \"machine\": {\"driver\": \"{driver}\", "
      "\"gpu\": \"G\"}}'\n"
      "[measure v]\nread: v\nbetter: lower\n[table t]\nrows: n%s\n%s";
  char plan[900], options[900];
  const char *said;
  snprintf(plan, sizeof plan, text, "[setting drivers]\nread: machine.driver\nlabel: driver\n", ", drivers",
           "best: drivers\n");
  const char *path = study_put("stack.plan", plan);
  EXPECT_INT(study_of(path, "stack-9", "--set driver=9", NULL), 0);
  EXPECT_INT(study_of(path, "stack-10", "--set driver=10", NULL), 0);
  char *nine = xstrdup(in_tmp("study/stack-9/results.jsonl")), *ten = xstrdup(in_tmp("study/stack-10/results.jsonl"));
  snprintf(options, sizeof options, "--merge %s %s %s", nine, ten, nine); // what comes twice counts once
  free(nine);
  free(ten);
  EXPECT_INT(study_of(path, "merged", options, NULL), 0);
  char *table = study_text("merged", "tables.md");
  EXPECT_IN(table, "| n | driver | v |\n|---|---|---:|\n| 1 | 9 | 1.200 ± 0.058 |\n| 1 | 10 | 1.200 ± 0.058 |");
  EXPECT_IN(table, "Best v (n=1): drivers=9, 1.200 ± 0.058; not told apart from it: drivers=10 (1.200 ± 0.058).");
  EXPECT_IN(table, "Best v (n=2): drivers=9, 2.200 ± 0.058;");
  EXPECT_IN(table, "\n\nGiven: driver=550.\n\nBy `build/study`");
  EXPECT_IN(table, "- G, driver 9: 6 runs\n- G, driver 10: 6 runs");
  EXPECT_IN(table, "from 12 of 12 runs");
  EXPECT(!strstr(table, "is a mean over"));
  free(table);
  snprintf(plan, sizeof plan, text, "", "", "");
  path = study_put("mixed.plan", plan);
  EXPECT_INT(study_of(path, "mixed", options, NULL), 0);
  table = study_text("mixed", "tables.md");
  EXPECT_IN(table, "**n=1 is a mean over 2 machines**; a setting with \"read: machine.…\" tells them apart\n");
  EXPECT_IN(table, "**n=1 is a mean over 2 commits**; a setting with \"read: commit\" tells them apart\n");
  free(table);
  EXPECT_INT(study_of(path, "mixed", "--merge", &said), EXIT_USAGE);
  EXPECT_IN(said, "--merge needs files");
  EXPECT_INT(study_of(study_put("other.plan", figures_plan), "unmerged", options, &said), EXIT_USAGE);
  EXPECT_IN(said, "results.jsonl: no run of ");
  EXPECT_INT(study_of(path, "nowhere", "--table", &said), EXIT_USAGE);
  EXPECT_IN(said, "nowhere/results.jsonl is not there");
}

// A run that failed knew nothing of its machine: the one that took its place does.
TEST(study_runs_again_what_is_found_elsewhere) {
  const char *said,
      *plan = study_put("again.plan", "title: T\n[setting n]\nvalues: 1, 2\n[setting version]\nread: version\n"
                                      "[command c]\nrun: [ {n} = 1 ] || [ -e {study}/ready ] && "
                                      "echo '{\"v\":{n},\"version\":\"v7\"}'\n[measure v]\nread: v\n");
  EXPECT_INT(study_of(plan, "again", "", &said), EXIT_RUN);
  EXPECT_INT(command(&said, "touch %s/again/ready", study_tmp()), 0);
  EXPECT_INT(study_of(plan, "again", "--rerun failed", &said), 0);
  char *text = study_text("again", "tables.md");
  EXPECT_IN(text, "from 6 of 6 runs");
  EXPECT_IN(text, "| 2 | v7 | 2 |");
  EXPECT(!strstr(text, "failed"));
  free(text);
}

TEST(study_plots_numbers_in_their_order) {
  const char *plan = study_put("numbers.plan", "title: T\n[setting n]\nvalues: 16, 1, 8\n[command c]\n"
                                               "run: echo '{\"v\":{n}}'\n[measure v]\nread: v\n[plot p]\nx: n\ny: v\n");
  EXPECT_INT(study_of(plan, "numbers", "", NULL), 0);
  char *text = study_text("numbers", "p.svg");
  const char *one = strstr(text, "middle\">1</text>"), *sixteen = strstr(text, "middle\">16</text>");
  EXPECT(one && sixteen && one < sixteen && strstr(text, "middle\">8</text>"));
  free(text);
}

TEST(study_with_nothing_to_run) {
  const char *said, *plan = study_put("none.plan", "title: T\n[setting n]\nvalues: 1, 2\n[command c]\nrun: echo {n}\n"
                                                   "[skip]\nn=1,2\n[measure v]\nread: v\n");
  EXPECT_INT(study_of(plan, "none", "", &said), EXIT_USAGE);
  EXPECT_IN(said, "nothing to run: [skip] leaves all combinations of settings out");
}

TEST(study_crosses_commands_with_the_settings_that_they_use) {
  static const char plan[] = "title: Two\n[setting conv]\nvalues: x, y\n[setting batch]\nvalues: 1, 2\n"
                             "[command ours]\nrun: echo '{\"v\": {batch}0}' {conv}\nlabel: ours, here\n"
                             "[command theirs]\nrun: echo '{\"w\": {batch}}'\n"
                             "[measure v]\nread: v, w\nwhere: \n"
                             "[measure ours_alone]\nread: v\nof: ours\n"
                             "[measure times]\nvalue: v / v[command=theirs]\nof: ours\n"
                             "[table t]\nrows: batch, conv\ncolumns: command\n";
  const char *said;
  EXPECT_INT(study_of(study_put("two.plan", plan), "two", "", &said), 0);
  EXPECT_IN(said, "[18 of 18] ");
  char *table = study_text("two", "tables.md");
  EXPECT_IN(table, "| batch | conv | v, ours, here | v, theirs | ours_alone, ours, here | times, ours, here |");
  EXPECT_IN(table, "| 2 | y | 20 | 2 | 20 | 10 |");
  EXPECT(!strstr(table, "| – |"));
  free(table);
}

// What a command does not use neither stands in its column's head nor keeps its curve out of a panel; a measure that is
// not its own is not compared; and where two commands are compared, it says where.
TEST(study_of_commands_that_differ_in_their_settings) {
  static const char plan[] = "title: Differ\n[setting n]\nvalues: 1, 2\n[setting way]\nvalues: a, b\n"
                             "[command ours]\nrun: : {way}; echo '{\"v\": {n}{repeat}}'\n"
                             "[command theirs]\nrun: echo '{\"v\": {n}{repeat}}'\n"
                             "[measure v]\nread: v\n"
                             "[measure times]\nvalue: v / v[command=theirs]\nof: ours\nbetter: higher\n"
                             "[table t]\nrows: n\ncolumns: command, way\n"
                             "[plot p]\nx: n\ny: v\npanels: way\n";
  EXPECT_INT(study_of(study_put("differ.plan", plan), "differ", "", NULL), 0);
  char *text = study_text("differ", "tables.md");
  EXPECT_IN(text, "| n | v, ours, a | v, ours, b | v, theirs | times, ours, a | times, ours, b |");
  EXPECT_IN(text, "- v, command ours and theirs (n=2 way=b): 22.00 ± 0.58 and 22.00 ± 0.58, a difference");
  EXPECT_IN(text, "- times, way a and b (ours n=1): ");
  EXPECT(!strstr(text, "- times, command") && !strstr(text, "(theirs n=1)"));
  free(text);
  text = study_text("differ", "p.svg");
  EXPECT_INT(count_of(text, "<circle"), 2 * 2 * 2 + 2); // of each panel two curves of two points; the legend's
  free(text);
  EXPECT_INT(study_of(study_put("narrow.plan", "title: Narrow\n[setting n]\nvalues: 1, 2\n[command c]\n"
                                               "run: echo '{\"v\": 6.{n}}'\n[measure v]\nread: v\n"
                                               "[plot p]\nx: n\ny: v\nlog: y\n"),
                      "narrow", "", NULL),
             0);
  text = study_text("narrow", "p.svg");
  EXPECT(count_of(text, "class=\"grid\"") > 1); // although no 1, 2 or 5 is there
  free(text);
}
