// Cores: this machine's, shared out among the ranks that run on it, near their GPUs where the machine tells.
#pragma once
#include <stdbool.h>
#include <stdint.h>

// A set of logical CPUs by the system's numbers.
enum { MAX_CPUS = 8192 };
typedef struct CpuSet {
  uint64_t word[MAX_CPUS / 64];
} CpuSet;

bool cpus_has(const CpuSet *s, int cpu);
int cpus_count(const CpuSet *s);
// "0-3,8-11", as the system writes sets. False, with an empty set, for any other text.
bool cpus_parse(CpuSet *s, const char *text);
void cpus_print(const CpuSet *s, char *text, int room);

// One rank's share of `allowed`. Ranks whose GPUs have the same CPUs near them divide those evenly, in one piece each;
// CPUs near no GPU go where cores are fewest for a rank, of the same socket first. Where the machine does not tell for
// every GPU, or tells of sets that overlap, all of `allowed` is divided so. Hardware threads of a core stay together as
// long as there is a core for every rank. Every rank gets at least one CPU, which ranks share where there are too few.
// sys: "/sys", or a tree like it. bus_id: [ranks] PCI bus ids of the GPUs, as "0000:1b:00.0"; NULL or "": not known.
void cores_share(CpuSet *share, const char *sys, const CpuSet *allowed, const char *const *bus_id, int ranks, int rank);

// Takes this rank's share of the CPUs that the process may use: for it and every thread that it starts from here on,
// those of OpenMP included, which must not have begun. Alone, nothing changes. Only where all ranks of this machine may
// use the same CPUs: srun and mpirun divide them themselves. Returns how many CPUs the rank has.
int cores_take(const char *const *bus_id, int ranks, int rank);
