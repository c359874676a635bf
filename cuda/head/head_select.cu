// Logits of chosen tokens: logits[r, c] = x[r]·W[tokens[r, c]] / temperature, and their gradient: dx `=`,
// dw[tokens[r, c]] += dlogits·x[r] / temperature in order of r, then c (cuda/chains.cuh).
// head_expectation_backward, dx = dlogprobs·(W[target]/temperature - e), stands here because it reads single
// rows of W too. f32 arithmetic on stored values; row-invariant, deterministic.
// One launch each; dw takes two more.
#include "cuda/chains.cuh"
#include "cuda/gemm/quantized.h"
#include "cuda/head/head.h"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int kWarps = kThreads / kWarp;

/// The rows of W that tokens name: where they lie in W or, of a quantised one, copies in workspace, one for each token.
struct NamedRows {
  TensorView w;
  bool copied;
};

NamedRows named_rows(Stream& stream, const TensorView& w, const TensorView& tokens, int argument,
                     DType dtype) {
  if (w.format == Format::none) return {w, false};
  TensorView copies = w;
  copies.format = Format::none, copies.packed = false, copies.dtype = dtype;
  copies.shape[0] = tokens.numel();
  copies.data = stream.scratch.take<char>(copies.bytes());
  dequantize_rows(stream, w, tokens, argument, copies);
  return {copies, true};
}

/// A warp computes one logit.
template <typename X, typename W>
__global__ void __launch_bounds__(kThreads)
    head_select_kernel(const X* x, const W* w, const int32_t* tokens, float* logits, int64_t n,
                       int64_t choices, int64_t size, int64_t vocabulary, bool copied, float inverse,
                       FaultReporter faults, bool wide) {
  constexpr int kTokens = 2;
  const int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (i >= n) return;
  const int64_t token = tokens[i];
  if (!index_holds(faults, kTokens, i, token, vocabulary)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const X* const row = x + i / choices * size;
  const W* const weight = w + (copied ? i : token) * size;
  float sum = 0;
  for (int64_t h = int64_t{lane} * kEight; h < size; h += kWarp * kEight) {
    const int count = in_group(h, size);
    float a[kEight], b[kEight];
    load8(row + h, count, wide, a);
    load8(weight + h, count, wide, b);
#pragma unroll
    for (int e = 0; e < kEight; e++) sum = fmaf(a[e], b[e], sum);
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) logits[i] = sum * inverse;
}

void head_select(Stream& stream, const Args& args) {
  const auto [x, w, tokens, logits] = args.tensors<4>();
  check_temperature("head_select", args.d(0));
  const int64_t n = tokens.numel();
  const auto [rows, copied] = named_rows(stream, w, tokens, 2, x.dtype);
  by_storage(x.dtype, [&](auto tx) {
    by_storage(rows.dtype, [&](auto tw) {
      using X = decltype(tx);
      using W = decltype(tw);
      stream.launch(head_select_kernel<X, W>, (n + kWarps - 1) / kWarps, kThreads, 0, x.as<X>(), rows.as<W>(),
                    tokens.as<int32_t>(), logits.as<float>(), n, tokens[1], x[1], w[0], copied, 1 / args.f(0),
                    stream.faults, all_wide({x, rows}, x[1]));
    });
  });
}

/// dx[r] = Σ_c dlogits[r,c]/temperature · W[tokens[r,c]]. A block takes a row.
template <typename X, typename W>
__global__ void __launch_bounds__(kThreads)
    head_select_backward_kernel(const float* dlogits, const W* w, const int32_t* tokens, X* dx,
                                int64_t choices, int64_t size, int64_t vocabulary, bool copied, float inverse,
                                FaultReporter faults, bool wide) {
  constexpr int kTokens = 3;
  const int64_t r = blockIdx.x;
  for (int64_t h = int64_t{threadIdx.x} * kEight; h < size; h += int64_t{kThreads} * kEight) {
    const int count = in_group(h, size);
    float sum[kEight] = {};
    for (int64_t i = r * choices; i < (r + 1) * choices; i++) {
      const int64_t token = tokens[i];
      if (!index_holds(faults, kTokens, i, token, vocabulary)) continue;
      const float factor = dlogits[i] * inverse;
      float v[kEight];
      load8(w + (copied ? i : token) * size + h, count, wide, v);
#pragma unroll
      for (int e = 0; e < kEight; e++) sum[e] = fmaf(factor, v[e], sum[e]);
    }
    store8(dx + r * size + h, count, wide, sum);
  }
}

/// Row i / choices of x, times dlogits[i] / temperature.
template <typename X>
struct ChosenRows {
  const X* x;
  const float* dlogits;
  int64_t choices, size;
  float inverse;
  bool wide;
  __device__ void add(int64_t i, int64_t h, int count, float (&sum)[kEight]) const {
    const float factor = dlogits[i] * inverse;
    float v[kEight];
    load8(x + i / choices * size + h, count, wide, v);
#pragma unroll
    for (int e = 0; e < kEight; e++) sum[e] = fmaf(factor, v[e], sum[e]);
  }
};

void head_select_backward(Stream& stream, const Args& args) {
  const auto [dlogits, x, w, tokens, dw, dx] = args.tensors<6>();
  check_temperature("head_select_backward", args.d(0));
  const int64_t size = x[1];
  const float inverse = 1 / args.f(0);
  const auto [named, copied] = named_rows(stream, w, tokens, 3, x.dtype);
  by_storage(x.dtype, [&](auto tx) {
    using X = decltype(tx);
    by_storage(named.dtype, [&](auto tw) {
      using W = decltype(tw);
      stream.launch(head_select_backward_kernel<X, W>, x[0], kThreads, 0, dlogits.as<float>(), named.as<W>(),
                    tokens.as<int32_t>(), dx.as<X>(), tokens[1], size, w[0], copied, inverse, stream.faults,
                    all_wide({named, dx}, size));
    });
    if (!dw) return;
    const ChosenRows<X> rows{x.as<X>(), dlogits.as<float>(), tokens[1], size, inverse, all_wide({x}, size)};
    sum_chains<true>(stream, tokens, 3, w[0], rows, dw.as<float>(), size, all_wide({dw}, size));
  });
}

template <typename X, typename W>
__global__ void __launch_bounds__(kThreads)
    head_expectation_backward_kernel(const float* dlogprobs, const W* w, const int32_t* targets,
                                     const float* expectation, X* dx, int64_t size, int64_t vocabulary,
                                     bool copied, float inverse, FaultReporter faults, bool wide) {
  constexpr int kTargets = 2;
  const int64_t r = blockIdx.x, target = targets[r];
  if (!index_holds(faults, kTargets, r, target, vocabulary)) return;
  const float d = dlogprobs[r];
  for (int64_t h = int64_t{threadIdx.x} * kEight; h < size; h += int64_t{kThreads} * kEight) {
    const int count = in_group(h, size);
    float v[kEight], e[kEight];
    load8(w + (copied ? r : target) * size + h, count, wide, v);
    load8(expectation + r * size + h, count, wide, e);
#pragma unroll
    for (int i = 0; i < kEight; i++) v[i] = d * fmaf(v[i], inverse, 0.0f - e[i]);
    store8(dx + r * size + h, count, wide, v);
  }
}

void head_expectation_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, w, targets, expectation, dx] = args.tensors<5>();
  check_temperature("head_expectation_backward", args.d(0));
  const auto [rows, copied] = named_rows(stream, w, targets, 2, dx.dtype);
  by_storage(dx.dtype, [&](auto tx) {
    by_storage(rows.dtype, [&](auto tw) {
      using X = decltype(tx);
      using W = decltype(tw);
      stream.launch(head_expectation_backward_kernel<X, W>, dx[0], kThreads, 0, dlogprobs.as<float>(),
                    rows.as<W>(), targets.as<int32_t>(), expectation.as<float>(), dx.as<X>(), dx[1], w[0],
                    copied, 1 / args.f(0), stream.faults, all_wide({rows, expectation, dx}, dx[1]));
    });
  });
}

}  // namespace

void register_head_select(KernelTable& table) {
  table.set("head_select", head_select);
  table.set("head_select_backward", head_select_backward);
  table.set("head_expectation_backward", head_expectation_backward);
}

}  // namespace steptrain::cuda
