#include "nn/device.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "nn/ops.h"
#include "nn/rung.h"

// ---- devices by name --------------------------------------------------------------------------------------------

static const struct {
  const char *name;
  const Ops *ops;
  const Memory *memory;
  DType real;
  bool gpu;
} types[] = {
    {"cpu", &ops_cpu, &memory_cpu, F32, false},
    {"cpu64", &ops_cpu64, &memory_cpu, F64, false},
#ifdef MASKRCNN_CUDA
    {"cuda", &ops_cuda, &memory_cuda, F32, true},
#endif
};

// Whether this build supports any type of GPU.
static bool knows_gpu(void) {
  for (int i = 0; i < COUNT(types); i++)
    if (types[i].gpu) return true;
  return false;
}

// "cuda:1" is the second device of type "cuda"; the other types have one device, of which "cpu-v3" is the level.
static bool parse_name(const char *name, int *type, int *index) {
  size_t length = strcspn(name, ":-");
  const char *digits = name[length] ? name + length + 1 : NULL;
  for (*type = 0; *type < COUNT(types); ++*type)
    if (strlen(types[*type].name) == length && !strncmp(types[*type].name, name, length)) break;
  if (*type == COUNT(types)) return false;
  *index = 0;
  if (!digits) return true;
  if (!types[*type].gpu) {
    *index = digits[-1] == '-' && *digits == 'v' && digits[1] && !digits[2] ? digits[1] - '0' : 0;
    return *index >= 2 && *index <= MAX_CPU_LEVEL;
  }
  size_t n = strspn(digits, "0123456789");
  if (digits[-1] == '-' || n == 0 || n > 4 || digits[n]) return false;
  *index = atoi(digits);
  return true;
}

static Device *open_type(int type, int index, bool waits, Err *err) {
  const Ops *ops = types[type].ops;
  // A table row left empty would be a jump to NULL in the middle of a run: refuse now.
  for (const char *p = (const char *)ops + sizeof ops->name; p < (const char *)(ops + 1); p += sizeof(void (*)(void))) {
    static const char zero[sizeof(void (*)(void))];
    CHECK(memcmp(p, zero, sizeof zero));
  }
  Device *dev = xcalloc(1, sizeof *dev);
  *dev = (Device){.ops = ops,
                  .memory = types[type].memory,
                  .real = types[type].real,
                  .index = index,
                  .gpu = types[type].gpu,
                  .waits = waits};
  if (!dev->memory->open(dev, err)) {
    free(dev);
    return NULL;
  }
  int rungs = 0;
  while (dev->conv_rungs && dev->conv_rungs[rungs]) rungs++;
  dev->conv_kept = xcalloc((size_t)rungs, sizeof *dev->conv_kept);
  return dev;
}

// The first GPU, else the CPU, which knows why.
static Device *open_any(bool waits, Err *err) {
  Err why = {""};
  for (int type = 0; type < COUNT(types); type++) {
    Device *gpu = types[type].gpu ? open_type(type, 0, waits, &why) : NULL;
    if (gpu) return gpu;
  }
  Device *cpu = open_type(0, 0, waits, err);
  if (cpu) snprintf(cpu->why_cpu, sizeof cpu->why_cpu, "%.255s", why.msg);
  return cpu;
}

static Device *open_named(const char *name, bool waits, Err *err) {
  int type, index;
  Err why;
  if (!strcmp(name, "auto")) return open_any(waits, err);
  if (!parse_name(name, &type, &index)) {
    err_set(err, "--device %s: this build supports %s", name, knows_gpu() ? "cpu and cuda:N" : "cpu only");
    return NULL;
  }
  Device *dev = open_type(type, index, waits, &why);
  if (!dev) err_set(err, "--device %s: %s; to run without a GPU, use --device cpu", name, why.msg);
  return dev;
}

Device *device_open(const char *name, Err *err) { return open_named(name, false, err); }
Device *device_open_waiting(const char *name, Err *err) { return open_named(name, true, err); }

// ---- which GPUs there are -------------------------------------------------------------------------------------------

typedef struct GpuAnswer {
  bool ok;
  GpuList gpus;
  Err err;
} GpuAnswer;

// The child's part; it ends without what this process would do at its exit.
static NORETURN void locate_and_tell(const Memory *memory, int out) {
  GpuAnswer *answer = calloc(1, sizeof *answer);
  if (!answer) _exit(EXIT_RUN);
  signal(SIGINT, SIG_DFL); // what this process has for them is for its own end
  signal(SIGTERM, SIG_DFL);
  answer->ok = memory->locate(&answer->gpus, &answer->err);
  size_t done = 0;
  for (ssize_t n = 1; n > 0 && done < sizeof *answer; done += (size_t)MAX(n, 0))
    n = write(out, (const char *)answer + done, sizeof *answer - done);
  _exit(done < sizeof *answer);
}

// Until all is there, the other end is closed, or the time is up.
static bool read_answer(int in, GpuAnswer *answer, double seconds) {
  const double until = now_seconds() + seconds;
  size_t done = 0;
  while (done < sizeof *answer) {
    struct pollfd p = {.fd = in, .events = POLLIN};
    const double left = until - now_seconds();
    const int ready = left > 0 ? poll(&p, 1, (int)(left * 1000) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ready > 0 ? read(in, (char *)answer + done, sizeof *answer - done) : 0;
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

// The driver wakes GPUs one by one where nothing keeps them awake (nvidia-smi -pm 1).
enum { LOCATE_SECONDS = 120 };

static bool locate_in_child(const Memory *memory, GpuList *gpus, Err *err) {
  int ends[2], status = 0;
  if (pipe(ends)) return err_set(err, "cannot look for GPUs: %s", strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) locate_and_tell(memory, ends[1]);
  close(ends[1]);
  GpuAnswer *answer = xcalloc(1, sizeof *answer);
  const bool told = pid > 0 && read_answer(ends[0], answer, LOCATE_SECONDS);
  close(ends[0]);
  if (pid > 0 && !told) kill(pid, SIGKILL);
  if (pid > 0) waitpid(pid, &status, 0);
  bool ok = told && answer->ok;
  if (ok) *gpus = answer->gpus;
  if (told && !ok) err_set(err, "%s", answer->err.msg);
  if (!told) err_set(err, "the driver does not list its GPUs; dmesg may say why");
  free(answer);
  return ok;
}

bool device_locate(GpuList *gpus, Err *err) {
  *gpus = (GpuList){0};
  for (int type = 0; type < COUNT(types); type++)
    if (types[type].gpu) return locate_in_child(types[type].memory, gpus, err);
  return err_set(err, "this build was compiled without CUDA");
}

bool device_locate_here(GpuList *gpus, Err *err) {
  *gpus = (GpuList){0};
  for (int type = 0; type < COUNT(types); type++)
    if (types[type].gpu) return types[type].memory->locate(gpus, err);
  return err_set(err, "this build was compiled without CUDA");
}

void device_print(const Device *dev, FILE *out) {
  fprintf(out, "device: %s", dev->description);
  if (*dev->why_cpu) fprintf(out, "; no GPU is used: %s", dev->why_cpu);
  fputc('\n', out);
}

void device_close(Device *dev) {
  if (!dev) return;
  for (const Rung *const *rung = dev->conv_rungs; rung && *rung; rung++)
    if ((*rung)->close) (*rung)->close(dev);
  free(dev->conv_kept);
  device_free(dev, dev->workspace);
  for (Queue q = QUEUE_BESIDE; q < QUEUES; q++) device_free(dev, dev->queue_workspace[q]);
  dev->memory->close(dev);
  free(dev);
}

void **device_kept(Device *dev, const Rung *rung) {
  int i = 0;
  while (dev->conv_rungs[i] != rung) i++;
  return &dev->conv_kept[i];
}

// Of the rung that was asked for, or else of any; the name as the rung has it. NULL, with the names there are: none.
static const char *find_tile(const Device *dev, const char *name, char *known, size_t size) {
  for (const Rung *const *rung = dev->conv_rungs; rung && *rung; rung++)
    for (const char *const *tile = (*rung)->tiles; tile && *tile; tile++) {
      if (dev->conv_rung && dev->conv_rung != *rung) continue;
      if (!strcmp(*tile, name)) return *tile;
      const size_t length = strlen(known);
      snprintf(known + length, size - length, "%s%s", length ? ", " : "", *tile);
    }
  return NULL;
}

bool device_choose_rung(Device *dev, const char *name, Err *err) {
  char rung[64] = "auto", known[256] = "auto", tiles[256] = "";
  if (name) snprintf(rung, sizeof rung, "%.*s", (int)strcspn(name, "/"), name);
  const char *tile = name ? strchr(name, '/') : NULL;
  dev->conv_tile = NULL;
  dev->conv_rung = strcmp(rung, "auto") ? rung_find(dev->conv_rungs, rung) : NULL;
  rung_names(dev->conv_rungs, NULL, known, sizeof known);
  if (!dev->conv_rung && strcmp(rung, "auto")) return err_set(err, "--conv %s: choose from %s", name, known);
  if (!tile || (dev->conv_tile = find_tile(dev, tile + 1, tiles, sizeof tiles))) return true;
  dev->conv_rung = NULL;
  return err_set(err, "--conv %s: this tile is not available; choose from %s", name, *tiles ? tiles : "none");
}

void *device_alloc(Device *dev, size_t bytes) { return dev->memory->alloc(dev, bytes); }
size_t device_available(Device *dev) { return dev->memory->available ? dev->memory->available(dev) : 0; }
void device_free(Device *dev, void *p) { dev->memory->free(dev, p); }
void device_upload(Device *dev, void *dst, const void *host, size_t bytes) {
  dev->memory->upload(dev, dst, host, bytes);
}
void device_download(Device *dev, void *host, const void *src, size_t bytes) {
  dev->memory->download(dev, host, src, bytes);
}
bool device_read_rows(Device *dev, void *host, const void *src, size_t pitch, size_t row, size_t rows, Err *err) {
  if (!dev->memory->read_rows) return err_set(err, "the device has no memory of its own");
  return dev->memory->read_rows(dev, host, src, pitch, row, rows, err);
}
void device_copy(Device *dev, void *dst, const void *src, size_t bytes) { dev->memory->copy(dev, dst, src, bytes); }
void device_zero(Device *dev, void *p, size_t bytes) { dev->memory->zero(dev, p, bytes); }
void device_sync(Device *dev) { dev->memory->sync(dev); }
bool device_idle(Device *dev) { return dev->memory->idle(dev); }

void device_origin(Device *dev, Record *r) {
  GpuFacts facts = {0};
  if (dev->memory->describe) dev->memory->describe(dev, &facts);
  record_origin(r, &facts);
}

void *device_host_alloc(Device *dev, size_t bytes) { return dev->memory->host_alloc(dev, bytes); }
void device_host_free(Device *dev, void *p) { dev->memory->host_free(dev, p); }
void device_fetch(Device *dev, void *host, const void *src, size_t bytes) { dev->memory->fetch(dev, host, src, bytes); }
void device_save(Device *dev, void *host, const void *src, size_t bytes) { dev->memory->save(dev, host, src, bytes); }
bool device_save_wait(Device *dev) { return dev->memory->save_wait(dev); }
void device_stage(Device *dev, void *dst, const void *host, size_t bytes) { dev->memory->stage(dev, dst, host, bytes); }
void device_stage_wait(Device *dev) { dev->memory->stage_wait(dev); }
void device_stage_join(Device *dev) { dev->memory->stage_join(dev); }
void device_stage_next(Device *dev) { dev->memory->stage_next(dev); }

void *device_mark_open(Device *dev) { return dev->memory->mark_open ? dev->memory->mark_open(dev) : NULL; }
void device_mark_close(Device *dev, void *mark) {
  if (mark) dev->memory->mark_close(dev, mark);
}
void device_mark_set(Device *dev, void *mark) {
  if (mark) dev->memory->mark_set(dev, mark);
}
bool device_mark_reached(Device *dev, void *mark) { return !mark || dev->memory->mark_reached(dev, mark); }
void device_mark_wait(Device *dev, void *mark) {
  if (mark) dev->memory->mark_wait(dev, mark);
}
void device_mark_follow(Device *dev, void *mark) {
  if (mark) dev->memory->mark_follow(dev, mark);
}

bool device_has_queues(const Device *dev) { return dev->queue_stream[QUEUE_BESIDE] != NULL; }
void device_queue(Device *dev, Queue queue) {
  dev->queue = queue;
  if (device_has_queues(dev)) dev->stream = dev->queue_stream[queue];
}

void device_fork(Device *dev) {
  if (dev->memory->fork) dev->memory->fork(dev);
}
void device_join(Device *dev) {
  if (dev->memory->join) dev->memory->join(dev);
}

bool device_record(Device *dev) { return dev->memory->record && dev->memory->record(dev); }
void *device_record_end(Device *dev) { return dev->memory->record_end(dev); }
void device_replay(Device *dev, void *program) { dev->memory->replay(dev, program); }
void device_forget(Device *dev, void *program) {
  if (program) dev->memory->forget(dev, program);
}

void *device_workspace(Device *dev, size_t bytes) {
  if (dev->measuring) {
    dev->workspace_bytes = MAX(dev->workspace_bytes, bytes);
    size_t *own = &dev->queue_bytes[dev->queue];
    if (dev->queue != QUEUE_OPS && device_has_queues(dev)) *own = MAX(*own, bytes);
    return NULL;
  }
  const bool own = dev->queue != QUEUE_OPS && device_has_queues(dev);
  CHECK(bytes <= (own ? dev->queue_bytes[dev->queue] : dev->workspace_bytes));
  return own ? dev->queue_workspace[dev->queue] : dev->workspace;
}

bool device_reserve_workspace(Device *dev, Err *err) {
  size_t all = dev->workspace_bytes;
  device_free(dev, dev->workspace);
  bool ok = (dev->workspace = device_alloc(dev, dev->workspace_bytes));
  for (Queue q = QUEUE_BESIDE; q < QUEUES; q++) {
    const size_t bytes = dev->queue_bytes[q];
    device_free(dev, dev->queue_workspace[q]);
    dev->queue_workspace[q] = bytes ? device_alloc(dev, bytes) : NULL;
    ok &= dev->queue_workspace[q] || !bytes;
    all += bytes;
  }
  return ok || err_memory(err, all, "the workspace", "--batch or --size");
}
