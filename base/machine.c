// What Linux tells about the machine, from /proc, /sys and the C library.
#include "base/machine.h"
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "base/basics.h"

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

// ---- the commit ---------------------------------------------------------------------------------------------------

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && !strcmp(text + n - m, end);
}

const char *commit_complaint(const char *commit) {
  if (!*commit || !strcmp(commit, "unknown"))
    return "the commit of this build is unknown, so this record cannot go into results/: build in a git checkout";
  if (ends_with(commit, "-dirty"))
    return "this build has uncommitted changes, so this record cannot go into results/: commit and build again";
  return NULL;
}

bool commit_clean(const char *commit) { return !commit_complaint(commit); }

void commit_warn(void) {
  const char *complaint = commit_complaint(build_commit);
  if (complaint) fprintf(stderr, "warning: commit %s: %s\n", build_commit, complaint);
}

// ---- files of the kernel --------------------------------------------------------------------------------------------

// The first bytes of a file that has no size, such as those in /proc; NUL-terminated. How many, 0 where it is missing.
static size_t read_start(const char *path, char *text, size_t room) {
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(text, 1, room - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  return n;
}

// The value of the first line "key<separators>value", without quotes; "" where there is none.
static void find_value(const char *path, const char *key, const char *separators, char *value, size_t room) {
  char text[8192];
  read_start(path, text, sizeof text);
  *value = 0;
  for (const char *line = text; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, key, strlen(key)) || !strchr(separators, line[strlen(key)])) continue;
    line += strlen(key);
    line += strspn(line, separators);
    snprintf(value, room, "%.*s", (int)strcspn(line, "\"\n"), line);
    return;
  }
}

// Cores that the process may keep busy: its affinity (as OpenMP reads it), or less where its control group has a share.
static int usable_cores(void) {
  char text[64];
  double share, period;
  int cores = omp_get_num_procs();
  read_start("/sys/fs/cgroup/cpu.max", text, sizeof text); // "max 100000", or microseconds of each period
  if (sscanf(text, "%lf %lf", &share, &period) == 2 && period > 0)
    cores = MIN(cores, MAX(1, (int)ceil(share / period)));
  return cores;
}

// ---- the record
// -------------------------------------------------------------------------------------------------------

static void record_date(Record *r) {
  time_t now = time(NULL);
  struct tm utc;
  char text[32] = "";
  if (gmtime_r(&now, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  record_str(r, "date", *text ? text : NULL);
}

// Arguments with a blank in them stand in quotes.
static void record_command(Record *r) {
  char bytes[4096], text[2 * sizeof bytes];
  size_t n = read_start("/proc/self/cmdline", bytes, sizeof bytes), used = 0;
  for (size_t i = 0; i < n && used < sizeof text - 4; i += strlen(bytes + i) + 1) {
    const char *quote = strpbrk(bytes + i, " \t\n") ? "'" : "";
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s%s", i ? " " : "", quote, bytes + i, quote);
  }
  record_str(r, "command", n ? text : NULL);
}

static void record_text(Record *r, const char *key, const char *value) { record_str(r, key, *value ? value : NULL); }
static void record_positive(Record *r, const char *key, double value) { record_num(r, key, value > 0 ? value : NAN); }
static double rounded(double value) { return round(10 * value) / 10; }

static void record_host(Record *r) {
  char cpu[256], os[256], kernel[512] = "";
  struct utsname name;
  find_value("/proc/cpuinfo", "model name", " \t:", cpu, sizeof cpu);
  find_value("/etc/os-release", "PRETTY_NAME", "=\"", os, sizeof os);
  if (!uname(&name)) snprintf(kernel, sizeof kernel, "%s %s %s", name.sysname, name.release, name.machine);
  record_text(r, "cpu", cpu);
  record_int(r, "cores", usable_cores());
  record_num(r, "ram_gib", rounded((double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30)));
  record_text(r, "os", os);
  record_text(r, "kernel", kernel);
  record_str(r, "compiler", compiler);
}

static void record_gpu(Record *r, const GpuFacts *gpu) {
  record_text(r, "gpu", gpu->name);
  record_positive(r, "gpus", gpu->count);
  record_positive(r, "gpu_memory_gib", rounded(gpu->memory_gib));
  record_positive(r, "sm_mhz", gpu->sm_mhz);
  record_positive(r, "sm_mhz_max", gpu->sm_mhz_max);
  record_positive(r, "memory_mhz", gpu->memory_mhz);
  record_positive(r, "memory_mhz_max", gpu->memory_mhz_max);
  record_positive(r, "power_limit_w", gpu->power_limit_w);
  record_text(r, "driver", gpu->driver);
  record_text(r, "cuda_runtime", gpu->runtime);
  record_text(r, "cuda_toolkit", gpu->toolkit);
}

void record_origin(Record *r, const GpuFacts *gpu) {
  Record machine = {0};
  record_begin(&machine);
  record_host(&machine);
  record_gpu(&machine, gpu ? gpu : &(GpuFacts){0});
  record_date(r);
  record_str(r, "commit", build_commit);
  record_bool(r, "clean", commit_clean(build_commit));
  record_command(r);
  record_raw(r, "machine", record_end(&machine));
  record_free(&machine);
}
