// Catches Hopper wrappers that nvcc compiles into the wrong instruction.
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// Counts the prefetches of tensor maps, and those whose address is converted to a generic one behind an index known at
// run time. Registers of PTX are written once in a kernel.
static const char counts[] = "/\\.entry/ { delete fixed; delete late }\n"
                             "$1 ~ /^mov\\.[bu]64$/ && $3 ~ /_param_/ { fixed[$2] = 1 }\n"
                             "$1 == \"add.s64\" && ($3 in fixed) && $4 ~ /^[0-9]+$/ { fixed[$2] = 1 }\n"
                             "$1 == \"cvta.param.u64\" && !($3 in fixed) && $3 !~ /_param_/ { late[$2] = 1 }\n"
                             "$1 == \"prefetch.tensormap\" { all++; wrong += $2 in late }\n"
                             "END { printf \"%d, %d of them by an index before the conversion\", all, wrong }\n";

TEST_TIER(hopper_prefetches_maps_at_generic_addresses, 1) {
  const char *said, *ptx = in_tmp("wgrad.ptx"), *program = in_tmp("counts.awk");
  if (command(&said, "command -v ${NVCC:-nvcc} || ls /usr/local/cuda/bin/nvcc")) {
    test_skip("there is no nvcc");
    return;
  }
  int status = command(&said,
                       "$(command -v ${NVCC:-nvcc} || ls /usr/local/cuda/bin/nvcc) -std=c++17 -O3 -I. "
                       "--expt-relaxed-constexpr -arch=sm_90a -ptx cuda/conv/05_wgmma_wgrad.cu -o %s",
                       ptx);
  if (!EXPECT_INT(status, 0)) puts(said);
  FILE *f = fopen(program, "w");
  CHECK(f && fputs(counts, f) >= 0 && fclose(f) == 0);
  EXPECT_INT(command(&said, "tr -d '[],;' <%s | awk -f %s", ptx, program), 0);
  if (!EXPECT(strncmp(said, "0,", 2) && strstr(said, ", 0 of them"))) puts(said);
}
