// Catches a rank or world size misread from torchrun, srun or mpirun.
#include <unistd.h>
#include "base/alloc.h"
#include "comm/launch.h"
#include "test/harness/test.h"

static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "MASKRCNN_JOB",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "PMIX_NAMESPACE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_NTASKS"};

// Of "A=1 B=2", with nothing else that a starter sets; the environment is as before, afterwards.
static bool launch(Launch *l, const char *set, const char *rendezvous, Err *err) {
  char *before[COUNT(known)], *copy = xstrdup(set), *rest = copy;
  for (int i = 0; i < COUNT(known); i++) {
    const char *value = getenv(known[i]);
    before[i] = value ? xstrdup(value) : NULL;
    unsetenv(known[i]);
  }
  for (char *word; (word = strtok_r(rest, " ", &rest));) {
    char *equals = strchr(word, '=');
    *equals = '\0';
    setenv(word, equals + 1, 1);
  }
  bool ok = launch_from_environment(l, rendezvous, err);
  for (int i = 0; i < COUNT(known); i++) {
    unsetenv(known[i]);
    if (before[i]) setenv(known[i], before[i], 1);
    free(before[i]);
  }
  free(copy);
  return ok;
}

// `is`: "BY RANK/WORLD LOCAL/LOCAL_WORLD MEET JOB", and "!" after it if the key is a secret.
static void expect_launch(const char *set, const char *rendezvous, const char *is) {
  Launch l;
  Err err = {""};
  char text[1024];
  if (!EXPECT(launch(&l, set, rendezvous, &err))) {
    printf("    %s: %s\n", set, err.msg);
    return;
  }
  snprintf(text, sizeof text, "%s %d/%d %d/%d %s %s%s", l.by ? l.by : "alone", l.rank, l.world, l.local_rank,
           l.local_world, l.meet, l.job, l.secret ? "!" : "");
  EXPECT_STR(text, is);
  EXPECT(l.listener == -1 && !l.crew);
}

static void expect_refused(const char *set, const char *rendezvous, const char *says) {
  Launch l;
  Err err = {""};
  if (!EXPECT(!launch(&l, set, rendezvous, &err) && strstr(err.msg, says))) printf("    %s: %s\n", set, err.msg);
}

TEST(launch_alone) {
  expect_launch("", NULL, "alone 0/1 0/1  ");
  expect_launch("RANK=0 WORLD_SIZE=1", NULL, "alone 0/1 0/1  ");
  expect_launch("WORLD_SIZE=1", NULL, "alone 0/1 0/1  ");
  expect_launch("RANK=0 WORLD_SIZE=1", "tcp:h:1", "alone 0/1 0/1  ");
  // A script of sbatch is no rank, nor is a shell in a step of one task.
  expect_launch("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=8 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-2]", NULL,
                "alone 0/1 0/1  ");
  expect_launch("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=8", NULL, "alone 0/1 0/1  ");
}

TEST(launch_by_torchrun) {
#define TORCHRUN "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29500 "
  expect_launch(TORCHRUN, NULL, "torchrun 5/8 1/4 tcp:n1:29500 ");
  // Its agent has the port itself, and says so as torch is told.
  expect_launch(TORCHRUN "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=abc", NULL,
                "torchrun 5/8 1/4 tcp:n1:29501 torchrun abc");
  expect_launch(TORCHRUN "TORCHELASTIC_USE_AGENT_STORE=False", NULL, "torchrun 5/8 1/4 tcp:n1:29500 ");
  expect_launch(TORCHRUN "MASKRCNN_JOB=mine TORCHELASTIC_RUN_ID=abc", "file:/a/b",
                "torchrun 5/8 1/4 file:/a/b torchrun abc!");
  // Inside a step of Slurm it is torchrun that counts.
  expect_launch(TORCHRUN "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=9", "tcp:[::1]:7",
                "torchrun 5/8 1/4 tcp:[::1]:7 ");
  expect_launch("RANK=1 WORLD_SIZE=2 MASTER_ADDR=fe80::1 MASTER_PORT=1", NULL, "torchrun 1/2 0/1 tcp:[fe80::1]:1 ");
}

TEST(launch_by_srun) {
#define SRUN "SLURM_PROCID=6 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=0 SLURM_JOB_ID=12 SLURM_STEP_ID=3 "
  expect_launch(SRUN "SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=6,1 SLURM_STEP_NODELIST=node[01-04,7],x", NULL,
                "srun 6/7 0/1 tcp:node01:25208 slurm 12.3");
  expect_launch(SRUN "SLURM_STEP_TASKS_PER_NODE=3(x2),1 SLURM_NODEID=1 SLURM_JOB_NODELIST=a,b", NULL,
                "srun 6/7 0/3 tcp:a:25208 slurm 12.3");
  expect_launch(SRUN "SLURM_STEP_NODELIST=r[2-3]n[5,8]x,y MASTER_PORT=99", NULL,
                "srun 6/7 0/1 tcp:r2n5x:99 slurm 12.3");
  // What scripts for PyTorch export is used where it says where to meet; so are PMI's variables of the same step.
  expect_launch(SRUN "MASTER_ADDR=h WORLD_SIZE=7 PMI_RANK=6 PMI_SIZE=7", NULL, "srun 6/7 0/1 tcp:h:25208 slurm 12.3");
}

TEST(launch_by_mpirun) {
#define MPIRUN "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 "
  expect_launch(MPIRUN "OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=p@1", NULL,
                "mpirun 2/4 2/4 tcp:127.0.0.1:29303 mpirun p@1");
  expect_launch(MPIRUN "OMPI_COMM_WORLD_LOCAL_SIZE=3 OMPI_MCA_ess_base_jobid=5 MASTER_ADDR=h MASTER_PORT=9", NULL,
                "mpirun 2/4 2/3 tcp:h:9 mpirun 5");
  // Of another implementation, started inside a step of Slurm's that has other ranks.
  expect_launch("PMI_RANK=1 PMI_SIZE=2 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 MASTER_ADDR=h MASTER_PORT=9", NULL,
                "mpirun 1/2 0/1 tcp:h:9 ");
  char is[128], set[] = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_PORT=9";
  snprintf(is, sizeof is, "mpirun 1/2 1/2 tcp:127.0.0.1:9 mpirun of process %ld", (long)getppid());
  expect_launch(set, NULL, is);
}

// The key is the SHA-256 of MASKRCNN_JOB, whatever its length, or else of what the launcher calls the job.
TEST(launch_key_of_a_job) {
  static const uint8_t of_mine[4] = {0x3f, 0xd3, 0x05, 0x42}, of_slurm[4] = {0x54, 0x58, 0xb8, 0xde};
  char set[400] = SRUN "MASTER_ADDR=h MASKRCNN_JOB=";
  Launch l, other;
  Err err;
  EXPECT(launch(&l, SRUN "MASTER_ADDR=h", NULL, &err) && !l.secret && !memcmp(l.key, of_slurm, 4));
  EXPECT(launch(&l, SRUN "MASTER_ADDR=h MASKRCNN_JOB=mine", NULL, &err) && l.secret && !memcmp(l.key, of_mine, 4));
  EXPECT_STR(l.meet, "tcp:h:26237");
  memset(set + strlen(set), 'x', 200);
  EXPECT(launch(&l, set, NULL, &err));
  strcat(set, "y");
  EXPECT(launch(&other, set, NULL, &err) && memcmp(l.key, other.key, sizeof l.key));
}

TEST(launch_refuses_what_cannot_be) {
  expect_refused("RANK=5 WORLD_SIZE=4", NULL, "RANK is 5 with WORLD_SIZE 4: ranks go from 0 to 3");
  expect_refused("RANK=x WORLD_SIZE=4", NULL, "RANK is \"x\": expected a whole number");
  expect_refused("RANK=-1 WORLD_SIZE=4", NULL, "RANK is \"-1\": expected a whole number");
  expect_refused("RANK=0 WORLD_SIZE=99999999999", NULL, "WORLD_SIZE is \"99999999999\"");
  expect_refused("RANK=0 WORLD_SIZE=5000", NULL, "WORLD_SIZE is 5000: from 1 to 1024 ranks");
  expect_refused("RANK=0 WORLD_SIZE=0", NULL, "WORLD_SIZE is 0");
  expect_refused("RANK=1", NULL,
                 "environment variable RANK is set, but WORLD_SIZE is not: set both, as torchrun, srun and mpirun do");
  expect_refused("WORLD_SIZE=2", NULL,
                 "environment variable WORLD_SIZE is set, but RANK is not: set both, as torchrun, srun and mpirun do");
  expect_refused("OMPI_COMM_WORLD_SIZE=2", NULL, "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_RANK is not");
  expect_refused("RANK=1 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", NULL,
                 "LOCAL_RANK is 2, but this host has 2 processes");
  expect_refused("RANK=1 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=3", NULL, "contradict each other");
  expect_refused("RANK=1 WORLD_SIZE=2", NULL,
                 "the rendezvous of the 2 ranks is unknown: set MASTER_ADDR and MASTER_PORT to rank 0's host and a "
                 "free port there, or give --rendezvous");
  expect_refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h", NULL, "MASTER_PORT is not set");
  expect_refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000", NULL,
                 ": 70000 is not a valid port; use 1 to 65535");
  expect_refused("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65535 TORCHELASTIC_USE_AGENT_STORE=True", NULL,
                 ": 65536 is not a valid port; use 1 to 65535");
  expect_refused(MPIRUN "OMPI_COMM_WORLD_LOCAL_SIZE=3", NULL,
                 "the rendezvous of the 4 ranks is unknown: set MASTER_ADDR and MASTER_PORT to rank 0's host and a "
                 "free port there, or give --rendezvous");
  expect_refused("", "tcp:h:1",
                 "--rendezvous is given, but the rank of this process is unknown: start it with torchrun, srun or "
                 "mpirun, or set RANK and WORLD_SIZE");
  expect_refused("", "h:1", "--rendezvous h:1: expected tcp:HOST:PORT or file:PATH");
  expect_refused("", "file:", "expected tcp:HOST:PORT");
  static const char *const bad[] = {"tcp:h", "tcp::1", "tcp:h:0", "tcp:h:65536", "tcp:h:1x", "tcp:::1:7", "tcp:h:-1"};
  for (int i = 0; i < COUNT(bad); i++)
    expect_refused("RANK=1 WORLD_SIZE=2", bad[i],
                   "\": expected HOST:PORT, such as node1:29500 or [fe80::1]:29500, with a port from 1 to 65535");
}
