#!/bin/sh
# Tests test/lint.sh: in a small tree with one mistake of each type it reports each at its line and nothing else, and
# without mistakes nothing.
set -u
lint=$(cd "$(dirname "$0")" && pwd)/lint.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree" || exit 1
mkdir -p base nn cpu cuda data/images lab/study ring test/base test/fuzz test/harness docs/course/exercises
cp "$(dirname "$lint")/../.clang-format" .

# What is allowed: lint must report none of this.
cat >base/sound.h <<'END'
#pragma once
typedef struct Sound Sound; // the struct that sound.c defines is the same thing
typedef enum Pitch { LOW, HIGH } Pitch;
int sound_of(int pitch, int (*loud)(int, int));
extern const char *const sound_names[];
END
cat >base/sound.c <<'END'
#include "base/sound.h"
struct Sound {
  int a, b;
};
const char *const sound_names[] = {"low", "high; very", 0};
int (*sound_hook)(int) = 0;
int sound_most = 1, sound_least = 0;
static int twice(int a, int b) { return 2 * (a + b); }
// A comment of more than 120 bytes and fewer characters: ääääääääääääääääääääääääääääääääääääääääääääääääääääääää.
int sound_of(int pitch, int (*loud)(int, int)) {
  const struct { int low, high; } range = {1, 2}, *r = &range;
  int a = pitch, *p = &a, grid[2] = {1, 2};
  double(*rows)[2] = 0, (*more)[2] = 0;
  for (int i = 0, j = 9; i < j; i++, j--) a += loud(i, (int[]){1, j}[0]);
  switch (pitch) {
  case LOW: a++; break;
  case HIGH: a--; return twice(a, ',');
  default: break;
  }
  enum { LEAST = 1, MOST };
  if (rows || more) a = twice(*p, (grid[0]));
  do a += LEAST;
  while (a < MOST * r->low);
  return a;
}
END
cat >cuda/sound.cu <<'END'
template <int A, int B> __global__ void sound_kernel(int *x) { x[0] = A < B; }
static void launch(int *x) { sound_kernel<1, 2><<<1, 32, 0, 0>>>(x); }
__device__ int louder(int a) { return a; }
__device__ float louder(float a) { return a; }
END
echo 'int sound_reference;' >cpu/sound.c
cat >test/base/test_sound.c <<'END'
// Catches nothing.
struct Sound {
  int of_the_test_alone;
};
END
cp test/base/test_sound.c test/base/test_sound_again.c
printf '// ---- %syour code ----\n' '' 'end of ' >docs/course/exercises/1_open.c
wide=$(printf 'x%.0s' $(seq 119)) # 121 columns or more with a word before it
cat >base/sound.md <<END
# A heading: \`sound\`
[a file](sound.h), [its heading](#a-heading-sound), [far away](https://sound.example/x#y)

| a table | $wide |

<!-- value: sound -->1<!-- end --> $wide
- https://sound.example/$wide

\`\`\`
a fence $wide
\`\`\`
END

# A folder may include its parent folder, which may include the folder's files.
printf '#pragma once\n' | tee lab/above.h >lab/study/below.h
echo '#include "lab/above.h"' >lab/study/upward.c
echo '#include "lab/study/below.h"' >lab/downward.c

complaints() { sh "$lint" 2>/dev/null | sed -nE 's/^([a-z]+\/[^:]*:[0-9]+): .*/\1/p' | sort -u; }
said=$(sh "$lint" 2>/dev/null)
[ -z "$said" ] || { echo "lint_test: reported in a tree without mistakes:" && echo "$said" && exit 1; }

# Mistakes, and where lint must report them.
wrong() { # wrong FILE LINE, the file's text on stdin
  cat >"$1"
  echo "$1:$2" >>expected
}
mkdir -p cuda/conv/lessons
printf '#pragma once\n' >cuda/conv/ptx.cuh
seq 200 | sed 's|^|// |' >>cuda/conv/ptx.cuh # wrappers do not count
cp cuda/conv/ptx.cuh cuda/conv/lessons/lesson.cuh
sed -i 51,\$d cuda/conv/lessons/lesson.cuh
{ printf '#include "cuda/conv/lessons/lesson.cuh"\n#include "cuda/conv/ptx.cuh"\n' && seq 97 | sed 's|^|// |'; } \
  >cuda/conv/lessons/01_short.cu
[ -z "$(complaints)" ] || { echo "lint_test: a lesson of 149 lines is short enough" && exit 1; }
{ cat cuda/conv/lessons/01_short.cu && echo '// one more'; } | wrong cuda/conv/lessons/02_long.cu 1
wrong docs/course/exercises/2_solved.c 2 <<'END'
// ---- your code ----
static int answer;
// ---- end of your code ----
END
wrong nn/upward.c 1 <<'END'
#include "engine/engine.h"
END
wrong nn/angles.c 1 <<'END'
#include <engine/engine.h>
END
wrong nn/roundabout.c 1 <<'END'
#include "nn/../engine/engine.h"
END
wrong nn/macro.c 2 <<'END'
#define THERE "engine/engine.h"
#include THERE
END
wrong ring/no_row.c 1 <<'END'
#include "base/sound.h"
END
wrong base/circle.h 2 <<'END'
#pragma once
#include "base/circle_back.h"
END
printf '#pragma once\n#include "base/circle.h"\n' >base/circle_back.h
printf '#pragma once\n#include "base/half.h"\n' >base/half_private.h
printf '#pragma once\n' >base/half.h
wrong base/half.c 1 <<'END'
#include "base/half_private.h"
END
printf '#pragma once\n#include "test/fuzz/third.h"\n' >test/harness/second.h
printf '#pragma once\n' | tee test/fuzz/third.h >test/harness/first.h
wrong test/fuzz/circle.h 2 <<'END'
#pragma once
#include "test/harness/first.h"
END
wrong cuda/alone.cu 1 <<'END'
__global__ void alone_kernel(int *x) { x[0] = 1; }
END
wrong nn/library.c 1 <<'END'
#include <zlib.h>
END
wrong base/platform.c 1 <<'END'
#ifdef __linux__
#endif
END
wrong nn/unsynced.c 1 <<'END'
int fsync(int);
END
wrong base/guardless.h 1 <<'END'
int guardless;
END
wrong base/alone.h 1 <<'END'
#pragma once
Unknown *alone_of(void);
END
wrong base/layout.c 1 <<'END'
int   layout;
END
wrong base/type.c 1 <<'END'
typedef struct Sound {
  int another;
} Sound;
END
wrong base/type_alias.c 1 <<'END'
typedef int Pitch;
END
wrong base/type_packed.c 1 <<'END'
struct __attribute__((packed)) Sound {
  int another;
};
END
wrong cuda/the_alias.cu 1 <<'END'
using Pitch = int;
END
wrong base/the_hook.c 1 <<'END'
int (*sound_hook)(int);
END
wrong base/the_second.c 1 <<'END'
int lowest, sound_least;
END
wrong base/comma_index.c 1 <<'END'
static int comma_index(const int *a, int b) { return a[b++, 0]; }
END
wrong base/the_function.c 1 <<'END'
int sound_of(int pitch) { return pitch; }
END
wrong base/variable.c 1 <<'END'
const char *const sound_names[2] = {0};
END
wrong cuda/the_kernel.cu 1 <<'END'
__global__ void sound_kernel(float *x) { x[0] = 1; }
END
wrong base/two.c 3 <<'END'
static int two(int a) {
  // clang-format off
  a++; return a;
}
END
wrong base/comma.c 2 <<'END'
static int comma(int a, int b) {
  a = 1, b = 2;
  return a + b;
}
END
wrong base/comma_if.c 2 <<'END'
static int comma_if(int a, int b) {
  if (a > 3) a /= 2, b = 0;
  return a + b;
}
END
wrong base/comma_return.c 1 <<'END'
static int comma_return(int a) { return a++, 0; }
END
wrong base/comma_group.c 2 <<'END'
static int comma_group(int a) {
  int b = a ? 1 : (a++, 0);
  return b;
}
END
wrong base/wide.c 1 <<'END'
// A comment of 121 characters: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
END
wrong test/base/test_nothing.c 1 <<'END'
// Catches nothing.
static int of_no_file;
END
wrong test/base/test_sound_mute.c 1 <<'END'
// Says nothing of what it catches.
END
wrong base/page.md 5 <<END
\`\`\`
$wide
\`\`\`

a $wide
END
wrong base/link.md 1 <<END
[a file](../sound.h)
END
wrong base/anchor.md 1 <<END
[a heading](sound.md#a-footing)
END
sort expected >wanted
complaints >reported
if ! diff wanted reported >difference; then
  echo 'lint_test: < was not reported, > was reported by mistake:'
  grep '^[<>]' difference
  exit 1
fi
echo "lint_test: $(wc -l <wanted) mistakes found, none where there is none"
