// Catches job scripts in docs/ that start the wrong number of tasks, or requeue a run that is complete.
//
// docs/slurm.sh, slurm-requeue.sh and torchrun.sh, with stubs for srun, scontrol and torchrun on the PATH that print
// how they were called.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static void stand_in(const char *name, const char *text) {
  char path[512];
  mkdir(in_tmp("bin"), 0777);
  snprintf(path, sizeof path, "%s/%s", in_tmp("bin"), name);
  FILE *f = fopen(path, "w");
  CHECK(f && fprintf(f, "#!/bin/sh\necho %s \"$@\"\n%s\n", name, text) > 0 && fclose(f) == 0);
  CHECK(chmod(path, 0755) == 0);
}

// Exit status of a script with these variables and arguments.
static int script(const char **said, const char *variables, const char *script_and_arguments) {
  return command(said, "PATH=%s:$PATH %s sh docs/%s", in_tmp("bin"), variables, script_and_arguments);
}

TEST(slurm_scripts_pass_shellcheck) {
  const char *said;
  if (command(&said, "command -v shellcheck")) {
    test_skip("shellcheck is not installed");
    return;
  }
  if (!EXPECT_INT(command(&said, "shellcheck docs/*.sh"), 0)) printf("%s\n", said);
}

TEST(slurm_starts_one_task_a_gpu) {
  const char *said;
  stand_in("srun", "exit 3");
  EXPECT_INT(script(&said, "SLURM_CPUS_PER_TASK=5 DATA=/d", "slurm.sh --epochs 2"), 3);
  EXPECT_STR(said, "srun --kill-on-bad-exit=1 --cpus-per-task=5 ./train --data /d --batch 4 --amp --out runs/slurm "
                   "--epochs 2\n");
  EXPECT(script(&said, "", "slurm.sh") != 0 && strstr(said, "DATA: set it to the data set"));
}

TEST(slurm_requeue_goes_on_unless_it_is_complete_or_mistaken) {
  static const struct {
    const char *ends, *variables;
    int status;
    bool again;
  } cases[] = {
      {"exit 0", "", 0, false},
      {"exit 1", "", 0, true},
      {"exit 2", "", 2, false},
      {"exit 137", "SLURM_RESTART_COUNT=1", 0, true},
      {"exit 1", "SLURM_RESTART_COUNT=3 RESTARTS=3", 1, false},
  };
  const char *said;
  stand_in("scontrol", "");
  for (int i = 0; i < COUNT(cases); i++) {
    char variables[128];
    snprintf(variables, sizeof variables, "SLURM_JOB_ID=7 DATA=/d OUT=o %s", cases[i].variables);
    stand_in("srun", cases[i].ends);
    EXPECT_INT(script(&said, variables, "slurm-requeue.sh"), cases[i].status);
    EXPECT(strstr(said, " --out o --resume\n") && !strstr(said, "scontrol requeue 7\n") == !cases[i].again);
  }
}

TEST(slurm_is_not_the_only_one_torchrun_starts_a_program) {
  const char *said;
  stand_in("torchrun", "");
  EXPECT_INT(script(&said, "NODES=2 HOST=n1 DATA=/d", "torchrun.sh --lr 0.01"), 0);
  EXPECT_STR(said, "torchrun --no-python --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint n1:29500 "
                   "--rdzv-id maskrcnn ./train --data /d --batch 4 --amp --out runs/torchrun --lr 0.01\n");
}
