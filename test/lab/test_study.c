// Catches studies that lose records, leave processes behind or compute other tables than their records say.
//
// lab/study.py: test/lab/study_checks.py has the cases.
#include "test/harness/command.h"
#include "test/harness/test.h"

static void run_checks(const char *cases) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return;
  }
  if (!EXPECT_INT(command(&said, "python3 test/lab/study_checks.py %s", cases), 0)) printf("%s\n", said);
}

TEST(study_remakes_the_tables_of_results_from_their_records) { run_checks("Kept"); }
TEST(study_computes_figures_tables_and_plots) { run_checks("Figures"); }
TEST(study_says_what_is_wrong_in_a_plan) { run_checks("Plans"); }
TEST_TIER(study_runs_commands_and_records_what_came_of_them, 1) { run_checks("Runs"); }
TEST_TIER(study_leaves_no_process_and_continues_after_a_kill, 1) { run_checks("Ended"); }
TEST_TIER(study_kills_what_ignores_a_request_to_end, 2) { run_checks("Deaf"); }
TEST_TIER(study_notices_changed_plans_and_merges_machines, 1) { run_checks("Changes"); }
TEST_TIER(study_sweeps_values_by_one_command, 1) { run_checks("Sweeps"); }
