#include "comm/nccl.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- the library ----------------------------------------------------------------------------------------------------

static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
static const char install[] = "apt install libnccl2, or pip install nvidia-nccl-cu13 and "
                              "MASKRCNN_NCCL=.../nvidia/nccl/lib/libnccl.so.2";

// A library that the user names is the only one tried.
static bool open_library(Nccl *nccl, Err *err) {
  const char *asked = getenv("MASKRCNN_NCCL");
  const bool one = asked && *asked;
  const char *const *name = one ? &asked : names;
  char why[512] = "";
  for (int i = 0; i < (one ? 1 : COUNT(names)); i++) {
    nccl->library = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
    snprintf(nccl->name, sizeof nccl->name, "%s", name[i]);
    if (nccl->library) return true;
    if (i == 0) snprintf(why, sizeof why, "%s", dlerror());
  }
  if (one) return err_set(err, "MASKRCNN_NCCL: cannot open NCCL: %s; %s", why, install);
  return err_set(err, "training on several GPUs needs NCCL, but neither %s nor %s can be loaded (%s): %s", names[0],
                 names[1], why, install);
}

typedef struct NcclVersion {
  int major, minor, patch;
} NcclVersion;

// The minor version has two digits from 2.9 on, one before.
static NcclVersion version_of(int code) {
  int major = code < 10000 ? 1000 : 10000;
  return (NcclVersion){code / major, code % major / 100, code % 100};
}

static bool check_version(const Nccl *nccl, Err *err) {
  if (nccl->version >= NCCL_OLDEST) return true;
  const NcclVersion found = version_of(nccl->version), need = version_of(NCCL_OLDEST);
  return err_set(err, "NCCL %d.%d.%d (%s) is too old: %d.%d or newer is needed: %s", found.major, found.minor,
                 found.patch, nccl->name, need.major, need.minor, install);
}

// Stores the function's address by memcpy: C does not convert data pointers to function pointers, but POSIX represents
// both alike.
static bool find(const Nccl *nccl, const char *name, void *member, size_t size) {
  void *const function = dlsym(nccl->library, name);
  CHECK(size == sizeof function);
  memcpy(member, &function, size);
  return function != NULL;
}

// Finds the functions by name. If one is missing, the version is checked first, because "too old" is a better message.
static bool find_functions(Nccl *nccl, Err *err) {
  const char *missing = NULL;
#define FIND(result, name, parameters)                                                                                 \
  if (!find(nccl, "nccl" #name, &nccl->name, sizeof nccl->name) && !missing) missing = "nccl" #name;
  EACH_NCCL_CALL(FIND)
#undef FIND
  if (nccl->GetVersion && nccl->GetVersion(&nccl->version) == NCCL_SUCCESS && !check_version(nccl, err)) return false;
  if (!missing) return true;
  return err_set(err, "%s lacks the function %s and cannot be used as NCCL: %s", nccl->name, missing, install);
}

bool nccl_load(Nccl *nccl, Err *err) {
  *nccl = (Nccl){0};
  if (!open_library(nccl, err)) return false;
  if (find_functions(nccl, err)) return true;
  dlclose(nccl->library);
  nccl->library = NULL;
  return false;
}

// ---- errors ---------------------------------------------------------------------------------------------------------

// Waits after an error that the end of another rank may have caused. The watch or the supervisor will know of that end
// soon, report it, and end this process.
static void let_others_speak(NcclResult result) {
  if (result != NCCL_REMOTE_ERROR && result != NCCL_SYSTEM_ERROR) return;
  struct timespec left = {.tv_sec = 3};
  while (nanosleep(&left, &left) != 0) continue;
}

// In the wording of NCCL up to 2.28, and of later versions.
static bool tells_of_one_gpu(const char *detail) {
  return strstr(detail, "Duplicate GPU") || strstr(detail, "using the same GPU");
}

// Describes an error with NCCL's own message, in one line.
static bool describe(const Nccl *nccl, NcclResult result, const char *call, Err *err) {
  const char *detail = nccl->GetLastError(nccl->comm);
  if (detail && tells_of_one_gpu(detail))
    return err_set(err,
                   "two ranks use the same GPU (NCCL: %s): start one process per GPU of a host, and let each see all "
                   "GPUs or only its own (CUDA_VISIBLE_DEVICES)",
                   detail);
  const bool more = detail && *detail;
  return err_set(err, "NCCL: nccl%s: %s%s%s; set NCCL_DEBUG=INFO for details", call, nccl->GetErrorString(result),
                 more ? ": " : "", more ? detail : "");
}

static bool succeeded(const Nccl *nccl, NcclResult result, const char *call, Err *err) {
  if (result == NCCL_SUCCESS) return true;
  let_others_speak(result);
  return describe(nccl, result, call, err);
}

void nccl_check(Nccl *nccl, NcclResult result, const char *call) {
  Err err;
  if (!succeeded(nccl, result, call, &err)) die_unforeseen("%s", err.msg);
}

bool nccl_async_ok(Nccl *nccl, Err *err) {
  enum { HELD_BACK = 2 };
  NcclResult error = NCCL_SUCCESS, asked = nccl->CommGetAsyncError(nccl->comm, &error);
  if (asked != NCCL_SUCCESS) error = asked;
  if (error == NCCL_SUCCESS || error == NCCL_IN_PROGRESS) {
    nccl->async_seen = 0;
    return true;
  }
  return nccl->async_seen++ < HELD_BACK || describe(nccl, error, "CommGetAsyncError", err);
}

// ---- the communicator -----------------------------------------------------------------------------------------------

bool nccl_id(Nccl *nccl, NcclId *id, Err *err) { return succeeded(nccl, nccl->GetUniqueId(id), "GetUniqueId", err); }

bool nccl_begin(Nccl *nccl, const NcclId *id, int rank, int world, int ctas, Err *err) {
  NcclConfig config = {.size = sizeof config,
                       .magic = 0xcafebeef,
                       .version = 21701,
                       .blocking = INT_MIN,
                       .cga_cluster_size = INT_MIN,
                       .min_ctas = ctas ? ctas : INT_MIN,
                       .max_ctas = ctas ? ctas : INT_MIN};
  return succeeded(nccl, nccl->CommInitRankConfig(&nccl->comm, world, *id, rank, &config), "CommInitRankConfig", err);
}

void nccl_end(Nccl *nccl) {
  if (nccl->comm) nccl_check(nccl, nccl->CommDestroy(nccl->comm), "CommDestroy");
  *nccl = (Nccl){0};
}
