// The right side of linear: a weight with its LoRA pair, multiplied panel by panel. linear has one,
// linear_swiglu two of the same rows.
#pragma once

#include <optional>

#include "cpu/gemm/lora.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

template <typename T>
class Projection {
 public:
  /// `u` may be absent; `dropout` masks what the pair sees.
  Projection(Stream& stream, const TensorView& w, const TensorView& lora_a, const TensorView& lora_b,
             const TensorView& u, int64_t tokens, float scale, const Dropout& dropout)
      : weight_(w, false), extra_(lora_b, false) {
    if (lora_a) lora_.emplace(stream, lora_a, false, u, tokens, 1.0f, scale, dropout);
  }

  bool low_rank() const { return lora_.has_value(); }
  bool in_place() const { return weight_.in_place(); }
  int64_t panels() const { return weight_.count(); }
  int64_t columns(int64_t panel) const { return weight_.columns(panel); }
  /// Elements that panel() may fill.
  int64_t buffer_size() const { return weight_size() + (lora_ ? extra_.size() : 0); }

  /// One member's share of packing the pair's first factor; a barrier must follow.
  void pack(Worker& worker, int phase) const {
    if (lora_) lora_->pack(worker, phase);
  }
  /// One member's share of the low-rank rows; a barrier must follow.
  void multiply(Worker& worker, int phase, const Rows<T>& x) const {
    if (lora_) lora_->multiply(worker, phase, x);
  }

  struct Panel {
    const T *weight, *extra;
  };
  Panel panel(int64_t panel, T* buffer) const {
    const T* weight = weight_.panel(panel, buffer);
    T* extra = buffer + weight_size();
    if (lora_) extra_.fill(panel, extra);
    return {weight, extra};
  }

  /// c[height][kTileStride] of the rows from t on.
  void tile(int height, const Rows<T>& x, int64_t t, const Panel& panel, float* c) const {
    gemm_tile<T>(height, x.row(t), x.stride(), panel.weight, weight_.depth(), c, false);
    if (lora_) gemm_tile<T>(height, lora_->row(t), lora_->stride(), panel.extra, lora_->rank(), c, true);
  }

 private:
  int64_t weight_size() const { return weight_.in_place() ? 0 : weight_.size(); }

  Panels<T> weight_, extra_;
  std::optional<LowRank<T>> lora_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
