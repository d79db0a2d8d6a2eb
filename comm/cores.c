#define _GNU_SOURCE // sched_getaffinity
#include "comm/cores.h"
#include <ctype.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// ---- sets -----------------------------------------------------------------------------------------------------------

bool cpus_has(const CpuSet *s, int cpu) { return s->word[cpu / 64] >> cpu % 64 & 1; }

static void cpus_add(CpuSet *s, int cpu) { s->word[cpu / 64] |= (uint64_t)1 << cpu % 64; }

int cpus_count(const CpuSet *s) {
  int n = 0;
  for (int i = 0; i < COUNT(s->word); i++) n += __builtin_popcountll(s->word[i]);
  return n;
}

static bool cpus_same(const CpuSet *a, const CpuSet *b) { return !memcmp(a, b, sizeof *a); }

static CpuSet cpus_common(const CpuSet *a, const CpuSet *b) {
  CpuSet common;
  for (int i = 0; i < COUNT(common.word); i++) common.word[i] = a->word[i] & b->word[i];
  return common;
}

static void cpus_join(CpuSet *s, const CpuSet *more) {
  for (int i = 0; i < COUNT(s->word); i++) s->word[i] |= more->word[i];
}

static void cpus_remove(CpuSet *s, const CpuSet *less) {
  for (int i = 0; i < COUNT(s->word); i++) s->word[i] &= ~less->word[i];
}

// Parses a CPU's number at *text, and advances *text past it; -1: none.
static int parse_cpu(const char **text) {
  char *end;
  if (!isdigit((unsigned char)**text)) return -1;
  const long cpu = strtol(*text, &end, 10);
  *text = end;
  return cpu < MAX_CPUS ? (int)cpu : -1;
}

static bool parse_ranges(CpuSet *s, const char *text) {
  for (;;) {
    const int first = parse_cpu(&text);
    if (first < 0) return false;
    int last = first;
    if (*text == '-') {
      text++;
      last = parse_cpu(&text);
    }
    if (last < first) return false;
    for (int cpu = first; cpu <= last; cpu++) cpus_add(s, cpu);
    if (*text != ',') return !text[strspn(text, "\n")];
    text++;
  }
}

bool cpus_parse(CpuSet *s, const char *text) {
  *s = (CpuSet){0};
  if (parse_ranges(s, text)) return true;
  *s = (CpuSet){0};
  return false;
}

void cpus_print(const CpuSet *s, char *text, int room) {
  int n = 0;
  *text = '\0';
  for (int cpu = 0; cpu < MAX_CPUS && n < room; cpu++) {
    if (!cpus_has(s, cpu)) continue;
    int last = cpu;
    while (last + 1 < MAX_CPUS && cpus_has(s, last + 1)) last++;
    n += snprintf(text + n, (size_t)(room - n), last > cpu ? "%s%d-%d" : "%s%d", n ? "," : "", cpu, last);
    cpu = last;
  }
}

// ---- topology from sysfs --------------------------------------------------------------------------------------------

static bool read_line(const char *sys, const char *folder, const char *file, char *text, int room) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s/%s", sys, folder, file);
  FILE *f = fopen(path, "r");
  if (!f) return false;
  const bool ok = fgets(text, room, f);
  fclose(f);
  return ok;
}

static bool read_set(CpuSet *s, const char *sys, const char *folder, const char *file) {
  char text[4096];
  return read_line(sys, folder, file, text, sizeof text) && cpus_parse(s, text);
}

// The CPUs near a GPU. False if the system does not say.
static bool near_gpu(CpuSet *s, const char *sys, const char *bus_id) {
  char folder[128];
  if (!bus_id || !*bus_id) return false;
  snprintf(folder, sizeof folder, "bus/pci/devices/%.64s", bus_id);
  // CUDA has upper-case digits where sysfs has lower-case ones.
  for (char *p = folder; *p; p++) *p = (char)tolower((unsigned char)*p);
  return read_set(s, sys, folder, "local_cpulist");
}

static void topology_of(int cpu, char *folder, size_t room) {
  snprintf(folder, room, "devices/system/cpu/cpu%d/topology", cpu);
}

// The hardware threads of a CPU's core that are in a set.
static CpuSet core_of(const char *sys, int cpu, const CpuSet *among) {
  char folder[128];
  CpuSet core;
  topology_of(cpu, folder, sizeof folder);
  if (!read_set(&core, sys, folder, "thread_siblings_list")) core = (CpuSet){0};
  core = cpus_common(&core, among);
  cpus_add(&core, cpu);
  return core;
}

static int socket_of(const char *sys, int cpu) {
  char folder[128], text[32];
  topology_of(cpu, folder, sizeof folder);
  return read_line(sys, folder, "physical_package_id", text, sizeof text) ? atoi(text) : -1;
}

static int first_of(const CpuSet *s) {
  for (int cpu = 0; cpu < MAX_CPUS; cpu++)
    if (cpus_has(s, cpu)) return cpu;
  return -1;
}

// ---- groups of CPUs that ranks divide -------------------------------------------------------------------------------

typedef struct CoreGroup {
  CpuSet cpus;
  int ranks, socket;
} CoreGroup;

typedef struct CoreGroups {
  CoreGroup *group; // [at most ranks]
  int n, *of_rank;  // [ranks] the group of each rank
} CoreGroups;

static void one_group(CoreGroups *p, const CpuSet *allowed, int ranks) {
  p->n = 1;
  p->group[0] = (CoreGroup){.cpus = *allowed, .ranks = ranks};
  for (int r = 0; r < ranks; r++) p->of_rank[r] = 0;
}

// The group with these CPUs, created if necessary; -1 if they overlap with another group's.
static int group_with(CoreGroups *p, const CpuSet *cpus) {
  for (int i = 0; i < p->n; i++) {
    if (cpus_same(&p->group[i].cpus, cpus)) return i;
    const CpuSet common = cpus_common(&p->group[i].cpus, cpus);
    if (cpus_count(&common) > 0) return -1;
  }
  p->group[p->n] = (CoreGroup){.cpus = *cpus};
  return p->n++;
}

// Groups CPUs by the ranks' GPUs that they are near; false if that does not partition the CPUs.
static bool groups_near(CoreGroups *p, const char *sys, const CpuSet *allowed, const char *const *bus_id, int ranks) {
  for (int r = 0; r < ranks; r++) {
    CpuSet near;
    if (!bus_id || !near_gpu(&near, sys, bus_id[r])) return false;
    near = cpus_common(&near, allowed);
    p->of_rank[r] = cpus_count(&near) > 0 ? group_with(p, &near) : -1;
    if (p->of_rank[r] < 0) return false;
    p->group[p->of_rank[r]].ranks++;
  }
  return true;
}

// The group that needs a core most: with the fewest CPUs per rank, in the same socket if possible.
static CoreGroup *neediest(CoreGroups *p, int socket) {
  CoreGroup *best = NULL;
  for (int here = 1; here >= 0 && !best; here--)
    for (int i = 0; i < p->n; i++) {
      CoreGroup *group = &p->group[i];
      if (here && group->socket != socket) continue;
      if (!best || cpus_count(&group->cpus) * best->ranks < cpus_count(&best->cpus) * group->ranks) best = group;
    }
  return best;
}

static void give_rest(CoreGroups *p, const char *sys, const CpuSet *allowed) {
  CpuSet rest = *allowed;
  for (int i = 0; i < p->n; i++) cpus_remove(&rest, &p->group[i].cpus);
  for (int i = 0; i < p->n; i++) p->group[i].socket = socket_of(sys, first_of(&p->group[i].cpus));
  for (int cpu; (cpu = first_of(&rest)) >= 0;) {
    const CpuSet core = core_of(sys, cpu, &rest);
    cpus_join(&neediest(p, socket_of(sys, cpu))->cpus, &core);
    cpus_remove(&rest, &core);
  }
}

// ---- shares of a group ----------------------------------------------------------------------------------------------

// The k-th of n parts of a set: consecutive cores, or hardware threads if there are fewer cores than parts.
static void part_of(CpuSet *part, const char *sys, const CpuSet *cpus, int n, int k) {
  const int threads = cpus_count(cpus);
  CpuSet *core = xmalloc((size_t)MAX(threads, 1) * sizeof *core), rest = *cpus;
  int units = 0;
  for (int cpu; (cpu = first_of(&rest)) >= 0; cpus_remove(&rest, &core[units++]))
    core[units] = core_of(sys, cpu, &rest);
  if (units < n && units < threads) {
    rest = *cpus;
    for (units = 0; units < threads; cpus_remove(&rest, &core[units++])) {
      core[units] = (CpuSet){0};
      cpus_add(&core[units], first_of(&rest));
    }
  }
  *part = (CpuSet){0};
  const int begin = (int)((int64_t)k * units / n), end = (int)((int64_t)(k + 1) * units / n);
  for (int i = begin; i < MAX(end, begin + 1) && i < units; i++) cpus_join(part, &core[i]);
  free(core);
}

void cores_share(CpuSet *share, const char *sys, const CpuSet *allowed, const char *const *bus_id, int ranks,
                 int rank) {
  CHECK(rank >= 0 && rank < ranks);
  CoreGroups p = {.group = xcalloc((size_t)ranks, sizeof *p.group),
                  .of_rank = xcalloc((size_t)ranks, sizeof *p.of_rank)};
  if (groups_near(&p, sys, allowed, bus_id, ranks))
    give_rest(&p, sys, allowed);
  else
    one_group(&p, allowed, ranks);
  const int mine = p.of_rank[rank];
  int before = 0; // lower ranks that share the group with this one
  for (int r = 0; r < rank; r++) before += p.of_rank[r] == mine;
  part_of(share, sys, &p.group[mine].cpus, p.group[mine].ranks, before);
  free(p.group);
  free(p.of_rank);
}

int cores_take(const char *const *bus_id, int ranks, int rank) {
  CpuSet allowed = {0}, share;
  // As many as the system shows.
  if (sched_getaffinity(0, sizeof allowed, (cpu_set_t *)&allowed)) return omp_get_num_procs();
  if (ranks <= 1) return cpus_count(&allowed);
  cores_share(&share, "/sys", &allowed, bus_id, ranks, rank);
  if (sched_setaffinity(0, sizeof share, (const cpu_set_t *)&share)) share = allowed;
  const int cpus = cpus_count(&share);
  // OpenMP counted the cores when it was loaded, before they were divided.
  if (!getenv("OMP_NUM_THREADS")) omp_set_num_threads(cpus);
  return cpus;
}
