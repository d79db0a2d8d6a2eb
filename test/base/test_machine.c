// Catches benchmark records that do not say on which machine and by which commit they were made.
#include "base/json.h"
#include "base/machine.h"
#include "nn/device.h"
#include "test/harness/test.h"

static const char *const members[] = {"date", "commit", "clean", "command", "machine"};
static const char *const host[] = {"cpu", "cores", "ram_gib", "os", "kernel", "compiler"};
static const char *const gpu[] = {"gpu",           "gpus",         "gpu_memory_gib", "sm_mhz",
                                  "sm_mhz_max",    "driver",       "memory_mhz",     "memory_mhz_max",
                                  "power_limit_w", "cuda_runtime", "cuda_toolkit"};

static int index_in(const char *const names[], int count, const char *name) {
  int i = 0;
  while (i < count && strcmp(names[i], name)) i++;
  return i;
}

// Reads a machine: each member once and no other; how many of the GPU's are not null.
static int read_machine(Json *j, bool seen_host[COUNT(host)]) {
  bool seen[COUNT(gpu)] = {0};
  int known = 0, all = 0;
  const char *key;
  for (bool open = json_begin_object(j); open && (key = json_key(j));) {
    int h = index_in(host, COUNT(host), key), g = index_in(gpu, COUNT(gpu), key);
    if (!EXPECT(h < COUNT(host) || g < COUNT(gpu))) printf("  %s\n", key);
    if (g < COUNT(gpu)) {
      EXPECT(!seen[g]);
      seen[g] = true;
      all++;
      known += json_peek(j) != JSON_NULL;
    } else if (h < COUNT(host)) {
      seen_host[h] = true;
    }
    json_skip(j);
  }
  EXPECT_INT(all, COUNT(gpu));
  return known;
}

static int read_origin(const char *text) {
  Json j;
  bool seen_host[COUNT(host)] = {0}, seen[COUNT(members)] = {0};
  int known = -1;
  const char *key;
  json_open(&j, "record", text, strlen(text));
  for (bool open = json_begin_object(&j); open && (key = json_key(&j));) {
    int m = index_in(members, COUNT(members), key);
    if (m < COUNT(members)) seen[m] = true;
    if (m < COUNT(members) && !strcmp(members[m], "machine")) // `key` is gone once another is read
      known = read_machine(&j, seen_host);
    else
      json_skip(&j);
  }
  EXPECT(json_done(&j));
  json_close(&j);
  for (int i = 0; i < COUNT(seen); i++) EXPECT(seen[i]);
  for (int i = 0; i < COUNT(seen_host); i++) EXPECT(seen_host[i]);
  return known;
}

TEST(origin_has_every_member) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "bench", "nothing");
  record_origin(&r, NULL);
  EXPECT_INT(read_origin(record_end(&r)), 0);
  EXPECT(strstr(r.text, "\"gpu\":null"));
  char commit[256];
  snprintf(commit, sizeof commit, "\"commit\":\"%s\",\"clean\":%s,", build_commit,
           commit_clean(build_commit) ? "true" : "false");
  EXPECT(strstr(r.text, commit));
  int year, month, day, hour, minute, second;
  const char *date = strstr(r.text, "\"date\":\"");
  EXPECT(date &&
         sscanf(date, "\"date\":\"%4d-%2d-%2dT%2d:%2d:%2dZ\"", &year, &month, &day, &hour, &minute, &second) == 6);

  record_begin(&r);
  record_origin(&r, &(GpuFacts){.name = "G",
                                .driver = "580",
                                .runtime = "13.0",
                                .toolkit = "13.0.88",
                                .count = 2,
                                .memory_gib = 140.04,
                                .sm_mhz = 1980,
                                .sm_mhz_max = 1981,
                                .memory_mhz = 3201,
                                .memory_mhz_max = 3202,
                                .power_limit_w = 700});
  EXPECT_INT(read_origin(record_end(&r)), COUNT(gpu));
  EXPECT(strstr(r.text, "\"gpu\":\"G\",\"gpus\":2,\"gpu_memory_gib\":140,\"sm_mhz\":1980,\"sm_mhz_max\":1981,"
                        "\"memory_mhz\":3201,\"memory_mhz_max\":3202,\"power_limit_w\":700,\"driver\":\"580\","
                        "\"cuda_runtime\":\"13.0\",\"cuda_toolkit\":\"13.0.88\"}"));

  record_begin(&r); // without NVML: what CUDA says is there
  record_origin(&r, &(GpuFacts){.name = "G", .runtime = "13.0", .toolkit = "13.0.88", .count = 1, .memory_gib = 140});
  EXPECT_INT(read_origin(record_end(&r)), 5);
  record_free(&r);
}

TEST(origin_of_the_cpu_names_no_gpu) {
  Err err;
  Device *dev = device_open("cpu", &err);
  if (!EXPECT(dev != NULL)) return;
  Record r = {0};
  record_begin(&r);
  device_origin(dev, &r);
  EXPECT_INT(read_origin(record_end(&r)), 0);
  record_free(&r);
  device_close(dev);
}

TEST(commit_that_names_no_tree_is_flagged) {
  EXPECT(commit_clean("d1ce8a1") && !commit_complaint("d1ce8a1"));
  EXPECT(commit_clean("v1.0-3-gd1ce8a1"));
  EXPECT(!commit_clean("d1ce8a1-dirty") && strstr(commit_complaint("d1ce8a1-dirty"), "commit and build again"));
  EXPECT(!commit_clean("unknown") && strstr(commit_complaint("unknown"), "git checkout"));
  EXPECT(!commit_clean("") && !strchr(commit_complaint(""), '\n'));
}
