// The addends that an op's epilogue is tested with, on the CPU and on the GPU.
#pragma once

typedef enum AddendType { NO_ADDEND, SAME, HALF, DOUBLE, DOUBLE_ODD, ITSELF, ADDEND_TYPES } AddendType;

// Positions of the addend along an axis on which the destination has `size`.
static inline int addend_size(AddendType type, int size) {
  return type == HALF ? (size + 1) / 2 : type == DOUBLE ? 2 * size : type == DOUBLE_ODD ? 2 * size - 1 : size;
}
