// LoRA pairs of several adapters in one batch, side by side in a stack: a[S,K] and b[N,S], packed,
// where adapter g has the ranks ranks[g][0] .. ranks[g][1]-1 of S. A token uses only its own adapter's ranks,
// so it has the bits of a batch of that adapter, whatever the values of the others.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "cpu/gemm/rows.h"
#include "cpu/gemm/weight.h"
#include "cpu/runtime/event_count.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

/// Adapters begin at multiples of it in the stack: whole panels on every instruction set.
constexpr int64_t kStackStep = 32;
static_assert(kStackStep % kPanel == 0);

/// Which pair each token uses. `adapter` absent: there is no stack.
struct Stack {
  TensorView adapter, ranks, scales;

  explicit operator bool() const { return static_cast<bool>(adapter); }
  int32_t of(int64_t t) const { return adapter.as<const int32_t>()[t]; }
  int64_t first(int32_t g) const { return ranks.as<const int32_t>()[2 * g]; }
  int64_t rank(int32_t g) const { return ranks.as<const int32_t>()[2 * g + 1] - first(g); }
  float scale(int32_t g) const { return scales.as<const float>()[g]; }
};

/// Checks the arguments of a stack for products in `dtype`. `side`: with what the names of all but `adapter` begin.
void check_stack(const char* op, const char* side, const Stack& stack, DType dtype, const TensorView& a,
                 const TensorView& b);

template <typename T>
class StackedRanks {
 public:
  StackedRanks(Stream& stream, const Stack& stack, const TensorView& a, const TensorView& b, int64_t tokens)
      : stack_(stack), a_(a, false), b_(b, false), tokens_(tokens) {
    int64_t widest = 0;
    for (int32_t g = 0; g < stack_.ranks[0]; g++) widest = std::max(widest, stack_.rank(g));
    stride_ = row_stride<T>(widest);
    low_ = stream.scratch.take<T>(tokens * stride_);
    rows_made_ = new (stream.scratch.take<std::atomic<int64_t>>(1)) std::atomic<int64_t>(0);
    made_ = new (stream.scratch.take<EventCount>(1)) EventCount;
  }

  /// One thread's share of the low-rank rows scale·x·Aᵀ.
  void multiply(Worker& worker, int phase, const Rows<T>& x) const {
    const int height = tile_height<T>(tokens_, x.stride());
    for (int64_t t; (t = worker.next(phase) * height) < tokens_;) {
      const int rows = static_cast<int>(std::min<int64_t>(height, tokens_ - t));
      each_run(t, rows, [&](int64_t t, int rows, int32_t g) {
        for (int64_t j = 0; j < stack_.rank(g); j += kPanel) tile(x, t, rows, g, j);
      });
      rows_made_->fetch_add(rows);
      made_->notify();
    }
  }
  /// Until all threads' shares are made. Instead of a barrier: with few rows some threads have no share, and begin with
  /// the frozen product meanwhile.
  void wait() const {
    made_->await([&] { return rows_made_->load() >= tokens_; });
  }

  /// c[height][kTileStride] += low·Bᵀ for the rows from t on and one panel of outputs.
  void add(int height, int64_t t, int64_t panel, float* c) const {
    const T* const b = b_.panel(panel, nullptr);
    each_run(t, height, [&](int64_t run, int rows, int32_t g) {
      gemm_tile<T>(rows, low_ + run * stride_, stride_, b + stack_.first(g) * kPanel, stack_.rank(g),
                   c + (run - t) * kTileStride, true);
    });
  }

 private:
  /// body(t, rows, g) for the runs of neighbouring tokens of one adapter; tokens without one are left out.
  template <typename Body>
  void each_run(int64_t t, int rows, const Body& body) const {
    for (int i = 0, n; i < rows; i += n) {
      const int32_t g = stack_.of(t + i);
      for (n = 1; i + n < rows && stack_.of(t + i + n) == g;) n++;
      if (g >= 0 && stack_.rank(g) > 0) body(t + i, n, g);
    }
  }

  void tile(const Rows<T>& x, int64_t t, int rows, int32_t g, int64_t j) const {
    alignas(64) float c[kTileRows<T> * kTileStride];
    const int64_t columns = std::min(kPanel, stack_.rank(g) - j);
    const T* const a = a_.panel((stack_.first(g) + j) / kPanel, nullptr);
    if (columns <= kLanes) {
      gemm_tile<T, 1>(rows, x.row(t), x.stride(), a, a_.depth(), c, false);
    } else {
      gemm_tile<T, 2>(rows, x.row(t), x.stride(), a, a_.depth(), c, false);
    }
    const float scale = stack_.scale(g);
    for (int i = 0; i < rows; i++) {
      T* const low = low_ + (t + i) * stride_ + j;
      for (int64_t n = 0; n < columns; n++) low[n] = from_float<T>(scale * c[i * kTileStride + n]);
    }
  }

  Stack stack_;
  Panels<T> a_, b_;
  int64_t tokens_, stride_;
  T* low_;
  std::atomic<int64_t>* rows_made_;
  EventCount* made_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
