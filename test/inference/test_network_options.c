// Catches messages of infer that name the library's options instead of its own.
#include "inference/network_options.h"
#include "test/harness/test.h"

TEST(infer_names_options_as_its_own) {
  Err err;
  err_set(&err, "too little memory: reduce batch, image_size or max_image_size");
  program_words(&err);
  EXPECT_STR(err.msg, "too little memory: reduce --batch, --size or --max-size");
  err_set(&err, "amp needs a GPU; the handle can only be closed");
  program_words(&err);
  EXPECT_STR(err.msg, "--amp needs a GPU");
}
