// The head's products on the host, for some rows and a span of the vocabulary at a time: the weights that an
// epilogue makes of the logits, and the products of these weights. Spans have one size and come in order, so
// that a row's bits depend on that row alone.
#pragma once

#include <algorithm>

#include "cuda/gemm/quantized.h"
#include "cuda/head/epilogues.cuh"

namespace steptrain::cuda {

constexpr int64_t kSpanRows = 2048;  // max rows whose weights are in memory at a time

/// Tokens of a span. Its weights, 2,048 rows by 8,192 tokens in bf16 = 32 MiB (f32: 16), stay in the L2 cache
/// of a large GPU.
inline int64_t span_tokens(DType dtype) {
  return dtype == DType::bf16 ? 8192 : 2048;
}

/// The products of an op of the head.
class Head {
 public:
  Head(Stream& stream, const TensorView& x, const TensorView& w)
      : stream_(stream), x_(x), w_(w), bf16_(x.dtype == DType::bf16) {
    if (is_quantized()) {
      values_ = w;
      values_.format = Format::none, values_.packed = false, values_.dtype = x.dtype;
      values_.shape[0] = std::min(w[0], span_tokens(x.dtype));
      values_.data = stream.scratch.take<char>(values_.bytes());
    }
    if (!bf16_) return;
    Product p;
    p.a = rows(0, x[0]), p.b = factor(w);
    loading_ = loading_of(stream, p);
  }

  /// body(first token, tokens) for each span of at most `limit` tokens, in order. Workspace that it takes is
  /// freed after it.
  template <typename F>
  void each_span(int64_t limit, F body) const {
    for (int64_t first = 0; first < w_[0]; first += limit) {
      const Scratch::Mark mark = stream_.scratch.mark();
      body(first, std::min(limit, w_[0] - first));
      stream_.scratch.rewind(mark);
    }
  }

  /// The parts of the softmax of rows [row, row + count) and their targets' logits, in workspace.
  Fold fold(int64_t row, int64_t count, const int32_t* targets, float inverse) const {
    const int64_t parts = bf16_ ? fold_parts(loading_) : 1;
    Fold fold{};
    fold.parts_per_row = (w_[0] + Fold::kColumns - 1) / Fold::kColumns * parts;
    fold.parts = stream_.scratch.take<SoftmaxPart>(count * fold.parts_per_row);
    fold.target_logits = stream_.scratch.take<float>(count);
    fold.targets = targets;
    fold.scale = inverse * kLog2e;
    // One launch for all tokens, or one per span where W must be rounded or dequantised into workspace first.
    const bool rounds = bf16_ && w_.dtype == DType::f32 && loading_ != Loading::registers;
    each_span(rounds || is_quantized() ? span_tokens(x_.dtype) : std::max<int64_t>(w_[0], 1),
              [&](int64_t first, int64_t n) {
                fold.first_token = static_cast<int32_t>(first);
                fold.first_part = first / Fold::kColumns * parts;
                const Product p = logits(row, count, first, n);
                bf16_ ? run_bf16(p, fold) : head_product_f32(stream_, p, fold);
              });
    return fold;
  }

  /// Rows whose weights are made at a time: on Hopper the number from 1,024 to kSpanRows with which the two
  /// products of a span leave the fewest multiprocessors idle in the last wave. The bits of a row do not
  /// depend on it.
  int64_t span_rows() const {
    if (loading_ != Loading::tma) return std::min(x_[0], kSpanRows);
    constexpr int64_t kTileRows = 128, kWide = 256, kNarrow = 128;  // as cuda/head/sm90_product.cu chooses
    const int64_t blocks = stream_.hardware.multiprocessors, tokens = span_tokens(x_.dtype);
    const auto rounded_up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
    const auto time = [&](int64_t down, int64_t columns, int64_t depth) {
      const int64_t width = down * rounded_up(columns, kWide) >= blocks ? kWide : kNarrow;
      return rounded_up(down * rounded_up(columns, width), blocks) * width * depth;
    };
    int64_t best = 0;
    double best_time = 0;
    for (int64_t down = kSpanRows / kTileRows / 2; down <= kSpanRows / kTileRows; down++) {
      const double per_row = static_cast<double>(time(down, tokens, x_[1]) + time(down, x_[1], tokens)) /
                             static_cast<double>(down);
      if (best == 0 || per_row <= best_time) best = down, best_time = per_row;
    }
    return std::min(x_[0], best * kTileRows);
  }

  /// A buffer in workspace for the weights of a span of `rows`.
  void* buffer(int64_t rows) const {
    const int64_t count = rows * std::min(w_[0], span_tokens(x_.dtype));
    return stream_.scratch.take<char>(count * size_of(x_.dtype));
  }

  /// The weights that `value` makes of the logits of a span, in the arithmetic of x:
  /// a factor [count, n] in `buffer`.
  template <typename Value>
  Factor map(int64_t row, int64_t count, int64_t first, int64_t n, const Value& value, void* buffer) const {
    Product p = logits(row, count, first, n);
    p.out = buffer, p.out_dtype = x_.dtype;
    bf16_ ? run_bf16(p, Map<bf16, Value>{value}) : head_product_f32(stream_, p, Map<float, Value>{value});
    return {buffer, x_.dtype, count, n};
  }

  /// out[count, H] (=|+=) scale · weights·W.
  void sum_tokens(const Factor& weights, int64_t first, int64_t n, float scale, float* out) const {
    Product p;
    p.rows = weights.rows, p.columns = x_[1], p.depth = n;
    p.a = weights, p.b = weight(first, n);
    p.scale = scale;
    p.out = out;
    p.accumulate = first > 0;
    multiply(stream_, x_.dtype, Layout::input, p);
  }

  /// out[n, H] += weightsᵀ·x.
  void sum_rows(const Factor& weights, int64_t row, float* out) const {
    Product p;
    p.rows = weights.columns, p.columns = x_[1], p.depth = weights.rows;
    p.a = weights, p.b = rows(row, weights.rows);
    p.out = out;
    p.accumulate = true;
    multiply(stream_, x_.dtype, Layout::weight, p);
  }

 private:
  Factor rows(int64_t row, int64_t count) const {
    return {x_.as<char>() + row * x_[1] * size_of(x_.dtype), x_.dtype, count, x_[1]};
  }
  bool is_quantized() const { return w_.format != Format::none; }
  Factor weight(int64_t first, int64_t n) const {
    if (is_quantized()) {
      TensorView span = values_;
      span.shape[0] = n;
      if (first != held_) dequantize(stream_, w_, span, first);
      held_ = first;
      return factor(span);
    }
    return {w_.as<char>() + first * w_[1] * size_of(w_.dtype), w_.dtype, n, w_[1]};
  }
  Product logits(int64_t row, int64_t count, int64_t first, int64_t n) const {
    Product p;
    p.rows = count, p.columns = n, p.depth = x_[1];
    p.a = rows(row, count), p.b = weight(first, n);
    return p;
  }
  template <typename Epilogue>
  void run_bf16(Product p, const Epilogue& epilogue) const {
    round_factors(stream_, loading_, p);
    head_product_bf16(stream_, loading_, p, epilogue);
  }

  Stream& stream_;
  const TensorView &x_, &w_;
  bool bf16_;
  Loading loading_ = Loading::registers;
  TensorView values_;          // of a span of a quantised W, in workspace
  mutable int64_t held_ = -1;  // its first token
};

/// body(row, count) for groups of `limit` rows.
template <typename F>
void each_group(int64_t rows, int64_t limit, F body) {
  for (int64_t row = 0; row < rows; row += limit) body(row, std::min(limit, rows - row));
}

}  // namespace steptrain::cuda
