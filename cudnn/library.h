// libcudnn.so.9, opened with dlopen; none of its headers are needed to build.
#pragma once

// Its functions, one handle, and the descriptors of every graph built from it; cudnn/library.cuh.
typedef struct CudnnLibrary CudnnLibrary;
// NULL, with a line on stderr, where it is missing or does not work.
CudnnLibrary *cudnn_library_open(void);
// Destroys the graphs and the handle. Engines are freed, and what was queued has run, before.
void cudnn_library_close(CudnnLibrary *l);
int cudnn_library_version(const CudnnLibrary *l); // 91900 is 9.19.0
