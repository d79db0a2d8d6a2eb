// Catches free memory read wrongly from the kernel's files, above all inside containers with a limit.
#include <stdint.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/memory.h"
#include "test/harness/test.h"

enum { MIB = 1 << 20 };

// The file `path` under the folder of this machine, its folders made.
static void write_file(const char *machine, const char *path, const char *text) {
  char *whole = xasprintf("%s/%s/%s", test_tmp(), machine, path), *slash = strrchr(whole, '/');
  *slash = '\0';
  CHECK(dirs_make(whole, NULL));
  *slash = '/';
  FILE *f = fopen(whole, "w");
  CHECK(f && fputs(text, f) >= 0 && !fclose(f));
  free(whole);
}

static size_t left_of(const char *machine) {
  char root[512];
  snprintf(root, sizeof root, "%s/%s", test_tmp(), machine);
  return memory_left(root);
}

TEST(memory_of_an_unknown_machine) { EXPECT(left_of("unknown") == SIZE_MAX); }

TEST(memory_of_a_machine) {
  write_file("plain", "proc/meminfo", "MemTotal:       900000 kB\nMemFree: 5 kB\nMemAvailable:     1024 kB\n");
  EXPECT_INT(left_of("plain"), MIB);
  write_file("plain", "proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units\n"
             "Max data size             unlimited            unlimited            bytes\n"
             "Max address space         4194304              unlimited            bytes\n");
  EXPECT_INT(left_of("plain"), MIB); // what is used is not known
  write_file("plain", "proc/self/status", "VmPeak: 9000 kB\nVmSize:\t    3584 kB\nVmData:\t     100 kB\n");
  EXPECT_INT(left_of("plain"), MIB / 2);
  write_file("plain", "proc/self/limits", "Max data size             104400            unlimited            bytes\n");
  EXPECT_INT(left_of("plain"), 2000);
  write_file("plain", "proc/self/limits", "Max data size             100000            unlimited            bytes\n");
  EXPECT_INT(left_of("plain"), 0); // more is used than may be
}

// Every group on the way up counts; what the file cache holds can be had.
TEST(memory_of_groups_v2) {
  write_file("v2", "proc/meminfo", "MemAvailable:     1048576 kB\n");
  write_file("v2", "proc/self/cgroup", "0::/system/job\n");
  EXPECT_INT(left_of("v2"), 1024L * MIB);
  write_file("v2", "sys/fs/cgroup/system/job/memory.max", "max\n");
  write_file("v2", "sys/fs/cgroup/system/job/memory.current", "1000\n");
  EXPECT_INT(left_of("v2"), 1024L * MIB);
  write_file("v2", "sys/fs/cgroup/system/memory.max", "10000\n");
  write_file("v2", "sys/fs/cgroup/system/memory.current", "9000\n");
  EXPECT_INT(left_of("v2"), 1000);
  write_file("v2", "sys/fs/cgroup/system/memory.stat", "anon 5\ninactive_file 300\nactive_file 400\nfile 7000\n");
  EXPECT_INT(left_of("v2"), 1700);
  write_file("v2", "sys/fs/cgroup/system/job/memory.max", "1600\n");
  EXPECT_INT(left_of("v2"), 600);
  write_file("v2", "sys/fs/cgroup/memory.max", "500\n"); // a container sees its own group as the mount
  write_file("v2", "sys/fs/cgroup/memory.current", "100\n");
  EXPECT_INT(left_of("v2"), 400);
}

TEST(memory_of_groups_v1) {
  write_file("v1", "proc/meminfo", "MemAvailable:     1048576 kB\n");
  write_file("v1", "proc/self/cgroup", "9:name=systemd:/\n5:cpu,memory:/docker/a:b\n0::/\n");
  write_file("v1", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write_file("v1", "sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  EXPECT_INT(left_of("v1"), 1024L * MIB);
  write_file("v1", "sys/fs/cgroup/memory/docker/a:b/memory.limit_in_bytes", "8000\n");
  write_file("v1", "sys/fs/cgroup/memory/docker/a:b/memory.usage_in_bytes", "5000\n");
  write_file("v1", "sys/fs/cgroup/memory/docker/a:b/memory.stat",
             "inactive_file 1\nactive_file 2\ntotal_inactive_file 30\ntotal_active_file 40\n");
  EXPECT_INT(left_of("v1"), 3070);
}
