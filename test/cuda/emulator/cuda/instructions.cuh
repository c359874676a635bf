// The emulator's twin of cuda/instructions.cuh, after the PTX ISA's description of each instruction.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulator.h"

namespace steptrain::cuda {

inline uint16_t round_to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (std::isnan(x)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline uint32_t round_to_bf16_pair(float first, float second) {
  return round_to_bf16(first) | static_cast<uint32_t>(round_to_bf16(second)) << 16;
}

inline char* dynamic_shared() {
  return static_cast<char*>(emulator::dynamic_shared());
}

inline void take_turn() {
  emulator::wait_for_predecessor();
}

inline float exp2_approximate(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline void forget(int64_t&) {}
inline void forget(uint32_t&) {}

inline void cp_async(void* to_shared, const void* from, bool inside) {
  emulator::start_copy(to_shared, from, inside);
}
inline void cp_async_commit() {
  emulator::cp_async_commit();
}
template <int pending>
void cp_async_wait() {
  emulator::cp_async_wait(pending);
}

/// The row that lane `lane` points at, with its current values.
struct MatrixRow {
  uint16_t element[8];
};
inline MatrixRow matrix_row(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    emulator::forbid("ldmatrix of a row that is not 16-byte aligned");
  MatrixRow value;
  std::memcpy(&value, row, sizeof value);
  return value;
}
inline uint32_t pair(uint16_t lower, uint16_t upper) {
  return lower | static_cast<uint32_t>(upper) << 16;
}

inline void ldmatrix(uint32_t (&r)[4], const void* row) {
  const MatrixRow mine = matrix_row(row);
  const auto& all = emulator::exchange("ldmatrix", &mine, sizeof mine);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; i++) {
    const auto from = emulator::lane_value<MatrixRow>(all, 8 * i + lane / 4);
    r[i] = pair(from.element[lane % 4 * 2], from.element[lane % 4 * 2 + 1]);
  }
}
inline void ldmatrix_trans(uint32_t (&r)[4], const void* row) {
  const MatrixRow mine = matrix_row(row);
  const auto& all = emulator::exchange("ldmatrix.trans", &mine, sizeof mine);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; i++) {
    const int first = 8 * i + lane % 4 * 2;
    r[i] = pair(emulator::lane_value<MatrixRow>(all, first).element[lane / 4],
                emulator::lane_value<MatrixRow>(all, first + 1).element[lane / 4]);
  }
}

inline float half_of(uint32_t pair, int which) {
  return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}

inline void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragment {
    uint32_t a[4], b[2];
  } mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const auto& all = emulator::exchange("mma", &mine, sizeof mine);
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + (i / 2) * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; k++) {
      // a: rows of a thread group g = row%8, register 2·(k ≥ 8) + (row ≥ 8);
      // b: register k ≥ 8, group = column.
      const auto from_a = emulator::lane_value<Fragment>(all, row % 8 * 4 + k % 8 / 2);
      const auto from_b = emulator::lane_value<Fragment>(all, column * 4 + k % 8 / 2);
      const float x = half_of(from_a.a[k / 8 * 2 + row / 8], k % 2), y = half_of(from_b.b[k / 8], k % 2);
      d[i] = std::fma(x, y, d[i]);
    }
  }
}

}  // namespace steptrain::cuda
