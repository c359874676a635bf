// The product of linear_dx, a panel of W's features at a time: dy·W + mask·(v·A). Each task transposes its panel of W (the
// forward pairs bf16 along K, this product along N) and multiplies rows by it.
#pragma once

#include "cpu/gemm/lora.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

template <typename T>
class InputGradient {
 public:
  /// `lora` has the rows v, or is null. The mask is on x, not on dy.
  InputGradient(const TensorView& w, const TensorView& lora_a, const LowRank<T>* lora, const Dropout& dropout)
      : weight_(w, true), lora_a_(lora_a, true), lora_(lora), dropout_(dropout) {}

  int64_t panels() const { return weight_.count(); }
  /// Elements of the buffer of add().
  int64_t buffer_size() const { return weight_.size() + (lora_ ? lora_a_.size() : 0); }

  /// Panel p of the rows [first, last) of dx, which they are stored in, or added to.
  void add(int64_t p, const Rows<T>& dy, int64_t first, int64_t last, T* buffer, const TensorView& dx,
           bool accumulate) const {
    const int64_t columns = weight_.columns(p);
    T* const lora_panel = buffer + weight_.size();
    weight_.fill(p, buffer);
    if (lora_) lora_a_.fill(p, lora_panel);
    each_part(first, last, [&](int64_t t, int64_t count) {
      alignas(64) float c[kPartRows * kTileStride];
      gemm_block<T>(count, dy.left(t, count), buffer, weight_.depth(), c, nullptr);
      if (lora_)
        each_tile<T>(0, count, [&](int64_t i, int height) {
          add_pair(t + i, height, p, lora_panel, c + i * kTileStride);
        });
      for (int64_t i = 0; i < count; i++) {
        T* const out = dx.as<T>() + (t + i) * dx[1] + p * kPanel;
        const auto put = [&](int64_t j, auto... n) {
          const vf sum = load(c + i * kTileStride + j);
          store(out + j, accumulate ? load(out + j, n...) + sum : sum, n...);
        };
        if (columns < kPanel) {
          each_vector(columns, put);
          continue;
        }
#pragma GCC unroll 2
        for (int64_t j = 0; j < kPanel; j += kLanes) put(j);
      }
    });
  }

 private:
  // Rows of dx lie far apart, so a store waits for its line. Those of one tile are on their way while the next is multiplied;
  // only what is widened or put in order is multiplied a block at a time.
  static constexpr int64_t kPartRows = kOrders<T> ? kBlockRows<T> : kTileRows<T>;
  template <typename Body>
  static void each_part(int64_t first, int64_t last, const Body& body) {
    if constexpr (kOrders<T>) {
      each_block<T>(first, last, body);
    } else {
      each_tile<T>(first, last, body);
    }
  }

  void add_pair(int64_t t, int height, int64_t p, const T* panel, float* c) const {
    if (!dropout_) return gemm_tile<T>(height, lora_->row(t), lora_->stride(), panel, lora_->rank(), c, true);
    alignas(64) float low[kTileRows<T> * kTileStride], factors[(kTileRows<T> + 1) * kPanel];
    gemm_tile<T>(height, lora_->row(t), lora_->stride(), panel, lora_->rank(), low, false);
    dropout_.window(t, height, p * kPanel, factors);
    for (int i = 0; i < height * kPanel; i += kLanes) {
      store(c + i, fma(load(low + i), load(factors + i), load(c + i)));
    }
  }

  Panels<T> weight_, lora_a_;
  const LowRank<T>* lora_;
  const Dropout& dropout_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
