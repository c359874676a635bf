// The calling convention of every kernel, on every device: `void op(Stream&, const Args&)`, tensors in the
// order of the op's signature (inputs, then outputs;
// an absent optional one is a false TensorView), scalars likewise.
#pragma once

#include <array>
#include <cstdint>

#include "core/tensor.h"

namespace steptrain {

constexpr int kMaxTensors = 24;
constexpr int kMaxScalars = 16;

struct Args {
  std::array<TensorView, kMaxTensors> tensor{};
  std::array<double, kMaxScalars> scalar{};

  /// `const auto [x, w, y] = args.tensors<3>();`
  template <int N>
  std::array<TensorView, N> tensors() const {
    std::array<TensorView, N> out;
    for (int i = 0; i < N; i++) out[static_cast<size_t>(i)] = tensor[static_cast<size_t>(i)];
    return out;
  }
  float f(int i) const { return static_cast<float>(scalar[static_cast<size_t>(i)]); }
  double d(int i) const { return scalar[static_cast<size_t>(i)]; }
  int64_t i(int i) const { return static_cast<int64_t>(scalar[static_cast<size_t>(i)]); }
};

}  // namespace steptrain
