// Cores: divides the CPUs of a machine among the ranks that run on it, near their GPUs if the system says which are
// near.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// A set of logical CPUs, by their numbers in the system.
enum { MAX_CPUS = 8192 };
typedef struct CpuSet {
  uint64_t word[MAX_CPUS / 64];
} CpuSet;

bool cpus_has(const CpuSet *s, int cpu);
int cpus_count(const CpuSet *s);
// "0-3,8-11", as the system writes sets. False, with an empty set, for any other text.
bool cpus_parse(CpuSet *s, const char *text);
void cpus_print(const CpuSet *s, char *text, int room);

// Computes one rank's share of `allowed`. Ranks whose GPUs are near the same CPUs divide these evenly, in one piece
// each; CPUs near no GPU go to the group with the fewest CPUs per rank, in the same socket if possible. If the system
// does not say for every GPU, or the sets overlap, all of `allowed` is divided evenly. Hardware threads of a core stay
// together as long as there is a core for every rank. Every rank gets at least one CPU; ranks share CPUs if there are
// too few. sys: "/sys", or a copy of it. bus_id: [ranks] PCI bus ids of the GPUs, such as "0000:1b:00.0"; NULL or "":
// unknown.
void cores_share(CpuSet *share, const char *sys, const CpuSet *allowed, const char *const *bus_id, int ranks, int rank);

// Restricts this process, and all threads that it starts later, to this rank's share of the CPUs that it may use;
// OpenMP's threads must not have started. Does nothing for a single rank. All ranks of this machine must be allowed the
// same CPUs: srun and mpirun divide them themselves. Returns the number of CPUs of the rank.
int cores_take(const char *const *bus_id, int ranks, int rank);
