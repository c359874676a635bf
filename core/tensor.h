// What a kernel sees of a tensor: a typed, shaped window on a buffer. Never owns memory.
#pragma once

#include <array>
#include <cstdint>

#include "core/quantized.h"

namespace steptrain {

enum class DType : uint8_t { f32, bf16, i32, u8 };

constexpr int kMaxRank = 4;

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
    default:
      return 4;
  }
}

constexpr const char* name_of(DType dtype) {
  constexpr const char* names[] = {"f32", "bf16", "i32", "u8"};
  return names[static_cast<int>(dtype)];
}

/// Storage type of bf16: the upper half of an IEEE single.
struct bf16 {
  uint16_t bits;
};

/// Row-major unless `packed`: then [N, K] weights lie in the panels of the device's GEMM (cpu/gemm/packed.h),
/// and only ops whose signature says `W` accept them. With a `format` too: quantised, of dtype u8, for those that say `Q`.
/// Packed [E, N, K] are E such weights, one after the other.
struct TensorView {
  void* data = nullptr;
  std::array<int64_t, kMaxRank> shape{};
  int rank = 0;
  DType dtype = DType::f32;
  bool packed = false;
  Format format = Format::none;

  explicit operator bool() const { return data != nullptr; }
  int64_t operator[](int axis) const { return shape[static_cast<size_t>(axis)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  int64_t bytes() const { return numel() * size_of(dtype); }
  /// The weight [N, K] of [E, N, K] that begins `bytes` after the first.
  TensorView weight(int64_t bytes) const {
    TensorView one = *this;
    one.rank = 2;
    one.shape = {shape[1], shape[2]};
    one.data = static_cast<char*>(data) + bytes;
    return one;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace steptrain
