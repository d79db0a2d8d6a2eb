// The addends that an op's epilogue is tested with, on the CPU and on the GPU.
#pragma once

typedef enum AddendKind { NO_ADDEND, SAME, HALF, DOUBLE, DOUBLE_ODD, ITSELF, ADDEND_KINDS } AddendKind;

// Positions of the addend along an axis on which the destination has `size`.
static inline int addend_size(AddendKind kind, int size) {
  return kind == HALF ? (size + 1) / 2 : kind == DOUBLE ? 2 * size : kind == DOUBLE_ODD ? 2 * size - 1 : size;
}
