#include "comm/ranks.h"
#include <stdlib.h>
#include <string.h>

static bool is_cpu(const char *device) { return !strncmp(device, "cpu", 3); }

static bool too_few(int gpus, const GpuList *list, Err *err) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  return err_set(err, "--gpus %d: this machine has %d GPU%s%s%s; --gpus all uses all of them", gpus, list->count,
                 list->count == 1 ? "" : "s", visible ? " with CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
}

bool ranks_count(int gpus, const char *device, GpuList *list, int *ranks, Err *err) {
  Err why;
  char asked[16] = "all";
  *list = (GpuList){0};
  *ranks = gpus;
  if (gpus) snprintf(asked, sizeof asked, "%d", gpus);
  if (gpus == 1) return true;
  if (is_cpu(device))
    return gpus ||
           err_set(err, "--gpus all cannot be used with --device %s: give the number of processes, such as --gpus 2",
                   device);
  if (strchr(device, ':'))
    return err_set(err,
                   "--gpus %s always starts at cuda:0: leave out --device %s, and choose GPUs by CUDA_VISIBLE_DEVICES",
                   asked, device);
  if (!device_locate(list, &why))
    return err_set(err, "--gpus %s: %s; to run without a GPU, use --device cpu", asked, why.msg);
  if (gpus > list->count) return too_few(gpus, list, err);
  if (!gpus) *ranks = list->count;
  return true;
}

void ranks_locate(const char *device, GpuList *list) {
  *list = (GpuList){0};
  if (!is_cpu(device)) device_locate(list, NULL);
}

void ranks_device(char *name, size_t room, const char *device, const GpuList *list, int local_rank) {
  if (is_cpu(device))
    snprintf(name, room, "%s", device);
  else
    snprintf(name, room, "cuda:%d", list->count == 1 ? 0 : local_rank);
}
