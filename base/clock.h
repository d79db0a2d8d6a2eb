// The time that passes.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

double now_seconds(void); // monotonic

#ifdef __cplusplus
}
#endif
