// Commands that take all values of a setting at once: what they print, and what becomes of it when they fail.
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/studies.h"
#include "test/harness/test.h"

// {n} is a list; the command writes down what it was given, prints a record for each, and fails at the 4 of b.
TEST(study_sweeps_values_by_one_command) {
  char plan[1500];
  snprintf(plan, sizeof plan,
           "title: Swept\n[setting kind]\nvalues: a, b\n[setting n]\nvalues: 1, two = 2, 4, 8\n[command c]\n"
           "sweep: n\nrun: echo {kind} {n} {repeat} >>%s/swept; for n in $(echo {n} | tr , ' '); do\n"
           "  [ {kind}$n != b4 ] || {{ echo no four >&2; exit 3; }; echo '{\"n\":'$n', \"v\":'$n'0}'; done\n"
           "[measure v]\nread: v\n[table t]\nrows: kind, n\nshow: v\n",
           study_tmp());
  const char *said, *path = study_put("sweep.plan", plan);
  EXPECT_INT(study_of(path, "sweep", "--only n=two,8 --list", &said), 0);
  EXPECT_IN(said, "kind=a n=two,8, repeat 1: echo a 2,8 1 ");
  EXPECT_IN(said, "12 of 12 runs are left");
  EXPECT_INT(study_of(path, "sweep", "--only 'kind=a n=1,8'", &said), 0);
  EXPECT_INT(study_of(path, "sweep", "", &said), EXIT_RUN);
  EXPECT_IN(said, "kind=b n=1,two,4,8, repeat 1: exit status 3: no four; 2 of its 4 values run by themselves\n");
  char *text = study_text(".", "swept");
  EXPECT_INT(count_of(text, "a 1,8 "), 3);
  EXPECT_INT(count_of(text, "a 2,4 "), 3); // what has run is left out
  EXPECT_INT(count_of(text, "b 1,2,4,8 "), 3);
  EXPECT_INT(count_of(text, "b 4 "), 3); // each that has no figures yet, by itself
  EXPECT_INT(count_of(text, "b 8 "), 3);
  EXPECT_INT(count_of(text, "\n"), 15);
  free(text);
  text = study_text("sweep", "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 24);
  EXPECT_INT(count_of(text, "\"ran\":\"echo b {n} 1 "), 4);
  free(text);
  text = study_text("sweep", "tables.md");
  EXPECT_IN(text, "| a | two | 20 |");
  EXPECT_IN(text, "| a | 4 | 40 |");
  EXPECT_IN(text, "| b | two | 20 |");
  EXPECT_IN(text, "| b | 4 | failed |");
  EXPECT_IN(text, "| b | 8 | 80 |");
  EXPECT_IN(text, "kind=b n=4: failed, 3 of 3 runs: exit status 3: no four");
  free(text);
}

// A plan of one sweep over `values`, by a command that has the list in $*.
static const char *plan_of(const char *name, const char *more, const char *values, const char *body) {
  char plan[1500];
  snprintf(plan, sizeof plan,
           "title: T\n%s[setting n]\nvalues: %s\n[command c]\nsweep: n\n"
           "run: cd %s; set -- $(echo {n} | tr , ' '); %s\n[measure v]\nread: v\n",
           more, values, study_tmp(), body);
  return study_put(name, plan);
}

TEST(study_sweep_that_leaves_a_value_out) {
  const char *said, *plan = plan_of("lacking.plan", "", "1, 2, 3",
                                    "echo '{\"n\":1.0,\"v\":1}'; echo '{\"v\":7}'; "
                                    "echo '{\"n\":3,\"out_of_memory\":true,\"why\":\"large\"}'");
  EXPECT_INT(study_of(plan, "lacking", "", &said), EXIT_RUN);
  char *text = study_text("lacking", "tables.md");
  EXPECT_IN(text, "| 1 | 1 |");
  EXPECT_IN(text, "n=2: no value, 3 of 3 runs: no record has the n 2");
  EXPECT_IN(text, "n=3: out of memory, 3 of 3 runs: large");
  free(text);
}

// Whatever it had printed of the value, in whatever order it took them: the one that fails by itself has failed.
TEST(study_sweep_blames_the_value_that_fails) {
  const char *said, *plan = plan_of("blame.plan", "", "1, 2, 4, 8",
                                    "for n in $(printf '%s\\n' $* | sort -rn); do echo '{\"n\":'$n',\"warm\":1}'; "
                                    "[ $n != 4 ] || { echo bad >&2; exit 7; }; echo '{\"n\":'$n',\"v\":'$n'}'; done");
  EXPECT_INT(study_of(plan, "blame", "", &said), EXIT_RUN);
  char *text = study_text("blame", "tables.md");
  EXPECT_IN(text, "| 1 | 1 |\n| 2 | 2 |\n| 4 | failed |\n| 8 | 8 |");
  EXPECT_IN(text, "n=4: failed, 3 of 3 runs: exit status 7: bad");
  free(text);
}

// One value's memory is out, which the command says and goes on; another one's crash is none of that.
TEST(study_sweep_tells_memory_from_a_crash) {
  const char *said,
      *plan = plan_of("memory.plan", "", "1, 2, 4",
                      "for n; do case $n in 2) echo 'CUDA out of memory' >&2; "
                      "echo '{\"n\":2,\"out_of_memory\":true,\"why\":\"no room\"}';; 4) echo illegal >&2; "
                      "exit 7;; *) echo '{\"n\":1,\"v\":1}';; esac; done");
  EXPECT_INT(study_of(plan, "memory", "", &said), EXIT_RUN);
  char *text = study_text("memory", "tables.md");
  EXPECT_IN(text, "| 1 | 1 |\n| 2 | out of memory |\n| 4 | failed |");
  EXPECT_IN(text, "n=4: failed, 3 of 3 runs: exit status 7: illegal");
  free(text);
}

// timeout is for the whole sweep, and then for each value that it has kept waiting.
TEST(study_sweep_that_hangs) {
  const char *said, *plan = plan_of("hang.plan", "timeout: 0.5\nrepeats: 1\nfewest: 1\n", "1, 2, 3",
                                    "for n; do [ $n != 2 ] || sleep 30; echo '{\"n\":'$n',\"v\":'$n'}'; done");
  EXPECT_INT(study_of(plan, "hang", "", &said), EXIT_RUN);
  char *text = study_text("hang", "tables.md");
  EXPECT_IN(text, "| 1 | 1 |\n| 2 | failed |\n| 3 | 3 |");
  free(text);
}

// What it is interrupted at runs again, what it has printed does not.
TEST(study_sweep_keeps_what_it_has_on_an_interrupt) {
  const char *said, *plan = plan_of("cut.plan", "repeats: 1\nfewest: 1\n", "1, 2, 3",
                                    "echo $* >>cut; for n; do echo '{\"n\":'$n',\"v\":'$n'}'; "
                                    "[ $n$# != 23 ] || { : >cut-here; sleep 30; }; done");
  EXPECT_INT(command(&said,
                     "{ %s %s --out %s/cut-out & s=$!; for i in $(seq 300); do [ -e %s/cut-here ] || sleep 0.02; done; "
                     "kill -TERM $s; wait $s; }",
                     tool("study"), plan, study_tmp(), study_tmp()),
             EXIT_RUN);
  EXPECT_IN(said, "interrupted: 1 of 3 runs are left");
  EXPECT_INT(study_of(plan, "cut-out", "", &said), 0);
  char *text = study_text(".", "cut");
  EXPECT_STR(text, "1 2 3\n3\n");
  free(text);
}

// Nothing is left that a sweep could fail at again, however little time each call has.
TEST(study_sweep_that_failed_goes_on_by_single_values) {
  const char *said,
      *plan = plan_of("live.plan", "repeats: 1\nfewest: 1\n", "1, 2, 3",
                      "echo $* >>live; [ $# = 1 ] || { sleep 0.3; exit 9; }; echo '{\"n\":'$1',\"v\":1}'");
  for (int i = 0; i < 2; i++) EXPECT_INT(study_of(plan, "live-out", "--limit 0.2", &said), i ? 0 : EXIT_RUN);
  char *text = study_text(".", "live");
  EXPECT_STR(text, "1 2 3\n1\n2\n3\n");
  free(text);
}

// What is prepared for a list, too, may fail for one of its values.
TEST(study_sweep_prepares_each_value_where_all_fail) {
  const char *said;
  char plan[700];
  snprintf(plan, sizeof plan,
           "title: T\n[setting n]\nvalues: 1, 4, 2\n[command c]\nsweep: n\n"
           "prepare: case {n} in *4*) echo no four >&2; exit 1;; esac\n"
           "run: for n in $(echo {n} | tr , ' '); do echo '{\"n\":'$n',\"v\":'$n'}'; done\n[measure v]\nread: v\n");
  EXPECT_INT(study_of(study_put("prep.plan", plan), "prep", "", &said), EXIT_RUN);
  char *text = study_text("prep", "tables.md");
  EXPECT_IN(text, "| 1 | 1 |\n| 4 | failed |\n| 2 | 2 |");
  EXPECT_IN(text, "n=4: failed, 3 of 3 runs: prepare failed: no four");
  free(text);
}

// The time of a sweep that failed is nobody's.
TEST(study_sweep_that_failed_has_no_seconds) {
  const char *said, *plan = plan_of("secs.plan", "repeats: 1\nfewest: 1\n", "1, 2",
                                    "echo '{\"n\":1,\"v\":1}'; [ $# = 2 ] && exit 4; echo '{\"n\":2,\"v\":2}'\n"
                                    "[measure s]\nread: @seconds");
  EXPECT_INT(study_of(plan, "secs", "", &said), 0);
  char *text = study_text("secs", "results.jsonl");
  EXPECT_INT(count_of(text, "\"kind\":\"run\""), 2);
  EXPECT_INT(count_of(text, "\"seconds\":null"), 0);
  free(text);
}

// Only the record of a value says that it was measured, where the plan asks for nothing else of it.
TEST(study_sweep_of_seconds_alone) {
  const char *said, *plan = study_put("seconds.plan", "title: T\n[setting n]\nvalues: 1, 2\n[command c]\nsweep: n\n"
                                                      "run: : {n}; echo '{\"n\":1}'\n[measure s]\nread: @seconds\n");
  EXPECT_INT(study_of(plan, "seconds", "", &said), EXIT_RUN);
  char *text = study_text("seconds", "tables.md");
  EXPECT_IN(text, "| 2 | no value |");
  free(text);
}

// A record without the setting tells of the machine for all values, and is no value's figure.
TEST(study_sweep_keeps_the_origin_that_is_printed_once) {
  const char *said,
      *plan = plan_of("origin.plan", "", "1, 2",
                      "echo '{\"v\":9,\"commit\":\"abc\",\"machine\":{\"gpu\":\"G\",\"driver\":\"570\"}}'; "
                      "for n; do echo '{\"n\":'$n',\"v\":'$n'}'; done");
  EXPECT_INT(study_of(plan, "origin", "", &said), 0);
  char *text = study_text("origin", "tables.md");
  EXPECT_IN(text, "| 1 | 1 |\n| 2 | 2 |");
  EXPECT_IN(text, "- G, driver 570: 6 runs\n- commit abc");
  free(text);
}

TEST(study_sweep_keeps_the_files_of_other_values) {
  const char *said,
      *plan = plan_of("files.plan", "repeats: 1\nfewest: 1\n", "1, 2, 4",
                      "for n; do echo '{\"n\":'$n',\"v\":'$n'}' | sed \"s/\\\"v\\\":1/\\\"w\\\":$#/\"; done");
  EXPECT_INT(study_of(plan, "files", "", &said), EXIT_RUN);
  EXPECT_INT(study_of(plan, "files", "--rerun failed", &said), EXIT_RUN);
  char *text = study_text("files", "runs/n=1+2+4-1.stdout");
  EXPECT_IN(text, "{\"n\":4,\"v\":4}");
  free(text);
}

TEST(study_sweep_notices_a_changed_text) {
  const char *said, *body = "for n; do echo '{\"n\":'$n',\"v\":'$n'}'; done";
  EXPECT_INT(study_of(plan_of("text.plan", "", "small = 16, big = 64", body), "text", "", &said), 0);
  EXPECT_INT(study_of(plan_of("text.plan", "", "small = 16, big = 640", body), "text", "", &said), EXIT_USAGE);
  EXPECT_IN(said, "text.plan:2: the text of big has changed since it ran: ");
  EXPECT_INT(study_of(plan_of("text.plan", "", "small = 16, big = 640", body), "text", "--rerun changed", &said), 0);
  char *text = study_text("text", "tables.md");
  EXPECT_IN(text, "| small | 16 |\n| big | 640 |");
  free(text);
}
