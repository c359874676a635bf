// The gradients of a LoRA pair: da[r,K] += vᵀ·drop(x), db[N,r] += scale·dyᵀ·u over some rows, in two phases of the caller's
// region: tasks transpose u and v, then each multiplies them by a panel of x or of dy, over rows in fixed chunks, in order.
// Each element has one f32 accumulator, so the result does not depend on the thread count.
#pragma once

#include "cpu/gemm/lora.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// X: the dtype of x, Y: of dy, T: of the products. Floats that stand for bf16 are rounded to it, so that the bits are those
/// of products of bf16.
template <typename T, typename X, typename Y = T>
class PairGradients {
 public:
  /// Rows [first, last) of x, dy, u and v, whose gradients are added to da and db. `transposed`: as many as
  /// transposed_size() says.
  struct Part {
    int64_t first, last;
    float *da, *db;
    T* transposed;
    int64_t count() const { return last - first; }
  };

  PairGradients(Stream& stream, const TensorView& x, const TensorView& dy, const TensorView& u,
                const TensorView& v, float scale, const Dropout& dropout)
      : x_(x),
        dy_(dy),
        u_(u.as<const float>()),
        v_(v.as<const float>()),
        rank_(u[1]),
        scale_(scale),
        dropout_(dropout) {
    const int64_t threads = stream.pool.threads();
    panels_ = stream.scratch.take<T>(threads * kPanelSize);
    sums_ = stream.scratch.take<float>(threads * rank_ * kTileStride);
    if (dropout_) factors_ = stream.scratch.take<float>(threads * kRows * kPanel);
  }

  int64_t transposed_size(int64_t rows) const { return 2 * rank_ * row_stride<T>(rows); }
  int64_t transposes(int64_t rows) const { return 2 * ((rows + kRows - 1) / kRows); }
  void transpose(const Part& part, int64_t task) const {
    const int64_t at = task / 2 * kRows, count = std::min(kRows, part.count() - at);
    const float* const from = (task % 2 ? v_ : u_) + (part.first + at) * rank_;
    T* const to = (task % 2 ? vt(part) : ut(part)) + at;
    transpose_rows<T>(from, rank_, count, rank_, to, stride(part));
    if constexpr (kRounds)
      for (int64_t i = 0; i < rank_; i++) round_all(to + i * stride(part), count);
  }

  int64_t products(int64_t rows) const { return rows ? panels(x_[1]) + panels(dy_[1]) : 0; }
  /// After all transposes of the part.
  void multiply(int member, const Part& part, int64_t task) const {
    const int64_t of_x = panels(x_[1]);
    T* const panel = panels_ + member * kPanelSize;
    float* const c = sums_ + member * rank_ * kTileStride;
    if (task < of_x) return of_a(part, task * kPanel, panel, c, member);
    of_b(part, (task - of_x) * kPanel, panel, c);
  }

 private:
  static constexpr int64_t kRows = 512;  // a panel, at most 64 KiB, and as many dropout factors stay in L2
  static constexpr int64_t kPanelSize = panel_stride<T>(kRows);
  static constexpr bool kRounds = sizeof(T) != sizeof(Y);

  static void round_all(float* values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = to_float(from_float<bf16>(values[i]));
  }

  int64_t stride(const Part& part) const { return row_stride<T>(part.count()); }
  T* ut(const Part& part) const { return part.transposed; }
  T* vt(const Part& part) const { return part.transposed + rank_ * stride(part); }

  /// One panel of a gradient: c[rank, kPanel] = left[rank, rows]·panel. `fill` packs the panel, a chunk of rows at a time.
  template <typename Fill>
  void reduce(const Part& part, const T* left, const T* panel, float* c, const Fill& fill) const {
    for (int64_t at = 0; at < part.count(); at += kRows) {
      const int64_t count = std::min(kRows, part.count() - at);
      fill(part.first + at, count);
      each_tile<T>(0, rank_, stride(part), [&](int64_t i, int height) {
        gemm_tile<T>(height, left + i * stride(part) + at, stride(part), panel, count, c + i * kTileStride,
                     at > 0);
      });
    }
  }

  void of_a(const Part& part, int64_t k, T* panel, float* c, int member) const {
    const int64_t features = x_[1], columns = std::min(kPanel, features - k);
    float* const factors = dropout_ ? factors_ + member * kRows * kPanel : nullptr;
    reduce(part, vt(part), panel, c, [&](int64_t first, int64_t count) {
      const X* from = x_.as<const X>() + first * features + k;
      if (!dropout_) return pack_columns<T>(from, features, columns, count, panel);
      dropout_.window(first, count, k, factors);
      for (int64_t t = 0; t < count; t++) {
        float* row = factors + t * kPanel;
        each_vector(columns, [&](int64_t j, auto... n) {
          store(row + j, load(row + j, n...) * load(from + t * features + j, n...), n...);
        });
        if constexpr (kRounds) round_all(row, columns);
      }
      pack_columns<T>(factors, kPanel, columns, count, panel);
    });
    for (int64_t i = 0; i < rank_; i++) {
      float* out = part.da + i * features + k;
      for (int64_t j = 0; j < columns; j++) out[j] += c[i * kTileStride + j];
    }
  }

  void of_b(const Part& part, int64_t n, T* panel, float* c) const {
    const int64_t outputs = dy_[1], columns = std::min(kPanel, outputs - n);
    reduce(part, ut(part), panel, c, [&](int64_t first, int64_t count) {
      pack_columns<T>(dy_.as<const Y>() + first * outputs + n, outputs, columns, count, panel);
    });
    for (int64_t j = 0; j < columns; j++) {
      float* out = part.db + (n + j) * rank_;
      for (int64_t i = 0; i < rank_; i++) out[i] += scale_ * c[i * kTileStride + j];
    }
  }

  const TensorView &x_, &dy_;
  const float *u_, *v_;
  int64_t rank_;
  float scale_;
  const Dropout& dropout_;
  T* panels_;
  float *sums_, *factors_ = nullptr;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
