// Catches IDX files that crash their reader.
//
// Fuzzes IDX files, as images and as labels. Seeds: test/corpus/idx.
#include <stdlib.h>
#include "classification/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static const int dimensions[] = {IDX_IMAGES, IDX_LABELS};
  for (int k = 0; k < 2; k++) {
    Err err = {""};
    Idx a;
    if (!idx_parse(&a, bytes, size, "fuzz", dimensions[k], &err)) {
      CHECK(*err.msg && !a.bytes);
      continue;
    }
    const size_t n = (size_t)a.n * a.h * a.w;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += a.bytes[i];
    CHECK(n > 0 && sum <= 255 * n);
    idx_free(&a);
  }
  return 0;
}
