// The LoRA pair inside linear and linear_dx: a first phase computes the low-rank rows (u = drop(x)·Aᵀ,
// v = scale·dy·B); the frozen product then continues its sum over K with them, over the rank.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/lora.h"
#include "cpu/gemm/dropout.h"
#include "cpu/gemm/rows.h"
#include "cpu/gemm/weight.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Checks the arguments of the mask for `tokens` rows. Without a LoRA pair there is no mask.
Dropout dropout_of(const char* op, int64_t tokens, const TensorView& lora_a, const TensorView& lora_b,
                   const TensorView& row_ids, const TensorView& positions, double rate, int64_t key0,
                   int64_t key1);

/// In a region of its own (cpu/gemm/pair_gradients.h).
void add_lora_gradients(Stream& stream, const LoraGradients& gradients, const TensorView& dy,
                        const TensorView& v, float scale, const Dropout& dropout);

/// out[rows, rank] = x[rows, depth] · `adapter`, in two phases of the caller's region.
template <typename T>
class LowRank {
 public:
  /// `out` (f32, may be absent) gets stored·product; the frozen product continues with multiplied·product.
  /// `dropout` masks x. Of an adapter [E,…] rows are multiplied by that of their own expert, by multiply() with one.
  LowRank(Stream& stream, const TensorView& adapter, bool transposed, const TensorView& out, int64_t rows,
          float stored, float multiplied, const Dropout& dropout)
      : adapter_(adapter.rank == 3 ? adapter.weight(0) : adapter, transposed),
        out_(out ? out.as<float>() : nullptr),
        rows_(rows),
        rank_(adapter_.outputs()),
        stored_(stored),
        multiplied_(multiplied),
        dropout_(dropout),
        panels_(stream.scratch.take<T>((adapter.rank == 3 ? stream.pool.threads() : 1) * adapter_.count() *
                                       adapter_.size())),
        stride_(row_stride<T>(rank_)),
        data_(stream.scratch.take<T>(rows * stride_)) {
    if (!dropout_) return;
    dropped_size_ = kTileRows<T> * row_stride<T>(adapter_.depth());
    factors_size_ = Dropout::row_floats(adapter_.depth());
    dropped_ = stream.scratch.take<T>(stream.pool.threads() * dropped_size_);
    factors_ = stream.scratch.take<float>(stream.pool.threads() * factors_size_);
  }

  int64_t rank() const { return rank_; }
  int64_t stride() const { return stride_; }
  const T* row(int64_t t) const { return data_ + t * stride_; }

  /// One thread's share of packing the adapter. A barrier must follow.
  void pack(Worker& worker, int phase) const {
    constexpr int64_t chunk = 512;
    const int64_t chunks = (adapter_.depth() + chunk - 1) / chunk;
    for (int64_t task; (task = worker.next(phase)) < adapter_.count() * chunks;) {
      const int64_t panel = task / chunks, first = task % chunks * chunk;
      adapter_.fill(panel, first, std::min(first + chunk, adapter_.depth()),
                    panels_ + panel * adapter_.size() + first * kPanel);
    }
  }

  /// One thread's share of the rows. A barrier must follow.
  void multiply(Worker& worker, int phase, const Rows<T>& x) const {
    const int height = tile_height<T>(rows_, x.stride());
    for (int64_t t; (t = worker.next(phase) * height) < rows_;) {
      tiles(worker.index, x, t, static_cast<int>(std::min<int64_t>(height, rows_ - t)), panels_, multiplied_);
    }
  }
  /// Rows [first, last), by an adapter that the member packs for them, with a `multiplied` of their own.
  void multiply(int member, const Rows<T>& x, int64_t first, int64_t last, const Panels<T>& adapter,
                float multiplied) const {
    T* const panels = panels_ + member * adapter.count() * adapter.size();
    for (int64_t panel = 0; panel < adapter.count(); panel++)
      adapter.fill(panel, panels + panel * adapter.size());
    each_tile<T>(first, last, x.stride(),
                 [&](int64_t t, int rows) { tiles(member, x, t, rows, panels, multiplied); });
  }

 private:
  /// A tile of rows by all panels.
  void tiles(int member, const Rows<T>& x, int64_t t, int rows, const T* panels, float multiplied) const {
    const T* from = x.row(t);
    int64_t stride = x.stride();
    if (dropout_) {
      stride = row_stride<T>(adapter_.depth());
      from = drop(member, x, t, rows, stride);
    }
    for (int64_t panel = 0; panel < adapter_.count(); panel++)
      tile(t, rows, from, stride, panel, panels + panel * adapter_.size(), multiplied);
  }

  const T* drop(int member, const Rows<T>& x, int64_t t, int rows, int64_t stride) const {
    T* dropped = dropped_ + member * dropped_size_;
    float* factors = factors_ + member * factors_size_;
    const int64_t depth = adapter_.depth();
    for (int i = 0; i < rows; i++) {
      dropout_.row(t + i, depth, factors);
      const T* from = x.row(t + i);
      T* to = dropped + i * stride;
      each_vector(depth, [&](int64_t k, auto... n) {
        store(to + k, load(from + k, n...) * load(factors + k, n...), n...);
      });
    }
    return dropped;
  }

  void tile(int64_t t, int rows, const T* x, int64_t stride, int64_t panel, const T* weights,
            float multiplied) const {
    alignas(64) float c[kTileRows<T> * kTileStride];
    const int64_t columns = adapter_.columns(panel), depth = adapter_.depth();
    if (columns <= kLanes) {
      gemm_tile<T, 1>(rows, x, stride, weights, depth, c, false);
    } else {
      gemm_tile<T, 2>(rows, x, stride, weights, depth, c, false);
    }
    for (int i = 0; i < rows; i++) {
      for (int64_t j = 0; j < columns; j++) {
        const float value = c[i * kTileStride + j];
        const int64_t at = panel * kPanel + j;
        if (out_) out_[(t + i) * rank_ + at] = stored_ * value;
        data_[(t + i) * stride_ + at] = from_float<T>(multiplied * value);
      }
    }
  }

  Panels<T> adapter_;
  float* out_;
  int64_t rows_, rank_;
  float stored_, multiplied_;
  const Dropout& dropout_;
  T* panels_;
  int64_t stride_;
  T* data_;
  T* dropped_ = nullptr;
  float* factors_ = nullptr;
  int64_t dropped_size_ = 0, factors_size_ = 0;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
