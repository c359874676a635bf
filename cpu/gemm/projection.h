// The right side of linear: a weight with its LoRA pair, multiplied panel by panel. linear has one,
// linear_swiglu has two for the same rows.
#pragma once

#include <optional>

#include "cpu/gemm/lora.h"
#include "cpu/gemm/stack.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

template <typename T>
class Projection {
 public:
  /// `u` may be absent. `dropout` masks the pair's input.
  Projection(Stream& stream, const TensorView& w, const TensorView& lora_a, const TensorView& lora_b,
             const TensorView& u, int64_t tokens, float scale, const Dropout& dropout)
      : weight_(w, false),
        lora_b_(lora_b, false),
        decodes_(weight_.decodes(tokens)),
        scales_sums_(weight_.scales_sums()) {
    if (lora_a) own_.emplace(stream, lora_a, false, u, tokens, 1.0f, scale, dropout);
  }
  /// Of `tokens` rows whose low-rank rows, if there are any, are made elsewhere.
  Projection(const TensorView& w, const TensorView& lora_b, int64_t tokens, const LowRank<T>* lora)
      : weight_(w, false),
        lora_b_(lora_b, false),
        decodes_(weight_.decodes(tokens)),
        scales_sums_(weight_.scales_sums()),
        shared_(lora) {}
  /// Adds the pairs of a stack, instead of one pair.
  void add_stack(Stream& stream, const Stack& stack, const TensorView& a, const TensorView& b,
                 int64_t tokens) {
    stacked_.emplace(stream, stack, a, b, tokens);
  }

  bool has_pair() const { return low_rank() != nullptr; }
  /// Features of x that Rows has to sum; 0: none.
  int64_t summed() const { return scales_sums_ && weight_.takes_sums() ? weight_.block() : 0; }
  bool in_place() const { return weight_.in_place(); }
  /// Whether panels are made of it, by panel() or for each block.
  bool fills() const { return !weight_.in_place() && !decodes_; }
  int64_t panels() const { return weight_.count(); }
  int64_t columns(int64_t panel) const { return weight_.columns(panel); }
  /// Elements that panel() may fill.
  int64_t buffer_size() const { return weight_size() + (low_rank() ? lora_b_.size() : 0); }

  /// One thread's share of packing the pair's first factor. A barrier must follow.
  void pack(Worker& worker, int phase) const {
    if (own_) own_->pack(worker, phase);
  }
  /// One thread's share of the low-rank rows. A barrier must follow that of a pair; a stack's are waited for in block().
  void multiply(Worker& worker, int phase, const Rows<T>& x) const {
    if (own_) own_->multiply(worker, phase, x);
    if (stacked_) stacked_->multiply(worker, phase, x);
  }

  struct Panel {
    int64_t number;
    const T *weight, *lora;
  };
  Panel panel(int64_t panel, T* buffer) const {
    const T* weight = decodes_ || scales_sums_ ? nullptr : weight_.panel(panel, buffer);
    T* lora = buffer + weight_size();
    if (low_rank()) lora_b_.fill(panel, lora);
    return {panel, weight, lora};
  }

  /// c[rows][kTileStride] for the rows from t on, at most kBlockRows<T>; done(r, n, sums) as of gemm_block. The panel is one of a
  /// run of panels up to `last` that are read from memory; 0: it is in a cache.
  template <typename Done = Keep>
  void block(int64_t rows, const Rows<T>& x, int64_t t, const Panel& panel, float* c, int64_t last,
             const Done& done = {}) const {
    const LowRank<T>* const low = low_rank();
    const auto finish = [&](int64_t r, int height, const auto& sums) {
      if (!low && !stacked_) return done(r, height, sums);
      float* const own = c + r * kTileStride;
      sums(Kept{});
      if (low)
        return done(r, height, [&](const auto& put) {
          gemm_tile<T>(height, low->row(t + r), low->stride(), panel.lora, low->rank(), own, true, nullptr,
                       put);
        });
      stacked_->wait();
      stacked_->add(height, t + r, panel.number, own);
      done(r, height, InMemory{height, own});
    };
    if (scales_sums_) {
      weight_.multiply_scaled(rows, x.row(t), x.stride(), panel.number, x.sums(t), c);
      each_tile<T>(0, rows, x.stride(), [&](int64_t r, int height) {
        finish(r, height, InMemory{height, c + r * kTileStride});
      });
    } else if (decodes_) {
      weight_.multiply_decoded(static_cast<int>(rows), x.row(t), x.stride(), panel.number, c);
      finish(0, static_cast<int>(rows), InMemory{static_cast<int>(rows), c});
    } else {
      const T* const end = last && in_place() ? weight_.panel(last, nullptr) : nullptr;
      gemm_block<T>(rows, x.left(t, rows), panel.weight, weight_.depth(), c, end, false, finish);
    }
  }

 private:
  const LowRank<T>* low_rank() const { return own_ ? &*own_ : shared_; }
  int64_t weight_size() const { return weight_.in_place() || decodes_ || scales_sums_ ? 0 : weight_.size(); }

  Panels<T> weight_, lora_b_;
  bool decodes_, scales_sums_;
  std::optional<LowRank<T>> own_;
  const LowRank<T>* shared_ = nullptr;
  std::optional<StackedRanks<T>> stacked_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
