// ./infer for tests of it: weights, its command line, what it leaves and what it refuses.
#pragma once
#include "base/error.h"

const char *infer_weights(void); // of a short run, made once
// "./infer --weights … --out OUT", OUT under test_tmp(), on the CPU; for a shell that runs it as the program itself.
// Valid until the next call.
const char *infer_line(const char *out);
int results_in(const char *path);  // how many detections a result file holds; -1 when it is not there or no such file
bool is_picture(const char *path); // an image that can be read
// Reports a failure of the test unless ./infer with these arguments says one line that contains `says`, ends with exit
// code 2, and leaves the file as it was.
void expect_refused(const char *says, const char *file, const char *out, const char *fmt, ...) PRINTF_LIKE(4, 5);
