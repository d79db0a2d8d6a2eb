#!/bin/sh
# Tests test/mutate.py on a small tree: which mutants it makes of a file, and whether it classifies each correctly.
set -eu
mutate=$(cd "$(dirname "$0")" && pwd)/mutate.py
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"
unset B CC CFLAGS CUDA ARCH MAKEFLAGS MAKELEVEL MFLAGS
mkdir -p base test/base

cat >Makefile <<'END'
B ?= build
folders := base \
  lab/study
$B/test_all: $B/test/base/test_sum.o $B/objects.a
	@echo "link $@" && cc $^ -o $@
$B/objects.a: $B/base/sum.o
	@rm -f $@ && ar qcs $@ $(filter %.o,$^)
$B/%.o: %.c
	@mkdir -p $(@D) && echo "cc $<" && cc -O2 -I. -Werror -c $< -o $@
END
echo 'int sum(const int *x, int n), halvings(int n), clear(int really), inner(int n), most(int a, int b);' >base/sum.h
cat >base/sum.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include "base/sum.h"
#define SMALL(n) ((n) < 3 && (n) > 0)
// if (a < b) return 0;
int sum(const int *x, int n) {
  if (!x) return -1;
  int total = 0;
  for (int i = 0; i < n; i++) total += x[i];
  if (total >= 100) fprintf(stderr, "%s\n", n < 3 ? "few && more" : "many");
  fputc('.', stdout);
  free(NULL);
  return total;
}
int halvings(int n) {
  int times = 0;
  while (n > 1) n /= 2, times++;
  return times;
}
int clear(int really) { return really ? remove("precious") : 0; }
int inner(int n) { return n > 3 && n > 2; }
int most(int a, int b) { return a > b ? a : b; }
END
cat >test/base/test_sum.c <<'END'
#include <stdio.h>
#include <string.h>
#include "base/sum.h"
#define TEST(name) static int name(void)
TEST(broken) { return 0; }
TEST(clear_does_as_told) { return clear(0) == 0 || 1; }
TEST(halvings_of_few) { return halvings(0) == 0 && halvings(8) == 3; }
TEST(most_is_largest) { return most(1, 2) == 2 && most(2, 1) == 2 && inner(4) == 1 && inner(3) == 0; }
TEST(sum_is_of_all) { return sum((int[]){1, 2, 4}, 3) == 7 && sum(0, 1) == -1; }
static const struct {
  const char *name;
  int (*run)(void);
} tests[] = {{"broken", broken}, {"clear_does_as_told", clear_does_as_told}, {"halvings_of_few", halvings_of_few},
             {"most_is_largest", most_is_largest}, {"sum_is_of_all", sum_is_of_all}};
int main(int argc, char **argv) {
  int failed = 0;
  for (int t = 0; t < 5; t++) {
    int chosen = 0;
    for (int i = 3; i < argc; i++) chosen |= strstr(tests[t].name, argv[i]) != NULL;
    if (!strcmp(argv[argc - 1], "--list")) printf("0 %s\n", tests[t].name);
    else if (chosen) {
      printf("%s ", tests[t].name), fflush(stdout);
      int ok = tests[t].run();
      if (!ok) printf("\n%s ", tests[t].name);
      printf(" 0.0 s  %s\n", ok ? "ok" : "FAIL (1 of 1 checks)");
      failed += !ok;
    }
  }
  return failed > 0;
}
END

cat >expected <<'END'
base/sum.c:7	guard	caught	sum_is_of_all crashes	(void)(!x);
base/sum.c:7	negate	caught	sum_is_of_all fails	if (!(!x)) return -1;
base/sum.c:9	bound	caught	sum_is_of_all fails	for (int i = 0; i + 1 < n; i++) total += x[i];
base/sum.c:10	bound	survived	-	if (total > 100) fprintf(stderr, "%s\n", n < 3 ? "few && more" : "many");
base/sum.c:10	negate	survived	-	if (!(total >= 100)) fprintf(stderr, "%s\n", n < 3 ? "few && more" : "many");
base/sum.c:11	call	survived	-	;
base/sum.c:17	bound	caught	halvings_of_few fails	while (n >= 1) n /= 2, times++;
base/sum.c:17	negate	caught	halvings_of_few hangs	while (!(n > 1)) n /= 2, times++;
base/sum.c:20	negate	survived	-	int clear(int really) { return !(really) ? remove("precious") : 0; }
base/sum.c:21	bound	caught	most_is_largest fails	int inner(int n) { return n >= 3 && n > 2; }
base/sum.c:21	bound	equivalent	-	int inner(int n) { return n > 3 && n >= 2; }
base/sum.c:21	guard	caught	most_is_largest fails	int inner(int n) { return n > 2; }
base/sum.c:21	guard	equivalent	-	int inner(int n) { return n > 3 ; }
base/sum.c:22	negate	caught	most_is_largest fails	int most(int a, int b) { return !(a > b) ? a : b; }
END
fail() {
  echo "mutate_test: $1"
  exit 1
}
told() { grep -v '^#' "$1" | sed 's/\t[0-9.]*\t.*  ->  /\t/' | sort -t: -k1,1 -k2,2n; }
touch precious
free=
make -s build/test_all >/dev/null
python3 "$mutate" --list --count 1 >/dev/null
unshare $([ "$(id -u)" = 0 ] || echo --user --map-root-user) --mount --pid --fork --mount-proc true 2>/dev/null ||
  free=--unconfined
python3 "$mutate" --seed 3 --count 6 --seconds 2 --resume results $free >first
[ "$(grep -vc '^#' results)" = 6 ] || fail "asked for 6 mutants"
python3 "$mutate" --seed 3 --count 99 --seconds 2 --resume results $free >second
told results >reported
sort -t: -k1,1 -k2,2n expected >wanted
diff wanted reported || fail "< was expected, > was reported"
[ "$(grep -vc '^#' second)" = 8 ] || fail "tried mutants again that --resume had"
grep -q '^# broken does not pass without a mutant: left out' first || fail "trusts a test that always fails"
grep -q '^# all    8 of 12 caught (66.7 %); 2 equivalent, 0 not compiled' second || fail "counts: $(grep all second)"
[ -n "$free" ] || [ -e precious ] || fail "a mutant deleted a file of the tree"
[ "$(python3 "$mutate" --seed 3 --list --count 99 | cut -f 1,2)" = "$(cut -f 1,2 results)" ] || fail "draws otherwise"
echo "mutate_test: $(wc -l <wanted) mutants are what they are told to be${free:+, without namespaces}"
