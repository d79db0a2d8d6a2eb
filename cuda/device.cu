// The GPU as a device: memory, the stream, and errors in words that help.
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "cuda/common.cuh"
#include "cuda/conv/hopper.cuh"
#include "cuda/conv/ladder.h"
extern "C" {
#include "nn/fault.h"
#include "nn/timing.h"
}

void cuda_failed(cudaError_t error, const char *expression, const char *file, int line) {
  fault_die(cudaGetErrorName(error), cudaGetErrorString(error), expression, file, line);
}

extern "C" void cuda_describe(Device *dev, GpuFacts *facts); // machine.cu

// A stream for copies that overlap with computation: of the next step's inputs (dev->stage), or of a snapshot
// (dev->save).
struct CopyQueue {
  cudaStream_t stream;
  cudaEvent_t staged; // all copies so far have arrived
  cudaEvent_t read;   // the computation is done with where they go to, or with what they copy
};

static CopyQueue *stage_open() {
  CopyQueue *s = (CopyQueue *)xcalloc(1, sizeof *s);
  CUDA_CHECK(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreateWithFlags(&s->staged, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&s->read, cudaEventDisableTiming));
  return s;
}

static void stage_close(CopyQueue *s) {
  CUDA_CHECK(cudaStreamDestroy(s->stream));
  CUDA_CHECK(cudaEventDestroy(s->staged));
  CUDA_CHECK(cudaEventDestroy(s->read));
  free(s);
}

// Events with which the main stream and the side stream wait for each other: each has so far finished …
struct Turns {
  cudaEvent_t fork; // … ops,
  cudaEvent_t join; // … the side stream's work
};

// With the highest priority: its threadblocks, which other GPUs wait for, take the next multiprocessors that are free.
static void side_stream_open(Device *dev) {
  int lowest, highest;
  cudaStream_t side_stream;
  Turns *t = (Turns *)xcalloc(1, sizeof *t);
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  CUDA_CHECK(cudaStreamCreateWithPriority(&side_stream, cudaStreamNonBlocking, highest));
  CUDA_CHECK(cudaEventCreateWithFlags(&t->fork, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&t->join, cudaEventDisableTiming));
  dev->side_stream = dev->queue_stream[QUEUE_SIDE] = side_stream;
  dev->turns = t;
}

// Threadblocks of small kernels, for which others wait, take the next multiprocessors that are free, and those of
// parameters' gradients what no other kernel takes.
static void queues_open(Device *dev) {
  int lowest, highest;
  CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest)); // the highest is the least
  const int priority[QUEUE_SIDE] = {MAX(lowest - 1, highest), highest, lowest};
  for (int i = 0; i < QUEUE_SIDE; i++) {
    cudaStream_t stream;
    CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority[i]));
    dev->queue_stream[i] = stream;
  }
  dev->stream = dev->queue_stream[QUEUE_OPS];
}

static cudaStream_t side_stream_of(const Device *dev) { return (cudaStream_t)dev->side_stream; }
static Turns *turns_of(const Device *dev) { return (Turns *)dev->turns; }

static void side_stream_close(Device *dev) {
  CUDA_CHECK(cudaStreamDestroy(side_stream_of(dev)));
  CUDA_CHECK(cudaEventDestroy(turns_of(dev)->fork));
  CUDA_CHECK(cudaEventDestroy(turns_of(dev)->join));
  free(dev->turns);
}

static CopyQueue *stage_of(const Device *dev) { return (CopyQueue *)dev->stage; }
static CopyQueue *save_of(const Device *dev) { return (CopyQueue *)dev->save; }

// ---- opening -------------------------------------------------------------------------------------------------------

// Both are in the code of every architecture and in the PTX of a build, and say which of them was loaded.
static __global__ void probe_kernel() {}
static __constant__ bool code_has_wgmma = HAS_WGMMA;

// Has the driver load code for this GPU: what nvcc compiled for it or an older one of its generation, else PTX, which
// the driver compiles (`from_ptx`). The code, not the GPU, tells whether there is wgmma: PTX has none on Hopper either.
static cudaError_t load_code(Device *dev, const cudaDeviceProp *gpu, bool *from_ptx) {
  cudaFuncAttributes code;
  cudaError_t error = cudaFuncGetAttributes(&code, probe_kernel);
  if (error == cudaSuccess) error = cudaMemcpyFromSymbol(&dev->wgmma, code_has_wgmma, sizeof dev->wgmma);
  if (error != cudaSuccess) return error;
  bool hopper = gpu->major == 9 && gpu->minor == 0; // a build for it always has wgmma
  *from_ptx = code.binaryVersion > code.ptxVersion || (hopper && !dev->wgmma);
  return cudaSuccess;
}

// What there is and whether it can be used, in the order in which more becomes known.
static cudaError_t try_gpu(Device *dev, GpuOffer *offer) {
  cudaDeviceProp gpu;
  bool from_ptx;
  cudaDriverGetVersion(&offer->driver);
  cudaRuntimeGetVersion(&offer->runtime);
  offer->index = dev->index;
  cudaError_t error = cudaGetDeviceCount(&offer->count);
  if (error != cudaSuccess || dev->index >= offer->count) return error;
  if ((error = cudaGetDeviceProperties(&gpu, dev->index)) != cudaSuccess) return error;
  snprintf(offer->name, sizeof offer->name, "%.60s", gpu.name);
  offer->major = gpu.major;
  offer->minor = gpu.minor;
  if ((error = cudaSetDevice(dev->index)) != cudaSuccess) return error;
  if ((error = load_code(dev, &gpu, &from_ptx)) != cudaSuccess) return error;
  dev->multiprocessors = dev->granted = gpu.multiProcessorCount;
  int length = snprintf(dev->description, sizeof dev->description, "%s, %d SMs, %.0f GiB", offer->name,
                        dev->multiprocessors, (double)gpu.totalGlobalMem / (1 << 30));
  if (from_ptx)
    snprintf(dev->description + length, sizeof dev->description - (size_t)length,
             "; PTX compiled by the driver (native: make ARCH=%d%d)", gpu.major, gpu.minor);
  return cudaSuccess;
}

static bool cuda_open(Device *dev, Err *err) {
  if (dev->waits) setenv("CUDA_LAUNCH_BLOCKING", "1", 1); // the driver reads it when the first GPU is opened
  GpuOffer offer = {};
  cudaError_t error = try_gpu(dev, &offer);
  cudaGetLastError(); // the caller reports it
  if (error != cudaSuccess || dev->index >= offer.count)
    return fault_opening(&offer, cudaGetErrorName(error), cudaGetErrorString(error), err);
  queues_open(dev);
  dev->stage = stage_open();
  dev->save = stage_open();
  side_stream_open(dev);
  dev->conv_rungs = conv_rungs;
  return true;
}

// Asks the driver alone: no GPU is opened.
static bool cuda_locate(GpuList *gpus, Err *err) {
  GpuOffer offer = {};
  cudaDriverGetVersion(&offer.driver);
  cudaRuntimeGetVersion(&offer.runtime);
  cudaError_t error = cudaGetDeviceCount(&offer.count);
  if (error != cudaSuccess || offer.count == 0)
    return fault_opening(&offer, cudaGetErrorName(error), cudaGetErrorString(error), err);
  gpus->count = offer.count < MAX_LOCATED ? offer.count : MAX_LOCATED;
  for (int i = 0; i < gpus->count; i++) {
    cudaDeviceProp gpu;
    if (cudaDeviceGetPCIBusId(gpus->bus_id[i], BUS_ID, i) != cudaSuccess) gpus->bus_id[i][0] = '\0';
    if (cudaGetDeviceProperties(&gpu, i) != cudaSuccess) continue;
    snprintf(gpus->name[i], sizeof gpus->name[i], "%.60s", gpu.name);
    gpus->bytes[i] = gpu.totalGlobalMem;
  }
  return true;
}

static void cuda_close(Device *dev) {
  stage_close(stage_of(dev));
  stage_close(save_of(dev));
  side_stream_close(dev);
  for (int i = 0; i < QUEUE_SIDE; i++) CUDA_CHECK(cudaStreamDestroy((cudaStream_t)dev->queue_stream[i]));
}

// What an allocation gave: NULL where memory is out, which the caller reports. Any other error is one of what was
// queued before.
static void *allocated(void *p, cudaError_t error, const char *call, int line) {
  if (error == cudaSuccess) return p;
  if (error != cudaErrorMemoryAllocation) cuda_failed(error, call, __FILE__, line);
  cudaGetLastError();
  return NULL;
}

static void *cuda_alloc(Device *dev, size_t bytes) {
  void *p = NULL;
  cudaError_t error = cudaMalloc(&p, bytes + 256); // never empty, and vector loads may touch the padding behind
  if (!allocated(p, error, "cudaMalloc", __LINE__)) return NULL;
  CUDA_CHECK(cudaMemsetAsync(p, 0, bytes + 256, stream_of(dev)));
  return p;
}

static void cuda_free(Device *dev, void *p) {
  (void)dev;
  CUDA_CHECK(cudaFree(p));
}

static void cuda_upload(Device *dev, void *dst, const void *host, size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, stream_of(dev)));
}

static void cuda_download(Device *dev, void *host, const void *src, size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, stream_of(dev)));
  CUDA_CHECK(cudaStreamSynchronize(stream_of(dev)));
}

// An error here is the caller's pointer, not the device's: it is told, and the device goes on.
static bool cuda_read_rows(Device *dev, void *host, const void *src, size_t pitch, size_t row, size_t rows, Err *err) {
  cudaPointerAttributes a;
  cudaStream_t stream = save_of(dev)->stream; // it holds nothing else in inference
  cudaError_t error = cudaPointerGetAttributes(&a, src);
  const bool here = error == cudaSuccess &&
                    (a.type == cudaMemoryTypeManaged || (a.type == cudaMemoryTypeDevice && a.device == dev->index));
  if (here) error = cudaMemcpy2DAsync(host, row, src, pitch, row, rows, cudaMemcpyDeviceToHost, stream);
  if (here && error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (here && error == cudaSuccess) return true;
  cudaGetLastError();
  if (!here) return err_set(err, "data does not point to memory of GPU %d", dev->index);
  return err_set(err, "data cannot be read from GPU %d: %s", dev->index, cudaGetErrorString(error));
}

static void cuda_copy(Device *dev, void *dst, const void *src, size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream_of(dev)));
}

static void cuda_zero(Device *dev, void *p, size_t bytes) { CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, stream_of(dev))); }

static void cuda_sync(Device *dev) { CUDA_CHECK(cudaStreamSynchronize(stream_of(dev))); }

static bool cuda_idle(Device *dev) {
  cudaError_t state = cudaStreamQuery(stream_of(dev));
  if (state == cudaErrorNotReady) return false;
  CUDA_CHECK(state);
  return true;
}

static void *cuda_host_alloc(Device *dev, size_t bytes) {
  (void)dev;
  void *p = NULL;
  cudaError_t error = cudaMallocHost(&p, MAX(bytes, 1));
  return allocated(p, error, "cudaMallocHost", __LINE__);
}

static void cuda_host_free(Device *dev, void *p) {
  (void)dev;
  CUDA_CHECK(cudaFreeHost(p));
}

static void cuda_fetch(Device *dev, void *host, const void *src, size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, stream_of(dev)));
}

// In pieces, between which what the step fetches gets its turn: copies in one direction may share an engine.
static void cuda_save(Device *dev, void *host, const void *src, size_t bytes) {
  const size_t piece = 16 << 20; // a third of a millisecond on PCIe 5
  CopyQueue *s = save_of(dev);
  CUDA_CHECK(cudaEventRecord(s->read, stream_of(dev)));
  CUDA_CHECK(cudaStreamWaitEvent(s->stream, s->read));
  for (size_t at = 0; at < bytes; at += piece)
    CUDA_CHECK(cudaMemcpyAsync((char *)host + at, (const char *)src + at, MIN(piece, bytes - at),
                               cudaMemcpyDeviceToHost, s->stream));
  CUDA_CHECK(cudaEventRecord(s->staged, s->stream));
}

static bool cuda_save_wait(Device *dev) {
  return cudaSetDevice(dev->index) == cudaSuccess && // every thread has a current device of its own
         cudaEventSynchronize(save_of(dev)->staged) == cudaSuccess;
}

static void cuda_stage(Device *dev, void *dst, const void *host, size_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, stage_of(dev)->stream));
}

static void cuda_stage_wait(Device *dev) {
  CopyQueue *s = stage_of(dev);
  CUDA_CHECK(cudaEventRecord(s->staged, s->stream));
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(dev), s->staged));
  CUDA_CHECK(cudaEventSynchronize(s->staged));
}

static void cuda_stage_join(Device *dev) {
  CopyQueue *s = stage_of(dev);
  CUDA_CHECK(cudaEventRecord(s->staged, s->stream));
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(dev), s->staged));
}

static void cuda_stage_next(Device *dev) {
  CopyQueue *s = stage_of(dev);
  CUDA_CHECK(cudaEventRecord(s->read, stream_of(dev)));
  CUDA_CHECK(cudaStreamWaitEvent(s->stream, s->read));
}

static void *cuda_mark_open(Device *dev) {
  (void)dev;
  cudaEvent_t mark;
  CUDA_CHECK(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
  return mark;
}

static void cuda_mark_close(Device *dev, void *mark) {
  (void)dev;
  CUDA_CHECK(cudaEventDestroy((cudaEvent_t)mark));
}

static void cuda_mark_set(Device *dev, void *mark) { CUDA_CHECK(cudaEventRecord((cudaEvent_t)mark, stream_of(dev))); }

static bool cuda_mark_reached(Device *dev, void *mark) {
  (void)dev;
  cudaError_t state = cudaEventQuery((cudaEvent_t)mark);
  if (state == cudaErrorNotReady) return false;
  CUDA_CHECK(state);
  return true;
}

static void cuda_mark_wait(Device *dev, void *mark) {
  (void)dev;
  CUDA_CHECK(cudaEventSynchronize((cudaEvent_t)mark));
}

static void cuda_mark_follow(Device *dev, void *mark) {
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(dev), (cudaEvent_t)mark));
}

static void cuda_fork(Device *dev) {
  CUDA_CHECK(cudaEventRecord(turns_of(dev)->fork, stream_of(dev)));
  CUDA_CHECK(cudaStreamWaitEvent(side_stream_of(dev), turns_of(dev)->fork));
}
static void cuda_join(Device *dev) {
  CUDA_CHECK(cudaEventRecord(turns_of(dev)->join, side_stream_of(dev)));
  CUDA_CHECK(cudaStreamWaitEvent(stream_of(dev), turns_of(dev)->join));
}

static size_t cuda_available(Device *dev) {
  (void)dev;
  size_t available, total;
  CUDA_CHECK(cudaMemGetInfo(&available, &total));
  return available;
}

static bool cuda_record(Device *dev) {
  CUDA_CHECK(cudaStreamBeginCapture(stream_of(dev), cudaStreamCaptureModeThreadLocal));
  return true;
}

static void *cuda_record_end(Device *dev) {
  cudaGraph_t graph;
  cudaGraphExec_t program;
  CUDA_CHECK(cudaStreamEndCapture(stream_of(dev), &graph));
  CUDA_CHECK(cudaGraphInstantiate(&program, graph, cudaGraphInstantiateFlagUseNodePriority)); // of the queues
  CUDA_CHECK(cudaGraphDestroy(graph));
  return program;
}

static void cuda_replay(Device *dev, void *program) {
  CUDA_CHECK(cudaGraphLaunch((cudaGraphExec_t)program, stream_of(dev)));
}

static void cuda_forget(Device *dev, void *program) {
  (void)dev;
  CUDA_CHECK(cudaGraphExecDestroy((cudaGraphExec_t)program));
}

extern "C" const Memory memory_cuda = {
    cuda_open,       cuda_close,    cuda_alloc,        cuda_free,      cuda_upload,      cuda_download,
    cuda_copy,       cuda_zero,     cuda_sync,         cuda_idle,      cuda_host_alloc,  cuda_host_free,
    cuda_fetch,      cuda_save,     cuda_save_wait,    cuda_stage,     cuda_stage_wait,  cuda_stage_next,
    cuda_fork,       cuda_join,     cuda_available,    cuda_record,    cuda_record_end,  cuda_replay,
    cuda_forget,     &timing_cuda,  cuda_describe,     cuda_locate,    cuda_stage_join,  cuda_mark_open,
    cuda_mark_close, cuda_mark_set, cuda_mark_reached, cuda_mark_wait, cuda_mark_follow, cuda_read_rows};
