#include "comm/ranks.h"
#include <stdlib.h>
#include <string.h>

static bool is_cpu(const char *device) { return !strncmp(device, "cpu", 3); }

static bool too_few(int gpus, const GpuList *list, Err *err) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  return err_set(err, "--gpus %d: this machine has %d GPU%s%s%s; --gpus all takes what there is", gpus, list->count,
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
    return gpus || err_set(err, "--gpus all counts GPUs: with --device %s say how many processes, as --gpus 2", device);
  if (strchr(device, ':'))
    return err_set(err, "--gpus %s takes GPUs from cuda:0 on: leave out --device %s; CUDA_VISIBLE_DEVICES chooses some",
                   asked, device);
  if (!device_locate(list, &why)) return err_set(err, "--gpus %s: %s; --device cpu needs no GPU", asked, why.msg);
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
