// Goes through all registers of all lanes, as listed in the PTX ISA for m16n8k16, and asks for the position of their
// elements.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

static const struct {
  const char *name;
  int registers, halves;
} matrices[] = {[MMA_A] = {"A", 4, 2}, [MMA_B] = {"B", 2, 2}, [MMA_D] = {"D", 4, 1}};

typedef struct Element {
  int row, column;
} Element;

static Element element_at(MmaMatrix matrix, int lane, int i, int half) {
  const int group = lane >> 2, pair = lane % 4 << 1;
  switch (matrix) {
  case MMA_A: return (Element){i == 0 || i == 2 ? group : group + 8, i < 2 ? pair + half : pair + half + 8};
  case MMA_B: return (Element){i == 0 ? pair + half : pair + half + 8, group};
  default: return (Element){i < 2 ? group : group + 8, pair + (i & 1)};
  }
}

static void check(MmaMatrix matrix, int lane, int i, int half) {
  const Element e = element_at(matrix, lane, i, half);
  const MmaPosition got = mma_position(matrix, e.row, e.column);
  const char *name = matrices[matrix].name;
  if (got.lane != lane)
    difference("element (%d, %d) of %s is in lane %d, not in %d", e.row, e.column, name, lane, got.lane);
  if (got.reg != i)
    difference("element (%d, %d) of %s is in register %d of its lane, not in %d", e.row, e.column, name, i, got.reg);
  if (got.high != (half == 1))
    difference("element (%d, %d) of %s is not in the %s half of its register", e.row, e.column, name,
               got.high ? "upper" : "lower");
}

int main(void) {
  for (int matrix = MMA_A; matrix <= MMA_D; matrix++)
    for (int lane = 0; lane < 32; lane++)
      for (int i = 0; i < matrices[matrix].registers; i++)
        for (int half = 0; half < matrices[matrix].halves; half++) check((MmaMatrix)matrix, lane, i, half);
  return solved();
}
