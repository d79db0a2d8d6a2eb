// The devices that a handle can be opened on, and the memory that it would take there.
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/memory.h"
#include "lib/handle.h"
#include "lib/options.h"
#include "lib/thread.h"

// ---- the list -------------------------------------------------------------------------------------------------------

typedef struct DeviceList {
  maskrcnn_devices all; // first, so that its address is the list's
  const maskrcnn_device *pointer[MAX_LOCATED + 1];
  maskrcnn_device device[MAX_LOCATED + 1];
  char name[MAX_LOCATED + 1][16], description[MAX_LOCATED + 1][128];
  char why[1024];
} DeviceList;

static void add_gpus(DeviceList *l) {
  Err err;
  GpuList gpus;
  if (!device_locate_here(&gpus, &err)) {
    snprintf(l->why, sizeof l->why, "%.1000s", err.msg);
    return;
  }
  for (int i = 0; i < gpus.count; i++, l->all.n++) {
    snprintf(l->name[i], sizeof l->name[i], "cuda:%d", i);
    snprintf(l->description[i], sizeof l->description[i], "%s, %.0f GiB", gpus.name[i],
             (double)gpus.bytes[i] / (1 << 30));
    l->device[i].total_bytes = gpus.bytes[i];
  }
}

static void add_cpu(DeviceList *l) {
  Err err;
  Device *cpu = device_open("cpu", &err);
  const int i = l->all.n++;
  const size_t left = memory_left("");
  snprintf(l->name[i], sizeof l->name[i], "cpu");
  snprintf(l->description[i], sizeof l->description[i], "%.127s", cpu ? cpu->description : err.msg);
  l->device[i].total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  l->device[i].free_bytes = left == SIZE_MAX ? 0 : left;
  device_close(cpu);
}

static void list_devices(void *context) {
  DeviceList *l = context;
  add_gpus(l);
  add_cpu(l);
  for (int i = 0; i < l->all.n; i++) {
    l->device[i].name = l->name[i];
    l->device[i].description = l->description[i];
    l->pointer[i] = &l->device[i];
  }
}

static maskrcnn_status list(maskrcnn_devices **devices, maskrcnn_error *error) {
  Err err;
  if (!devices) return fail(error, MASKRCNN_BAD_ARGUMENT, "devices is NULL: it must point to a list of devices");
  *devices = NULL;
  DeviceList *l = calloc(1, sizeof *l);
  if (!l) return fail(error, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate a list of devices");
  l->all = (maskrcnn_devices){.devices = l->pointer, .why_no_gpu = l->why};
  if (!thread_aside(list_devices, l, &err)) {
    free(l);
    return fail(error, MASKRCNN_BAD_DEVICE, "%s", err.msg);
  }
  *devices = &l->all;
  return MASKRCNN_OK;
}

maskrcnn_status maskrcnn_list_devices(maskrcnn_devices **devices, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, list(devices, error));
}

void maskrcnn_devices_free(maskrcnn_devices *devices) { free(devices); }

// ---- memory ---------------------------------------------------------------------------------------------------------

typedef struct Planned {
  maskrcnn_options options;
  maskrcnn_memory memory;
  maskrcnn_status status;
  Err err;
} Planned;

static void make_plan(void *context) {
  Planned *p = context;
  Opened o;
  if (p->options.threads) omp_set_num_threads(p->options.threads); // workspace is per thread
  const bool ok = opened_open(&o, &p->options, true, NULL, &p->status, &p->err);
  if (ok) p->status = MASKRCNN_OK;
  if (o.engine.dev) {
    const size_t left = memory_left("");
    opened_memory(&o, &p->memory.device_bytes, &p->memory.host_bytes);
    p->memory.device_free = o.engine.dev->gpu ? device_available(o.engine.dev) : 0;
    p->memory.host_free = left == SIZE_MAX ? 0 : left;
  }
  opened_close(&o);
}

static maskrcnn_status plan(const maskrcnn_options *options, maskrcnn_memory *memory, maskrcnn_error *error) {
  Err err;
  Planned p = {.status = MASKRCNN_BAD_DEVICE};
  if (!memory || memory->size < offsetof(maskrcnn_memory, host_free) + sizeof memory->host_free ||
      memory->size > sizeof *memory)
    return fail(error, MASKRCNN_BAD_ARGUMENT, "memory is %s: set memory.size = sizeof(maskrcnn_memory)",
                memory ? "of a size that this library does not know" : "NULL");
  if (!options_take(&p.options, options, &err)) return fail(error, MASKRCNN_BAD_ARGUMENT, "%s", err.msg);
  if (!thread_aside(make_plan, &p, &err)) return fail(error, p.status, "%s", err.msg);
  p.memory.size = memory->size;
  memcpy(memory, &p.memory, memory->size);
  return p.status ? fail(error, p.status, "%s", p.err.msg) : MASKRCNN_OK;
}

maskrcnn_status maskrcnn_plan(const maskrcnn_options *options, maskrcnn_memory *memory, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, plan(options, memory, error));
}
