// The product of linear_dx, a panel of W's features at a time: dy·W + mask·(v·A). Each task transposes its panel of W (the
// forward pairs bf16 along K, this product along N) and multiplies rows by it.
#pragma once

#include <utility>

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
  int64_t buffer_size() const { return panel_stride<T>(part()) + (lora_ ? lora_a_.size() : 0) + sums_size(); }

  /// Panel p of the rows [first, last) of dx, which they are stored in, or added to. `next`: a panel that comes soon, which is
  /// asked for meanwhile if there is one.
  void add(int64_t p, int64_t next, const Rows<T>& dy, int64_t first, int64_t last, T* buffer,
           const TensorView& dx, bool accumulate) const {
    const int64_t columns = weight_.columns(p);
    T* const lora_panel = buffer + panel_stride<T>(part());
    if (lora_) lora_a_.fill(p, lora_panel);
    const auto finish = [&](int64_t t, int height, float* c, const auto& sums) {
      const Added<T> added{dx.as<T>() + t * dx[1] + p * kPanel, dx[1], accumulate};
      if (!lora_) return put_columns(columns, height, c, sums, added);
      sums(Kept{});
      if (dropout_) {
        add_masked(t, height, p, lora_panel, c);
        return put_columns(columns, height, c, InMemory{height, c}, added);
      }
      put_columns(
          columns, height, c,
          [&](const auto& put) {
            gemm_tile<T>(height, lora_->row(t), lora_->stride(), lora_panel, lora_->rank(), c, true, nullptr,
                         put);
          },
          added);
    };
    if constexpr (kOrders<T>) {
      weight_.fill(p, buffer);
      each_block<T>(first, last, dy.stride(), [&](int64_t t, int64_t count) {
        alignas(64) float c[kBlockRows<T> * kTileStride];
        gemm_block<T>(count, dy.left(t, count), buffer, weight_.depth(), c, nullptr, false,
                      [&](int64_t r, int height, const auto& sums) {
                        finish(t + r, height, c + r * kTileStride, sums);
                      });
      });
    } else {
      // Sums of all rows, where they go on over several parts of W.
      float* const sums = reinterpret_cast<float*>(buffer + buffer_size() - sums_size());
      const int64_t depth = weight_.depth(), rows = part() < depth ? kTileStride : 0;
      int64_t n = 0, after;  // outputs of W before this part, and before the next one; 0: it is the last
      do {
        const int64_t count = std::min(part(), depth - n);
        after = n + count < depth ? n + count : 0;
        weight_.fill(p, n, n + count, buffer);
        Squares squares(weight_, after ? p : next, after, std::min(after + part(), depth));
        each_tile<T>(first, last, dy.stride(), [&](int64_t t, int height) {
          float* const c = sums + (t - first) * rows;
          const auto product = [&](const auto& put) {
            multiply(height, dy.row(t) + n, dy.stride(), buffer, count, c, n > 0, squares, put);
          };
          after ? product(Kept{}) : finish(t, height, c, product);
        });
      } while ((n = after));
    }
  }

 private:
  /// Outputs of W that are transposed at a time: what is made of them and what comes next stay in the L2 cache.
  int64_t part() const {
    constexpr int64_t most = kPartBytes / (kPanel * sizeof(T));
    return kOrders<T> ? weight_.depth() : std::min(weight_.depth(), most);
  }
  static constexpr int64_t kPartBytes = 131072;
  /// Of the sums of a task's rows.
  int64_t sums_size() const {
    if (kOrders<T>) return 0;
    const int64_t rows = part() < weight_.depth() ? Grid<T>::kMostRows : kTileRows<T>;
    return rows * kTileStride * int64_t{sizeof(float) / sizeof(T)};
  }

  /// Elements that are asked for a k: four tiles ask for all that a panel is transposed from.
  static constexpr int64_t kAsked = kPanel / 4;

  /// The squares of W from which a panel is to be transposed, of outputs [first, last), one after the other.
  class Squares {
   public:
    Squares(const Panels<T>& weight, int64_t panel, int64_t first, int64_t last)
        : weight_(weight),
          panel_(panel),
          next_(first * kPanel),
          end_(panel < weight.count() && weight.squares() > 0 ? last * kPanel : 0) {}

    /// Where kAsked elements lie together for each of some of `count` k, that have not been asked for, and of how many k; 0:
    /// none are left.
    std::pair<const T*, int64_t> take(int64_t count) {
      if (next_ >= end_) return {nullptr, 0};
      constexpr int64_t step = kAsked * kSteps<T>;
      const int64_t in = next_ % kSize, rest = (kSize - in + step - 1) / step * kSteps<T>;
      const T* const at = weight_.square(panel_, next_ / kSize) + in;
      count = std::min(count, rest);
      next_ += count * kAsked;
      return {at, count};
    }

   private:
    static constexpr int64_t kSize = kPanel * kPanel;

    const Panels<T>& weight_;
    int64_t panel_, next_, end_;
  };

  /// A tile, which asks for some of the squares: at once they would hold up what the tile itself reads.
  template <typename Put>
  static void multiply(int rows, const T* dy, int64_t stride, const T* panel, int64_t depth, float* c,
                       bool accumulate, Squares& squares, const Put& put) {
    int64_t k = 0;
    do {
      const auto [ahead, some] = squares.take(depth - k);
      const int64_t count = ahead ? some : depth - k;
      const auto tile = [&]<typename P>(const P& put) {
        const auto run = ahead ? gemm_tile<T, 2, kAsked, P> : gemm_tile<T, 2, 0, P>;
        run(rows, dy + k, stride, panel + k * kPanel, count, c, accumulate || k > 0, ahead, put);
      };
      k + count < depth ? tile(Kept{}) : tile(put);
      k += count;
    } while (k < depth);
  }

  void add_masked(int64_t t, int height, int64_t p, const T* panel, float* c) const {
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
