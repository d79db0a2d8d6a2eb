// What a GPU knows about itself: from CUDA, and its clocks, its power limit and the energy that it has drawn from the
// driver's management library (NVML), which is opened at run time, read, and asked to change nothing. Without it these
// figures stay unknown.
#include <dlfcn.h>
#include <stdio.h>
#include "base/alloc.h"
#include "cuda/common.cuh"
extern "C" {
#include "base/machine.h"
#include "nn/timing.h"
}

// As nvml.h has them, which a toolkit need not bring.
typedef struct nvmlDevice_st *NvmlDevice;
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };

typedef struct Nvml {
  void *library; // NULL: not there
  int (*init)();
  int (*shutdown)();
  int (*by_bus_id)(const char *id, NvmlDevice *device);
  int (*clock)(NvmlDevice device, int type, unsigned *mhz);
  int (*max_clock)(NvmlDevice device, int type, unsigned *mhz);
  int (*power_limit)(NvmlDevice device, unsigned *milliwatts);
  int (*driver_version)(char *text, unsigned room);
  int (*energy)(NvmlDevice device, unsigned long long *millijoules); // since the driver was loaded
} Nvml;

static Nvml nvml_open() {
  Nvml n = {};
  n.library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!n.library) return n;
  const struct {
    void **function;
    const char *name;
  } table[] = {
      {(void **)&n.init, "nvmlInit_v2"},
      {(void **)&n.shutdown, "nvmlShutdown"},
      {(void **)&n.by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2"},
      {(void **)&n.clock, "nvmlDeviceGetClockInfo"},
      {(void **)&n.max_clock, "nvmlDeviceGetMaxClockInfo"},
      {(void **)&n.power_limit, "nvmlDeviceGetEnforcedPowerLimit"},
      {(void **)&n.driver_version, "nvmlSystemGetDriverVersion"},
      {(void **)&n.energy, "nvmlDeviceGetTotalEnergyConsumption"},
  };
  bool complete = true;
  for (const auto &row : table) complete &= (*row.function = dlsym(n.library, row.name)) != NULL;
  if (complete && n.init() == 0) return n;
  dlclose(n.library);
  n.library = NULL;
  return n;
}

static void nvml_close(Nvml *n) {
  n->shutdown();
  dlclose(n->library);
}

static int mhz_of(int (*ask)(NvmlDevice, int, unsigned *), NvmlDevice device, int type) {
  unsigned mhz = 0;
  return ask(device, type, &mhz) == 0 ? (int)mhz : 0;
}

// By the bus, for NVML counts GPUs that CUDA_VISIBLE_DEVICES hides.
static void describe_by_nvml(const char *bus_id, GpuFacts *facts) {
  Nvml n = nvml_open();
  if (!n.library) return;
  NvmlDevice device;
  unsigned milliwatts = 0;
  if (n.driver_version(facts->driver, sizeof facts->driver) != 0) facts->driver[0] = 0;
  if (n.by_bus_id(bus_id, &device) == 0) {
    facts->sm_mhz = mhz_of(n.clock, device, NVML_CLOCK_SM);
    facts->sm_mhz_max = mhz_of(n.max_clock, device, NVML_CLOCK_SM);
    facts->memory_mhz = mhz_of(n.clock, device, NVML_CLOCK_MEM);
    facts->memory_mhz_max = mhz_of(n.max_clock, device, NVML_CLOCK_MEM);
    if (n.power_limit(device, &milliwatts) == 0) facts->power_limit_w = milliwatts / 1e3;
  }
  nvml_close(&n);
}

extern "C" void cuda_describe(Device *dev, GpuFacts *facts) {
  cudaDeviceProp properties;
  char bus_id[32];
  int runtime;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, dev->index));
  CUDA_CHECK(cudaGetDeviceCount(&facts->count));
  CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, dev->index));
  snprintf(facts->name, sizeof facts->name, "%.90s", properties.name);
  facts->memory_gib = (double)properties.totalGlobalMem / (1 << 30);
  snprintf(facts->runtime, sizeof facts->runtime, "%d.%d", runtime / 1000, runtime % 1000 / 10);
  snprintf(facts->toolkit, sizeof facts->toolkit, "%d.%d.%d", __CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__,
           __CUDACC_VER_BUILD__);
  describe_by_nvml(bus_id, facts);
}

// ---- the meter ----------------------------------------------------------------------------------------------------

typedef struct Meter {
  Nvml nvml;
  NvmlDevice device;
} Meter;

extern "C" bool cuda_meter_read(void *meter, MeterReading *r) {
  const Meter *m = (const Meter *)meter;
  unsigned long long millijoules;
  if (m->nvml.energy(m->device, &millijoules) != 0) return false;
  *r = {millijoules / 1e3, mhz_of(m->nvml.clock, m->device, NVML_CLOCK_SM)};
  return true;
}

extern "C" void cuda_meter_close(void *meter) {
  Meter *m = (Meter *)meter;
  nvml_close(&m->nvml);
  free(m);
}

// NULL as well where the GPU, older than Volta, keeps no count.
extern "C" void *cuda_meter_open(Device *dev) {
  char bus_id[32];
  MeterReading first;
  Meter m = {nvml_open()};
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, dev->index));
  if (!m.nvml.library) return NULL;
  if (m.nvml.by_bus_id(bus_id, &m.device) != 0 || !cuda_meter_read(&m, &first)) {
    nvml_close(&m.nvml);
    return NULL;
  }
  Meter *meter = (Meter *)xmalloc(sizeof *meter);
  *meter = m;
  return meter;
}
