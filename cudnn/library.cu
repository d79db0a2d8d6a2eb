// libcudnn.so.9, opened and closed.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "base/contained.h"
#include "cudnn/library.cuh"

// False, with a line on stderr, where the library is missing or does not work.
static bool load(CudnnLibrary *l) {
  l->so = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  const struct {
    void *to;
    const char *name;
  } symbols[] = {
      {&l->version, "cudnnGetVersion"},
      {&l->error, "cudnnGetErrorString"},
      {&l->create_handle, "cudnnCreate"},
      {&l->destroy_handle, "cudnnDestroy"},
      {&l->set_stream, "cudnnSetStream"},
      {&l->create, "cudnnBackendCreateDescriptor"},
      {&l->destroy, "cudnnBackendDestroyDescriptor"},
      {&l->finalize, "cudnnBackendFinalize"},
      {&l->set, "cudnnBackendSetAttribute"},
      {&l->get, "cudnnBackendGetAttribute"},
      {&l->execute, "cudnnBackendExecute"},
  };
  bool ok = l->so != NULL;
  for (int i = 0; ok && i < COUNT(symbols); i++) {
    void *p = dlsym(l->so, symbols[i].name);
    memcpy(symbols[i].to, &p, sizeof p);
    ok = p != NULL;
  }
  ok = ok && !l->create_handle(&l->handle);
  if (!ok)
    warn("cuDNN is not available (%s): put libcudnn.so.9 on LD_LIBRARY_PATH; using our own kernels",
         l->so ? "the library cannot be initialised" : dlerror());
  return ok;
}

CudnnLibrary *cudnn_library_open(void) {
  CudnnLibrary *l = (CudnnLibrary *)xcalloc(1, sizeof *l);
  if (load(l)) return l;
  if (l->so) dlclose(l->so);
  free(l);
  return NULL;
}

int cudnn_library_version(const CudnnLibrary *l) { return (int)l->version(); }

void cudnn_library_close(CudnnLibrary *l) {
  while (l->num_kept) destroy(l, l->kept[--l->num_kept]); // what refers to others before these
  CUDNN_CHECK(l, l->destroy_handle(l->handle));
  dlclose(l->so);
  free(l->kept);
  free(l);
}
