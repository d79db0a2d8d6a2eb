#include "nn/fault.h"
#include <stdio.h>
#include <string.h>

// ---- what errors mean -----------------------------------------------------------------------------------------------

// Of a kernel's fault, --sync-nodes finds the kernel.
typedef enum FaultSource { MACHINE, KERNEL } FaultSource;

#define LOST "the GPU is lost: it fell off the bus or its driver was reset; dmesg has a line with Xid that says why"
#define BROKEN "the GPU's memory failed, an ECC error that cannot be corrected: reset it or take another"
#define BUSY "busy: another process has it for itself (nvidia-smi names it); wait for that, or take --device cuda:N"
#define BUG "; a bug in this program, please report it"

// By the name of CUDA's error: what it means while a GPU is opened and while it computes. NULL: nothing of its own.
static const struct {
  const char *error, *opening, *computing;
  FaultSource source;
} meanings[] = {
    // The machine's.
    {"cudaErrorNoDevice",
     "no GPU found; a container has to be given one, and CUDA_VISIBLE_DEVICES must not hide it (nvidia-smi -L lists "
     "them)",
     LOST, MACHINE},
    {"cudaErrorDevicesUnavailable", BUSY, LOST, MACHINE},
    {"cudaErrorDeviceAlreadyInUse", BUSY, LOST, MACHINE},
    {"cudaErrorMemoryAllocation", "its memory is full: other processes hold it (nvidia-smi names them)",
     "out of memory on the GPU; a smaller --batch, --size or --max-size shrinks it", MACHINE},
    {"cudaErrorSystemDriverMismatch",
     "the driver's library and its kernel module are of different versions: restart the machine after an update", NULL,
     MACHINE},
    {"cudaErrorSystemNotReady",
     "the machine's GPUs are not ready: where they share NVSwitch, the service nvidia-fabricmanager has to run", NULL,
     MACHINE},
    {"cudaErrorCompatNotSupportedOnDevice",
     "CUDA's forward compatibility package does not work with it: take that off LD_LIBRARY_PATH", NULL, MACHINE},
    {"cudaErrorMpsConnectionFailed", "its MPS server does not answer: restart it, or unset CUDA_MPS_PIPE_DIRECTORY",
     LOST, MACHINE},
    {"cudaErrorInitializationError", "the driver does not start; dmesg says why", LOST, MACHINE},
    {"cudaErrorOperatingSystem", "the operating system does not let this process use it: see who may open /dev/nvidia*",
     NULL, MACHINE},
    {"cudaErrorUnknown", "the driver does not answer; dmesg says why, a restart of the machine may help", LOST,
     MACHINE},
    {"cudaErrorDeviceUninitialized", NULL, LOST, MACHINE},
    {"cudaErrorContextIsDestroyed", NULL, LOST, MACHINE},
    {"cudaErrorECCUncorrectable", BROKEN, BROKEN, MACHINE},
    {"cudaErrorContained", NULL, "the GPU met an error of its hardware and contained it; dmesg has a line with Xid",
     MACHINE},
    {"cudaErrorNvlinkUncorrectable", NULL, "a link between GPUs failed; nvidia-smi nvlink -e has more", MACHINE},
    {"cudaErrorLaunchTimeout", NULL,
     "a kernel ran for longer than the driver allows on a GPU that has a display: take another GPU or a smaller "
     "--batch",
     KERNEL},
    // A kernel's.
    {"cudaErrorIllegalAddress", NULL, "a kernel read or wrote outside its memory" BUG, KERNEL},
    {"cudaErrorMisalignedAddress", NULL, "a kernel read or wrote at an address that is not aligned" BUG, KERNEL},
    {"cudaErrorInvalidAddressSpace", NULL, "a kernel read or wrote in a kind of memory where it may not" BUG, KERNEL},
    {"cudaErrorIllegalInstruction", NULL, "a kernel has an instruction that this GPU does not know" BUG, KERNEL},
    {"cudaErrorInvalidPc", NULL, "a kernel left its code" BUG, KERNEL},
    {"cudaErrorHardwareStackError", NULL, "a kernel's stack is corrupt" BUG, KERNEL},
    {"cudaErrorAssert", NULL, "a kernel's assertion failed" BUG, KERNEL},
    {"cudaErrorLaunchFailure", NULL, "a kernel failed" BUG ", unless dmesg has a line with Xid that blames the GPU",
     KERNEL},
    {"cudaErrorLaunchOutOfResources", NULL, "a kernel asks for more than this GPU has" BUG, KERNEL},
    {"cudaErrorInvalidConfiguration", NULL, "a kernel was launched with blocks that this GPU does not take" BUG,
     KERNEL},
    {"cudaErrorInvalidValue", NULL, "a call to CUDA had an argument that it does not take" BUG, KERNEL},
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
    return err_set(err, "%s has compute capability %d.%d, the kernels need 8.0", o->name, o->major, o->minor);
  if (!strcmp(error, "cudaErrorUnsupportedPtxVersion"))
    return err_set(err,
                   "the driver, of CUDA %d.%d, is too old to compile this build for %s (compute capability %d.%d): "
                   "update it, or rebuild with make ARCH=%d%d",
                   o->driver / 1000, o->driver % 1000 / 10, o->name, o->major, o->minor, o->major, o->minor);
  return err_set(err, "this build has no code for %s (compute capability %d.%d; %s): rebuild with make ARCH=%d%d",
                 o->name, o->major, o->minor, text, o->major, o->minor);
}

bool fault_opening(const GpuOffer *o, const char *error, const char *text, Err *err) {
  if (!o->driver) return err_set(err, "no NVIDIA driver on this machine");
  if (!strcmp(error, "cudaErrorInsufficientDriver") || o->driver / 1000 < o->runtime / 1000)
    return err_set(err, "the driver supports CUDA %d.%d, this build needs %d.0: update the driver", o->driver / 1000,
                   o->driver % 1000 / 10, o->runtime / 1000);
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
      if (meanings[i].source == KERNEL && *computes.text && !computes.exact) advice = "; --sync-nodes finds the kernel";
    }
  if (*computes.text) queued = computes.exact ? "; in " : "; queued last, up to two steps ahead of the GPU: ";
  die_unforeseen("%s%s (%s in %s at %s:%d%s%s)", what, advice, error, call, file, line, queued, computes.text);
}
