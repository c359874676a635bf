// The language-model head: of softmax(x·Wᵀ / temperature) with x [R, H] and W [V, H] the log-prob of each
// row's target, the entropy (nats), the log-sum-exp, the arg-max and, where asked, the expectation
// e = Σ_v p_v·W_v / temperature; and the gradient. [R, V] is never held: rows go in groups of kGroupRows and
// the vocabulary in spans, whose logits one product makes (cuda/gemm.h) and one kernel folds into each row's
// online softmax, or turns into weights for the next product:
//   forward      logits, fold; with e a second pass: logits, p, e += p·W
//   backward     logits, dz, dx += dz·W and, for a trainable head, dw += dzᵀ·x
// Outputs are `=` but dw, which is `+=`; sums are f32; with bf16 rows p and dz are rounded to bf16. Spans
// have one size and go in order, so that a row's bits depend on that row alone. head_logits writes all logits
// of few rows.
#include "cuda/head.h"

#include <algorithm>

#include "cuda/convert.h"
#include "cuda/families.h"
#include "cuda/gemm.h"
#include "cuda/reduce.cuh"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int64_t kGroupRows = 2048;
constexpr int kThreads = 256;
constexpr float kNever = -1e30f;

/// Tokens of a span.
int64_t span_tokens(DType dtype) {
  return dtype == DType::bf16 ? 8192 : 2048;
}

/// The online softmax of one row over the logits seen so far.
struct RowState {
  float shift;    // subtracted from every scaled logit: their maximum
  float mass;     // Σ exp(z - shift)
  float moment;   // Σ exp(z - shift)·(z - shift)
  float largest;  // greatest unscaled logit
  float target;   // unscaled logit of the target, once seen
  int32_t argmax;
};

struct HeadOutputs {
  float *logprobs, *entropy, *lse;
  int32_t* argmax;
};

/// The greatest of the block's values and the smallest index that has it.
struct Peak {
  float value;
  int32_t index;
};
__device__ Peak block_peak(Peak own) {
  __shared__ Peak found[kMostWarps];
  const auto better = [](const Peak& a, const Peak& b) {
    return a.value > b.value || (a.value == b.value && a.index < b.index);
  };
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Peak other{__shfl_xor_sync(0xffffffffu, own.value, distance),
                     __shfl_xor_sync(0xffffffffu, own.index, distance)};
    if (better(other, own)) own = other;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) found[threadIdx.x / kWarp] = own;
  __syncthreads();
  own = found[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / kWarp; warp++)
    if (better(found[warp], own)) own = found[warp];
  return own;
}

/// A block folds one row of logits[rows, n], of tokens from `first`, into its state; the last span writes the
/// outputs.
__global__ void __launch_bounds__(kThreads)
    head_fold_kernel(const float* logits, RowState* states, const int32_t* targets, HeadOutputs out,
                     int64_t first, int64_t n, int64_t vocabulary, float inverse, FaultReporter faults) {
  constexpr int kTargets = 2;
  const int64_t row = blockIdx.x;
  const float* const z = logits + row * n;
  Peak peak{-INFINITY, INT32_MAX};
  for (int64_t v = threadIdx.x; v < n; v += kThreads)
    if (z[v] > peak.value) peak = {z[v], static_cast<int32_t>(first + v)};
  peak = block_peak(peak);
  const float shift = fmaxf(peak.value * inverse, kNever);
  float mass = 0, moment = 0;
  for (int64_t v = threadIdx.x; v < n; v += kThreads) {
    const float distance = fmaf(z[v], inverse, -shift);
    const float p = expf(distance);
    mass += p;
    moment = p > 0 ? fmaf(p, distance, moment) : moment + p;  // p may be 0 of -infinity
  }
  mass = block_sum(mass);
  moment = block_sum(moment);
  if (threadIdx.x != 0) return;

  RowState state = first > 0 ? states[row] : RowState{kNever, 0, 0, -INFINITY, 0, 0};
  const float to = fmaxf(state.shift, shift);
  const auto rebase = [to](float from, float& held, float& moment_held) {
    const float factor = expf(from - to);
    moment_held = held > 0 ? factor * (moment_held + (from - to) * held) : moment_held;
    held *= factor;
  };
  rebase(state.shift, state.mass, state.moment);
  rebase(shift, mass, moment);
  state.shift = to;
  state.mass += mass;
  state.moment += moment;
  if (peak.value > state.largest) {
    state.largest = peak.value;
    state.argmax = peak.index;
  }
  const int64_t target = targets[row];
  if (target >= first && target < first + n) state.target = z[target - first];
  if (first + n < vocabulary) {
    states[row] = state;
    return;
  }
  if (!index_holds(faults, kTargets, row, target, vocabulary)) return;
  const float log_sum = logf(state.mass);
  out.logprobs[row] = state.target * inverse - state.shift - log_sum;
  out.entropy[row] = log_sum - state.moment / state.mass;
  out.lse[row] = state.shift + log_sum;
  out.argmax[row] = state.argmax;
}

/// What a span's logits are turned into, of one row.
struct Probability {
  const float* lse;
  float inverse;
  __device__ float operator()(int64_t row, int64_t, float z) const {
    return expf(fmaf(z, inverse, -lse[row]));
  }
};
/// dz_v = (dlogprob·([v = target] - p_v) - dentropy·p_v·(log p_v + H)) / temperature.
struct LogitGradient {
  const float *dlogprobs, *dentropy, *lse, *entropy;
  const int32_t* targets;
  float inverse;
  __device__ float operator()(int64_t row, int64_t token, float z) const {
    const float dl = dlogprobs[row] * inverse, dh = dentropy ? dentropy[row] * inverse : 0.0f;
    const float logp = fmaf(z, inverse, -lse[row]), p = expf(logp);
    const float direct = token == targets[row] ? dl * (1.0f - p) : -dl * p;
    // Of an impossible token log p is -infinity, its share 0.
    return dh == 0 || p == 0 ? direct : direct - dh * p * (logp + entropy[row]);
  }
};

/// to[row][v] = body(row, first + v, logits[row][v]); `to` may be the logits. One block per row.
template <typename T, typename F>
__global__ void __launch_bounds__(kThreads)
    head_map_kernel(const float* logits, T* to, int64_t first, int64_t n, F body) {
  const int64_t row = blockIdx.x;
  for (int64_t v = threadIdx.x; v < n; v += kThreads)
    to[row * n + v] = from_float<T>(body(row, first + v, logits[row * n + v]));
}

/// Rows [row, row + rows) of x and spans of W as factors.
class Spans {
 public:
  Spans(Stream& stream, const TensorView& x, const TensorView& w)
      : stream_(stream),
        x_(x),
        w_(w),
        tokens_(std::min(w[0], span_tokens(x.dtype))),
        logits_(stream.scratch.take<float>(std::min(x[0], kGroupRows) * tokens_)) {
    if (x.dtype == DType::bf16)
      weights_ = stream.scratch.take<bf16>(std::min(x[0], kGroupRows) * tokens_);
    else
      weights_ = logits_;
  }

  /// body(first token, tokens) for each span, in order.
  template <typename F>
  void each(F body) const {
    for (int64_t first = 0; first < w_[0]; first += tokens_) {
      const Scratch::Mark mark = stream_.scratch.mark();
      body(first, std::min(tokens_, w_[0] - first));
      stream_.scratch.rewind(mark);
    }
  }

  Factor rows(int64_t row, int64_t count) const {
    return {x_.as<char>() + row * x_[1] * size_of(x_.dtype), x_.dtype, count, x_[1]};
  }
  Factor weight(int64_t first, int64_t n) const {
    return {w_.as<char>() + first * w_[1] * size_of(w_.dtype), w_.dtype, n, w_[1]};
  }
  /// Of `count` rows, unscaled.
  const float* logits(int64_t row, int64_t count, int64_t first, int64_t n) const {
    Product p;
    p.rows = count, p.columns = n, p.depth = x_[1];
    p.a = rows(row, count), p.b = weight(first, n);
    p.out = logits_;
    multiply(stream_, x_.dtype, Layout::forward, p);
    return logits_;
  }
  /// The logits mapped to `weights`, in the arithmetic of x, as a factor [count, n].
  template <typename F>
  Factor map(int64_t count, int64_t first, int64_t n, const F& body) const {
    by_storage(x_.dtype, [&](auto t) {
      using T = decltype(t);
      stream_.launch(head_map_kernel<T, F>, count, kThreads, 0, logits_, static_cast<T*>(weights_), first, n,
                     body);
    });
    return {weights_, x_.dtype, count, n};
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

 private:
  Stream& stream_;
  const TensorView &x_, &w_;
  int64_t tokens_;
  float* logits_;
  void* weights_;
};

/// body(row, count) for groups of rows.
template <typename F>
void each_group(int64_t rows, F body) {
  for (int64_t row = 0; row < rows; row += kGroupRows) body(row, std::min(kGroupRows, rows - row));
}

void head_logprobs(Stream& stream, const Args& args) {
  const auto [x, w, targets, logprobs, entropy, lse, argmax, expectation] = args.tensors<8>();
  check_temperature("head_logprobs", args.d(0));
  const float inverse = 1 / args.f(0);
  const Spans spans(stream, x, w);
  RowState* const states = stream.scratch.take<RowState>(std::min(x[0], kGroupRows));
  each_group(x[0], [&](int64_t row, int64_t count) {
    const HeadOutputs out{logprobs.as<float>() + row, entropy.as<float>() + row, lse.as<float>() + row,
                          argmax.as<int32_t>() + row};
    spans.each([&](int64_t first, int64_t n) {
      const float* logits = spans.logits(row, count, first, n);
      stream.launch(head_fold_kernel, count, kThreads, 0, logits, states, targets.as<int32_t>() + row, out,
                    first, n, w[0], inverse, stream.faults);
    });
    if (!expectation) return;
    spans.each([&](int64_t first, int64_t n) {
      spans.logits(row, count, first, n);
      spans.sum_tokens(spans.map(count, first, n, Probability{out.lse, inverse}), first, n, inverse,
                       expectation.as<float>() + row * x[1]);
    });
  });
}

void head_logprobs_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, dentropy, x, w, targets, lse, entropy, dw, dx] = args.tensors<9>();
  check_temperature("head_logprobs_backward", args.d(0));
  const Spans spans(stream, x, w);
  const int64_t size = x[1];
  float* const sums =
      dx.dtype == DType::f32 ? nullptr : stream.scratch.take<float>(std::min(x[0], kGroupRows) * size);
  each_group(x[0], [&](int64_t row, int64_t count) {
    const LogitGradient gradient{dlogprobs.as<float>() + row, dentropy ? dentropy.as<float>() + row : nullptr,
                                 lse.as<float>() + row,       entropy.as<float>() + row,
                                 targets.as<int32_t>() + row, 1 / args.f(0)};
    TensorView to = dx;
    to.data = dx.as<char>() + row * size * size_of(dx.dtype);
    to.shape[0] = count;
    float* const sum = sums ? sums : to.as<float>();
    spans.each([&](int64_t first, int64_t n) {
      spans.logits(row, count, first, n);
      const Factor dz = spans.map(count, first, n, gradient);
      spans.sum_tokens(dz, first, n, 1, sum);
      if (!dw) return;
      Product p;
      p.rows = n, p.columns = size, p.depth = count;
      p.a = dz, p.b = spans.rows(row, count);
      p.out = dw.as<float>() + first * size;
      p.accumulate = true;
      multiply(stream, x.dtype, Layout::weight, p);
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
