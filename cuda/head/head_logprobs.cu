// The language-model head: of softmax(x·Wᵀ / temperature) with x [R, H] and W [V, H] the log-prob of each
// row's target, the entropy (nats), the log-sum-exp, the arg-max and, where asked, the expectation
// e = Σ_v p_v·W_v / temperature; and the gradient. Logits never reach memory: the epilogue of their product
// (cuda/head/epilogues.cuh) folds kFoldRows rows by Fold::kColumns tokens at a time into a part of each row's
// softmax, which a second kernel merges, or turns a span of them into weights for the next product:
//   forward      parts, merge; with e, in spans: p, e += p·W
//   backward     in spans: dz, dx += dz·W and, for a trainable head, dw += dzᵀ·x
// Outputs are `=` but dw, which is `+=`; sums are f32; with bf16 rows p and dz are rounded to bf16. Parts and
// spans have one size and go in order, so that a row's bits depend on that row alone. head_logits writes all
// logits of few rows.
#include "cuda/head/head.h"

#include <algorithm>

#include "cuda/convert.h"
#include "cuda/head/epilogues.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int64_t kFoldRows = 8192;  // whose parts are held at a time
constexpr int64_t kSpanRows = 2048;  // whose weights are held at a time, at most
constexpr int kMergeRows = 8;        // per block, a warp each

/// Tokens of a span: its weights stay in the cache of a large GPU.
int64_t span_tokens(DType dtype) {
  return dtype == DType::bf16 ? 8192 : 2048;
}

struct HeadOutputs {
  float *logprobs, *entropy, *lse;  // [rows]
  int32_t* argmax;
};

/// Merges each row's parts: lane l of its warp those of l, l + 32, … in order, then the lanes by distance.
__global__ void __launch_bounds__(kMergeRows* kWarp)
    head_merge_kernel(Fold fold, HeadOutputs out, int64_t row0, int64_t rows, int64_t vocabulary,
                      float inverse, FaultReporter faults) {
  constexpr int kTargets = 2;
  const int64_t row = int64_t{blockIdx.x} * kMergeRows + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  SoftmaxPart all = kNoTokens;
  for (int64_t i = lane; i < fold.parts_per_row; i += kWarp)
    all = merged(all, fold.parts[row * fold.parts_per_row + i], fold.scale);
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const SoftmaxPart other{__shfl_xor_sync(0xffffffffu, all.largest, distance),
                            __shfl_xor_sync(0xffffffffu, all.argmax, distance),
                            __shfl_xor_sync(0xffffffffu, all.mass, distance),
                            __shfl_xor_sync(0xffffffffu, all.moment, distance)};
    all = merged(all, other, fold.scale);
  }
  if (lane != 0 || !index_holds(faults, kTargets, row0 + row, fold.targets[row], vocabulary)) return;

  const float log_mass = logf(all.mass), shift = shift_of(all.largest, fold.scale);
  // By how much the shift was rounded: log Σ exp((z - largest)/temperature) wants none of it.
  const float rounded = fmaf(all.largest, fold.scale, -shift) * kLn2;
  const float log_sum = log_mass - rounded;
  out.logprobs[row] = fmaf(fold.target_logits[row] - all.largest, inverse, -log_sum);
  out.entropy[row] = fmaf(-kLn2, all.moment / all.mass, log_mass);
  out.lse[row] = fmaf(all.largest, inverse, log_sum);
  out.argmax[row] = all.argmax < vocabulary ? all.argmax : 0;  // no maximum among NaN
}

/// The products of an op of the head.
class Head {
 public:
  Head(Stream& stream, const TensorView& x, const TensorView& w)
      : stream_(stream), x_(x), w_(w), bf16_(x.dtype == DType::bf16) {
    if (bf16_) loading_ = loading_of(stream, logits(0, x[0], 0, w[0]));
  }

  /// body(first token, tokens) for each span of at most `most` tokens, in order; what it takes of the
  /// workspace is given back.
  template <typename F>
  void each_span(int64_t most, F body) const {
    for (int64_t first = 0; first < w_[0]; first += most) {
      const Scratch::Mark mark = stream_.scratch.mark();
      body(first, std::min(most, w_[0] - first));
      stream_.scratch.rewind(mark);
    }
  }

  /// The softmax of rows [row, row + count).
  void fold(int64_t row, int64_t count, const int32_t* targets, const HeadOutputs& out, float inverse) const {
    const int64_t parts = bf16_ ? fold_parts(loading_) : 1;
    Fold fold{};
    fold.parts_per_row = (w_[0] + Fold::kColumns - 1) / Fold::kColumns * parts;
    fold.parts = stream_.scratch.take<SoftmaxPart>(count * fold.parts_per_row);
    fold.target_logits = stream_.scratch.take<float>(count);
    fold.targets = targets;
    fold.scale = inverse * kLog2e;
    // In one launch; weights that must be rounded into workspace first, a span at a time.
    const bool rounds = bf16_ && w_.dtype == DType::f32 && loading_ != Loading::registers;
    each_span(rounds ? span_tokens(x_.dtype) : std::max<int64_t>(w_[0], 1), [&](int64_t first, int64_t n) {
      fold.first_token = static_cast<int32_t>(first);
      fold.first_part = first / Fold::kColumns * parts;
      const Product p = logits(row, count, first, n);
      bf16_ ? run_bf16(p, fold) : head_product_f32(stream_, p, fold);
    });
    stream_.launch(head_merge_kernel, (count + kMergeRows - 1) / kMergeRows, kMergeRows * kWarp, 0, fold, out,
                   row, count, w_[0], inverse, stream_.faults);
  }

  /// Rows whose weights are made at a time: on Hopper, of 1,024 to kSpanRows, those whose two products of a
  /// span leave the fewest multiprocessors idle in their last tiles. A row does not depend on it.
  int64_t span_rows() const {
    if (loading_ != Loading::boxes) return std::min(x_[0], kSpanRows);
    constexpr int64_t kTileRows = 128, kWide = 256, kNarrow = 128;  // as cuda/gemm/sm90_product.cuh chooses
    const int64_t blocks = stream_.hardware.multiprocessors, tokens = span_tokens(x_.dtype);
    const auto rounded_up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
    const auto time = [&](int64_t down, int64_t columns, int64_t depth) {
      const int64_t width = down * rounded_up(columns, kWide) >= blocks ? kWide : kNarrow;
      return rounded_up(down * rounded_up(columns, width), blocks) * width * depth;
    };
    int64_t best = 0;
    double least = 0;
    for (int64_t down = kSpanRows / kTileRows / 2; down <= kSpanRows / kTileRows; down++) {
      const double per_row = static_cast<double>(time(down, tokens, x_[1]) + time(down, x_[1], tokens)) /
                             static_cast<double>(down);
      if (best == 0 || per_row <= least) best = down, least = per_row;
    }
    return std::min(x_[0], best * kTileRows);
  }

  /// For the weights of a span of `rows`, in workspace.
  void* room(int64_t rows) const {
    const int64_t count = rows * std::min(w_[0], span_tokens(x_.dtype));
    return stream_.scratch.take<char>(count * size_of(x_.dtype));
  }

  /// What `value` makes of the logits of a span, in the arithmetic of x: a factor [count, n] in `room`.
  template <typename Value>
  Factor map(int64_t row, int64_t count, int64_t first, int64_t n, const Value& value, void* room) const {
    Product p = logits(row, count, first, n);
    p.out = room, p.out_dtype = x_.dtype;
    bf16_ ? run_bf16(p, Map<bf16, Value>{value}) : head_product_f32(stream_, p, Map<float, Value>{value});
    return {room, x_.dtype, count, n};
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
  Factor weight(int64_t first, int64_t n) const {
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
};

/// body(row, count) for groups of `most` rows.
template <typename F>
void each_group(int64_t rows, int64_t most, F body) {
  for (int64_t row = 0; row < rows; row += most) body(row, std::min(most, rows - row));
}

void head_logprobs(Stream& stream, const Args& args) {
  const auto [x, w, targets, logprobs, entropy, lse, argmax, expectation] = args.tensors<8>();
  check_temperature("head_logprobs", args.d(0));
  const float inverse = 1 / args.f(0);
  const Head head(stream, x, w);
  each_group(x[0], kFoldRows, [&](int64_t row, int64_t count) {
    const Scratch::Mark mark = stream.scratch.mark();
    head.fold(row, count, targets.as<int32_t>() + row,
              {logprobs.as<float>() + row, entropy.as<float>() + row, lse.as<float>() + row,
               argmax.as<int32_t>() + row},
              inverse);
    stream.scratch.rewind(mark);
  });
  if (!expectation) return;
  const int64_t rows = head.span_rows();
  void* const room = head.room(rows);
  each_group(x[0], rows, [&](int64_t row, int64_t count) {
    head.each_span(span_tokens(x.dtype), [&](int64_t first, int64_t n) {
      const Factor p = head.map(row, count, first, n, Probability{lse.as<float>() + row, inverse}, room);
      head.sum_tokens(p, first, n, inverse, expectation.as<float>() + row * x[1]);
    });
  });
}

void head_logprobs_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, dentropy, x, w, targets, lse, entropy, dw, dx] = args.tensors<9>();
  check_temperature("head_logprobs_backward", args.d(0));
  const Head head(stream, x, w);
  const int64_t rows = head.span_rows(), size = x[1];
  void* const room = head.room(rows);
  float* const sums = dx.dtype == DType::f32 ? nullptr : stream.scratch.take<float>(rows * size);
  each_group(x[0], rows, [&](int64_t row, int64_t count) {
    LogitGradient gradient{};
    gradient.dlogprobs = dlogprobs.as<float>() + row;
    gradient.dentropy = dentropy ? dentropy.as<float>() + row : nullptr;
    gradient.lse = lse.as<float>() + row;
    gradient.entropy = entropy.as<float>() + row;
    gradient.targets = targets.as<int32_t>() + row;
    gradient.inverse = 1 / args.f(0);
    TensorView to = dx;
    to.data = dx.as<char>() + row * size * size_of(dx.dtype);
    to.shape[0] = count;
    float* const sum = sums ? sums : to.as<float>();
    head.each_span(span_tokens(x.dtype), [&](int64_t first, int64_t n) {
      gradient.first_token = static_cast<int32_t>(first);
      const Factor dz = head.map(row, count, first, n, gradient, room);
      head.sum_tokens(dz, first, n, 1, sum);
      if (dw) head.sum_rows(dz, row, dw.as<float>() + first * size);
    });
    if (!sums) return;
    TensorView from = to;
    from.data = sums;
    from.dtype = DType::f32;
    convert(stream, from, to);
  });
}

void head_logits(Stream& stream, const Args& args) {
  const auto [x, w, logits] = args.tensors<3>();
  check_temperature("head_logits", args.d(0));
  Product p;
  p.rows = x[0], p.columns = w[0], p.depth = x[1];
  p.a = {x.data, x.dtype, x[0], x[1]}, p.b = {w.data, w.dtype, w[0], w[1]};
  p.scale = 1 / args.f(0);
  p.out = logits.data;
  multiply(stream, x.dtype, Layout::forward, p);
}

}  // namespace

void register_head(KernelTable& table) {
  table.set("head_logprobs", head_logprobs);
  table.set("head_logprobs_backward", head_logprobs_backward);
  table.set("head_logits", head_logits);
}

}  // namespace steptrain::cuda
