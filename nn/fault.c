#include "nn/fault.h"
#include <stdio.h>
#include <string.h>

// ---- what errors mean -----------------------------------------------------------------------------------------------

// Of a kernel's fault, --sync-nodes finds the kernel.
typedef enum FaultSource { MACHINE, KERNEL } FaultSource;

#define LOST "the GPU was lost: it fell off the bus or its driver was reset; look for a line with Xid in dmesg"
#define BROKEN "the GPU's memory failed with an uncorrectable ECC error: reset the GPU or use another"
#define BUSY                                                                                                           \
  "busy: another process uses it exclusively (see nvidia-smi); wait for it to end, or choose another GPU with "        \
  "--device cuda:N"
#define BUG "; a bug in this program, please report it"

// By the name of CUDA's error: what it means while a GPU is opened and while it computes. NULL: nothing of its own.
static const struct {
  const char *error, *opening, *computing;
  FaultSource source;
} meanings[] = {
    // The machine's.
    {"cudaErrorNoDevice",
     "no GPU found: in a container, pass one through; check that CUDA_VISIBLE_DEVICES does not hide it (nvidia-smi -L "
     "lists GPUs)",
     LOST, MACHINE},
    {"cudaErrorDevicesUnavailable", BUSY, LOST, MACHINE},
    {"cudaErrorDeviceAlreadyInUse", BUSY, LOST, MACHINE},
    {"cudaErrorMemoryAllocation", "its memory is in use by other processes (see nvidia-smi)",
     "out of memory on the GPU; reduce --batch, --size or --max-size", MACHINE},
    {"cudaErrorSystemDriverMismatch",
     "the driver's library and its kernel module have different versions: restart the machine after a driver update",
     NULL, MACHINE},
    {"cudaErrorSystemNotReady",
     "the machine's GPUs are not ready: machines with NVSwitch need the service nvidia-fabricmanager to be running",
     NULL, MACHINE},
    {"cudaErrorCompatNotSupportedOnDevice",
     "CUDA's forward compatibility package does not support it: remove that from LD_LIBRARY_PATH", NULL, MACHINE},
    {"cudaErrorMpsConnectionFailed", "its MPS server does not answer: restart it, or unset CUDA_MPS_PIPE_DIRECTORY",
     LOST, MACHINE},
    {"cudaErrorInitializationError", "the driver does not start; see dmesg", LOST, MACHINE},
    {"cudaErrorOperatingSystem", "permission denied by the operating system: check the permissions of /dev/nvidia*",
     NULL, MACHINE},
    {"cudaErrorUnknown", "the driver does not respond; see dmesg; restarting the machine may help", LOST, MACHINE},
    {"cudaErrorDeviceUninitialized", NULL, LOST, MACHINE},
    {"cudaErrorContextIsDestroyed", NULL, LOST, MACHINE},
    {"cudaErrorECCUncorrectable", BROKEN, BROKEN, MACHINE},
    {"cudaErrorContained", NULL, "the GPU reported a contained hardware error; look for a line with Xid in dmesg",
     MACHINE},
    {"cudaErrorNvlinkUncorrectable", NULL, "a link between GPUs failed; see nvidia-smi nvlink -e", MACHINE},
    {"cudaErrorLaunchTimeout", NULL,
     "a kernel ran longer than the driver allows on a GPU with a display: use another GPU or a smaller --batch",
     KERNEL},
    // A kernel's.
    {"cudaErrorIllegalAddress", NULL, "a kernel accessed memory out of bounds" BUG, KERNEL},
    {"cudaErrorMisalignedAddress", NULL, "a kernel accessed a misaligned address" BUG, KERNEL},
    {"cudaErrorInvalidAddressSpace", NULL, "a kernel accessed the wrong address space" BUG, KERNEL},
    {"cudaErrorIllegalInstruction", NULL, "a kernel contains an instruction that this GPU does not support" BUG,
     KERNEL},
    {"cudaErrorInvalidPc", NULL, "a kernel jumped outside its code" BUG, KERNEL},
    {"cudaErrorHardwareStackError", NULL, "a kernel's stack is corrupt" BUG, KERNEL},
    {"cudaErrorAssert", NULL, "a kernel's assertion failed" BUG, KERNEL},
    {"cudaErrorLaunchFailure", NULL, "a kernel failed" BUG ", unless a line with Xid in dmesg shows a hardware fault",
     KERNEL},
    {"cudaErrorLaunchOutOfResources", NULL, "a kernel needs more resources than this GPU has" BUG, KERNEL},
    {"cudaErrorInvalidConfiguration", NULL,
     "a kernel was launched with a configuration that this GPU does not support" BUG, KERNEL},
    {"cudaErrorInvalidValue", NULL, "a CUDA call had an invalid argument" BUG, KERNEL},
};

// Errors that say that the driver found no code in this build that the GPU runs.
static const char *const without_code[] = {"cudaErrorNoKernelImageForDevice", "cudaErrorInvalidKernelImage",
                                           "cudaErrorInvalidDeviceFunction",  "cudaErrorInvalidPtx",
                                           "cudaErrorJitCompilerNotFound",    "cudaErrorJitCompilationDisabled"};

static bool is_one_of(const char *name, const char *const *list, int n) {
  for (int i = 0; i < n; i++)
    if (!strcmp(list[i], name)) return true;
  return false;
}

// ---- opening --------------------------------------------------------------------------------------------------------

static bool explain_code(const GpuOffer *o, const char *error, const char *text, Err *err) {
  if (o->major < 8)
    return err_set(err, "%s has compute capability %d.%d, but the kernels need 8.0 or later", o->name, o->major,
                   o->minor);
  if (!strcmp(error, "cudaErrorUnsupportedPtxVersion"))
    return err_set(err,
                   "the driver (CUDA %d.%d) is too old to compile this build for %s (compute capability %d.%d): update "
                   "it, or rebuild with make ARCH=%d%d",
                   o->driver / 1000, o->driver % 1000 / 10, o->name, o->major, o->minor, o->major, o->minor);
  return err_set(err, "this build has no code for %s (compute capability %d.%d; %s): rebuild with make ARCH=%d%d",
                 o->name, o->major, o->minor, text, o->major, o->minor);
}

bool fault_opening(const GpuOffer *o, const char *error, const char *text, Err *err) {
  if (!o->driver) return err_set(err, "no NVIDIA driver on this machine");
  if (!strcmp(error, "cudaErrorInsufficientDriver") || o->driver / 1000 < o->runtime / 1000)
    return err_set(err, "the driver supports CUDA %d.%d, but this build needs %d.0: update the driver",
                   o->driver / 1000, o->driver % 1000 / 10, o->runtime / 1000);
  bool ok = !strcmp(error, "cudaSuccess");
  if (ok && o->count > 0 && o->index >= o->count)
    return err_set(err, "this machine has %d GPU%s, counted from cuda:0", o->count, o->count > 1 ? "s" : "");
  if (o->major &&
      (is_one_of(error, without_code, COUNT(without_code)) || !strcmp(error, "cudaErrorUnsupportedPtxVersion")))
    return explain_code(o, error, text, err);
  const char *what = ok ? "cudaErrorNoDevice" : error, *between = *o->name ? ": " : "";
  for (int i = 0; i < COUNT(meanings); i++)
    if (!strcmp(meanings[i].error, what) && meanings[i].opening)
      return err_set(err, "%s%s%s (%s)", o->name, between, meanings[i].opening, what);
  return err_set(err, "%s%s%s (%s)", o->name, between, text, error);
}

// ---- computing ------------------------------------------------------------------------------------------------------

// By thread: two that compute have a device each.
static _Thread_local struct {
  char text[256];
  bool exact;
} computes;

void fault_context(bool exact, const char *fmt, ...) {
  computes.exact = exact;
  computes.text[0] = '\0';
  if (!fmt) return;
  va_list args;
  va_start(args, fmt);
  vsnprintf(computes.text, sizeof computes.text, fmt, args);
  va_end(args);
}

void fault_die(const char *error, const char *text, const char *call, const char *file, int line) {
  const char *what = text, *advice = "", *queued = "";
  for (int i = 0; i < COUNT(meanings); i++)
    if (!strcmp(meanings[i].error, error) && meanings[i].computing) {
      what = meanings[i].computing;
      if (meanings[i].source == KERNEL && *computes.text && !computes.exact) advice = "; --sync-nodes names the layer";
    }
  if (*computes.text) queued = computes.exact ? "; in " : "; last queued, up to two steps ahead of the GPU: ";
  die_unforeseen("%s%s (%s in %s at %s:%d%s%s)", what, advice, error, call, file, line, queued, computes.text);
}
