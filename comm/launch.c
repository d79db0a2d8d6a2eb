#include "comm/launch.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/wire.h"

// A launcher of processes, and the names of its variables.
typedef struct Starter {
  const char *by, *rank, *world, *local_rank, *local_world;
} Starter;

// The innermost first: torchrun and mpirun may run inside a Slurm step, whose variables their processes then inherit.
static const Starter starters[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // SLURM_STEP_NUM_TASKS, because an sbatch script also has SLURM_PROCID and SLURM_NTASKS, without being a rank.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL},
};
enum { TORCHRUN, OPEN_MPI, PMI, SLURM, STARTERS };

static const char *variable(const char *name) {
  const char *value = name ? getenv(name) : NULL;
  return value && *value ? value : NULL;
}

static bool number(int *out, const char *name, int otherwise, Err *err) {
  const char *text = variable(name);
  *out = otherwise;
  if (!text) return true;
  if (strspn(text, "0123456789") != strlen(text) || strlen(text) > 9)
    return err_set(err, "environment variable %s is \"%s\": expected a whole number", name, text);
  *out = atoi(text);
  return true;
}

static bool same_variable(const char *a, const char *b) {
  const char *x = variable(a), *y = variable(b);
  return x && y && !strcmp(x, y);
}

// The launcher's index; STARTERS: none. srun also sets PMI's variables, for programs that use MPI.
static int starter(void) {
  const bool step = same_variable("PMI_RANK", "SLURM_PROCID") && same_variable("PMI_SIZE", "SLURM_STEP_NUM_TASKS");
  for (int i = 0; i < STARTERS; i++)
    if (variable(starters[i].rank) && variable(starters[i].world) && !(i == PMI && step)) return i;
  return STARTERS;
}

// Refuses an incomplete set of a launcher's variables, unless another set is complete. Slurm scripts may set WORLD_SIZE
// for later ranks.
static bool not_half(Err *err) {
  for (int i = 0; i < SLURM; i++) {
    const char *rank = variable(starters[i].rank), *world = variable(starters[i].world);
    if (rank && !world)
      return err_set(err, "environment variable %s is set, but %s is not: set both, as torchrun, srun and mpirun do",
                     starters[i].rank, starters[i].world);
    if (world && strcmp(world, "1") != 0)
      return err_set(err, "environment variable %s is set, but %s is not: set both, as torchrun, srun and mpirun do",
                     starters[i].world, starters[i].rank);
  }
  return true;
}

// How many tasks of a step run on a node: the node-th of "4(x2),3".
static int tasks_on_node(const char *list, int node) {
  while (list) {
    char *end;
    long tasks = strtol(list, &end, 10), nodes = 1;
    if (end == list || tasks < 1 || tasks > MAX_CREW) return 0;
    if (!strncmp(end, "(x", 2)) nodes = strtol(end + 2, &end, 10);
    if (node < nodes) return (int)tasks;
    node -= (int)nodes;
    list = strchr(end, ',');
    if (list) list++;
  }
  return 0;
}

static bool who(Launch *l, const Starter *s, Err *err) {
  int node;
  if (!number(&l->rank, s->rank, 0, err) || !number(&l->world, s->world, 1, err)) return false;
  if (!number(&l->local_rank, s->local_rank, 0, err)) return false;
  if (!number(&l->local_world, s->local_world, 0, err) || !number(&node, "SLURM_NODEID", 0, err)) return false;
  if (l->world < 1 || l->world > MAX_CREW)
    return err_set(err, "%s is %d: from 1 to %d ranks are supported", s->world, l->world, MAX_CREW);
  if (l->rank >= l->world)
    return err_set(err, "%s is %d with %s %d: ranks go from 0 to %d", s->rank, l->rank, s->world, l->world,
                   l->world - 1);
  if (s == &starters[SLURM]) l->local_world = tasks_on_node(variable("SLURM_STEP_TASKS_PER_NODE"), node);
  if (!l->local_world) l->local_world = l->local_rank + 1; // a lower bound
  if (l->local_rank >= l->local_world || l->local_world > l->world)
    return err_set(err,
                   "%s is %d, but this host has %d processes of %d in all: the launcher's environment variables "
                   "contradict each other",
                   s->local_rank, l->local_rank, l->local_world, l->world);
  return true;
}

// ---- the job --------------------------------------------------------------------------------------------------------

// Leaves out torchrun's number of restarts, because each of its agents counts its own.
static void find_job(Launch *l, int by) {
  const char *run = variable("TORCHELASTIC_RUN_ID"), *job = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID"),
             *space = variable("PMIX_NAMESPACE"), *jobid = variable("OMPI_MCA_ess_base_jobid");
  if (by == TORCHRUN && run)
    snprintf(l->job, sizeof l->job, "torchrun %s", run);
  else if (by == SLURM && job)
    snprintf(l->job, sizeof l->job, "slurm %s.%s", job, step ? step : "");
  else if (by == OPEN_MPI && space)
    snprintf(l->job, sizeof l->job, "mpirun %s", space);
  else if (by == OPEN_MPI && jobid)
    snprintf(l->job, sizeof l->job, "mpirun %s", jobid);
  else if ((by == OPEN_MPI || by == PMI) && l->local_world == l->world)
    snprintf(l->job, sizeof l->job, "mpirun of process %ld", (long)getppid()); // the parent of all ranks
  text_clean(l->job);
}

static void find_key(Launch *l) {
  const char *named = variable("MASKRCNN_JOB"), *text = named ? named : l->job;
  Sha256 s;
  sha256_begin(&s);
  sha256_add(&s, text, strlen(text));
  sha256_end(&s, l->key);
  l->secret = named;
}

// A port for a job, the same for all its ranks, below the range of ephemeral ports.
static int port_of_job(const Launch *l) {
  uint8_t mac[SHA256_BYTES];
  hmac_text(l->key, "port", mac);
  return 20000 + (mac[0] << 16 | mac[1] << 8 | mac[2]) % 10000;
}

// ---- the rendezvous -------------------------------------------------------------------------------------------------

// The first host of "node[01-04,7],x": node01. From every pair of brackets, the text before the first '-', ',' or ']'.
static void first_host(const char *list, char *host, size_t room) {
  size_t n = 0;
  while (*list && *list != ',' && n + 1 < room) {
    if (*list != '[') {
      host[n++] = *list++;
      continue;
    }
    for (list++; isalnum((unsigned char)*list) && n + 1 < room; list++) host[n++] = *list;
    list += strcspn(list, "]");
    if (*list) list++;
  }
  host[n] = '\0';
}

static bool meet_at(Launch *l, const char *host, int port) {
  Address a = {.port = port};
  char at[300];
  snprintf(a.host, sizeof a.host, "%s", host);
  address_text(&a, at, sizeof at);
  snprintf(l->meet, sizeof l->meet, "tcp:%s", at);
  return true;
}

// torchrun's agent may itself listen at MASTER_PORT: torch then connects to its store there instead of opening one (as
// TORCHELASTIC_USE_AGENT_STORE tells it). Then rank 0 uses the next port.
static bool master_port(int *port, const Launch *l, int by, Err *err) {
  const char *store = variable("TORCHELASTIC_USE_AGENT_STORE"), *text = variable("MASTER_PORT");
  const bool taken = by == TORCHRUN && store && !strcmp(store, "True");
  if (!number(port, "MASTER_PORT", 0, err)) return false;
  if (text)
    *port += taken;
  else if ((*l->job || l->secret) && by != TORCHRUN)
    *port = port_of_job(l);
  else
    return err_set(err, "MASTER_PORT is not set: set it to a free port of rank 0's host, or give --rendezvous");
  if (*port < 1 || *port > 65535)
    return err_set(err, "MASTER_PORT is %s: %d is not a valid port; use 1 to 65535", text, *port);
  return true;
}

static bool find_meeting(Launch *l, int by, Err *err) {
  const char *master = variable("MASTER_ADDR"), *nodes = variable("SLURM_STEP_NODELIST");
  if (!nodes) nodes = variable("SLURM_JOB_NODELIST");
  char host[256] = "";
  if (master)
    snprintf(host, sizeof host, "%s", master);
  else if (by == SLURM && nodes)
    first_host(nodes, host, sizeof host);
  else if ((by == OPEN_MPI || by == PMI) && l->local_world == l->world)
    snprintf(host, sizeof host, "127.0.0.1");
  if (!*host)
    return err_set(err,
                   "the rendezvous of the %d ranks is unknown: set MASTER_ADDR and MASTER_PORT to rank 0's host and a "
                   "free port there, or give --rendezvous",
                   l->world);
  int port;
  return master_port(&port, l, by, err) && meet_at(l, host, port);
}

// Checks the value of --rendezvous.
static bool check_rendezvous(const char *text, Err *err) {
  Address a;
  Err why;
  if (strlen(text) >= sizeof((Launch *)NULL)->meet) return err_set(err, "--rendezvous is too long for an address");
  if (!strncmp(text, "file:", 5) && text[5]) return true;
  if (strncmp(text, "tcp:", 4) != 0) return err_set(err, "--rendezvous %s: expected tcp:HOST:PORT or file:PATH", text);
  return address_parse(&a, text + 4, &why) || err_set(err, "--rendezvous: %s", why.msg);
}

bool launch_from_environment(Launch *l, const char *rendezvous, Err *err) {
  *l = (Launch){.world = 1, .local_world = 1, .listener = -1};
  if (rendezvous && !check_rendezvous(rendezvous, err)) return false;
  const int by = starter();
  if (by == STARTERS) {
    if (!not_half(err)) return false;
    return !rendezvous || err_set(err, "--rendezvous is given, but the rank of this process is unknown: start it with "
                                       "torchrun, srun or mpirun, or set RANK and WORLD_SIZE");
  }
  if (!who(l, &starters[by], err)) return false;
  if (l->world == 1) {
    *l = (Launch){.world = 1, .local_world = 1, .listener = -1};
    return true;
  }
  l->by = starters[by].by;
  find_job(l, by);
  find_key(l);
  if (!rendezvous) return find_meeting(l, by, err);
  snprintf(l->meet, sizeof l->meet, "%s", rendezvous);
  return true;
}
