// Catches the wrong loop of a lesson's machine code taken for its main loop.
//
// lab/lesson_sass.py on the output of a stub for cuobjdump: which loop it takes for the main loop, and its message if
// there is none.
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char listing[] = "case $* in\n"
                              "*-res-usage*) printf ' Function _Z14forward_kernelv:\\n  REG:40 STACK:0 SHARED:5120 "
                              "LOCAL:0\\n' ;;\n"
                              "*) cat <<'END'\n"
                              "\t\tFunction : _Z10sum_kernelv\n"
                              "        /*0000*/                   FFMA R1, R2, R3, R4 ;\n"
                              "        /*0010*/                   BRA 0x0 ;\n"
                              "\t\tFunction : _Z14forward_kernelv\n"
                              "        /*0000*/                   FFMA R1, R2, R3, R4 ;\n"
                              "        /*0010*/                   LDS.U16 R1, [R2] ;\n"
                              "        /*0018*/              @!PT LDS RZ, [RZ] ;\n"
                              "        /*0020*/              @!P0 FFMA R1, R2, R3, R4 ;\n"
                              "        /*0028*/                   HGMMA.64x8x16.F32.BF16 R4, gdesc[UR8], R4 ;\n"
                              "        /*0030*/               @P1 BRA 0x10 ;\n"
                              "        /*0040*/                   FADD R1, R2, R3 ;\n"
                              "        /*0050*/               @P1 BRA 0x40 ;\n"
                              "        /*0060*/              @!P2 BRA 0x0 ;\n"
                              "        /*0070*/                   BRA 0x90 ;\n"
                              "END\nesac\n";

static bool put(const char *text) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  FILE *f = fopen(in_tmp("cuobjdump"), "w");
  CHECK(f && fprintf(f, "#!/bin/sh\n%s", text) > 0 && fclose(f) == 0);
  f = fopen(in_tmp("nvcc"), "w");
  CHECK(f && fputs("#!/bin/sh\necho 'release 13.0, V13'\n", f) >= 0 && fclose(f) == 0);
  CHECK(!command(&said, "chmod +x %s %s", in_tmp("cuobjdump"), in_tmp("nvcc")));
  return true;
}

static int sass(const char **said) {
  return command(said, "CUOBJDUMP=%s NVCC=%s python3 lab/lesson_sass.py %s build/01_x.cu.o", in_tmp("cuobjdump"),
                 in_tmp("nvcc"), in_tmp("sass.json"));
}

TEST_TIER(lesson_sass_takes_the_innermost_loop, 1) {
  const char *said;
  if (!put(listing)) return;
  if (!EXPECT_INT(sass(&said), 0)) puts(said);
  CHECK(!command(&said, "tr -d ' \\n' <%s", in_tmp("sass.json")));
  if (!EXPECT(strstr(said, "\"nvcc\":\"13.0\",\"lessons\":{\"01_x\":{\"registers\":40,\"stack\":0,\"shared\":4096,"
                           "\"loop\":{\"BRA\":1,\"FFMA\":1,\"HGMMA.64x8x16.F32.BF16\":1,\"LDS.U16\":1}}}")))
    puts(said);
}

TEST_TIER(lesson_sass_says_what_is_missing, 1) {
  const char *said;
  if (!put("echo ' Function forward_kernel:  REG:40 STACK:0 SHARED:0'\n")) return;
  EXPECT_INT(sass(&said), 2);
  if (!EXPECT(strstr(said, "lesson_sass: forward_kernel has no loop that multiplies"))) puts(said);
  if (!put("exit 1\n")) return;
  EXPECT_INT(sass(&said), 2);
  if (!EXPECT(strstr(said, "cuobjdump did not run"))) puts(said);
}
