// The language-model head: of softmax(x·Wᵀ / temperature) with x [R, H] and W [V, H] the log-prob of each
// row's target, the entropy (nats), the log-sum-exp, the arg-max and, where asked, the expectation
// e = Σ_v p_v·W_v / temperature. Logits never reach memory: the epilogue of their product
// (cuda/head/epilogues.cuh) folds kFoldRows rows by Fold::kColumns tokens at a time into a part of each row's
// softmax, which a second kernel merges in a fixed order; with e, in spans: p, e += p·W. All outputs are `=`;
// sums are f32; with bf16 rows p is rounded to bf16. head_logits writes all logits of few rows.
#include "cuda/head/head.h"
#include "cuda/head/spans.cuh"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

constexpr int64_t kFoldRows = 8192;  // rows whose parts are in memory at a time
constexpr int kMergeRows = 8;        // per block, a warp each

struct HeadOutputs {
  float *logprobs, *entropy, *lse;  // [rows]
  int32_t* argmax;
};

/// Merges the parts of each row: lane l of its warp takes parts l, l + 32, …
/// in order, then lanes merge by distance.
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
  // The rounding error of the shift, which log Σ exp((z - largest)/temperature) must not contain.
  const float rounded = fmaf(all.largest, fold.scale, -shift) * kLn2;
  const float log_sum = log_mass - rounded;
  out.logprobs[row] = fmaf(fold.target_logits[row] - all.largest, inverse, -log_sum);
  out.entropy[row] = fmaf(-kLn2, all.moment / all.mass, log_mass);
  out.lse[row] = fmaf(all.largest, inverse, log_sum);
  out.argmax[row] = all.argmax < vocabulary ? all.argmax : 0;  // NaN has no maximum
}

void head_logprobs(Stream& stream, const Args& args) {
  const auto [x, w, targets, logprobs, entropy, lse, argmax, expectation] = args.tensors<8>();
  check_temperature("head_logprobs", args.d(0));
  const float inverse = 1 / args.f(0);
  const Head head(stream, x, w);
  each_group(x[0], kFoldRows, [&](int64_t row, int64_t count) {
    const Scratch::Mark mark = stream.scratch.mark();
    const Fold fold = head.fold(row, count, targets.as<int32_t>() + row, inverse);
    const HeadOutputs out{logprobs.as<float>() + row, entropy.as<float>() + row, lse.as<float>() + row,
                          argmax.as<int32_t>() + row};
    stream.launch(head_merge_kernel, (count + kMergeRows - 1) / kMergeRows, kMergeRows * kWarp, 0, fold, out,
                  row, count, w[0], inverse, stream.faults);
    stream.scratch.rewind(mark);
  });
  if (!expectation) return;
  const int64_t rows = head.span_rows();
  void* const buffer = head.buffer(rows);
  each_group(x[0], rows, [&](int64_t row, int64_t count) {
    head.each_span(span_tokens(x.dtype), [&](int64_t first, int64_t n) {
      const Factor p = head.map(row, count, first, n, Probability{lse.as<float>() + row, inverse}, buffer);
      head.sum_tokens(p, first, n, inverse, expectation.as<float>() + row * x[1]);
    });
  });
}

void head_logits(Stream& stream, const Args& args) {
  const auto [x, w, logits] = args.tensors<3>();
  check_temperature("head_logits", args.d(0));
  // A quantised W in parts that kernels of few rows multiply as they dequantise it.
  const bool in_parts = w.format != Format::none && x.dtype == DType::bf16;
  each_group(x[0], in_parts ? kQuantizedRows : std::max<int64_t>(x[0], 1), [&](int64_t row, int64_t count) {
    TensorView part = x;
    part.data = x.as<char>() + row * x[1] * size_of(x.dtype), part.shape[0] = count;
    Product p;
    p.rows = count, p.columns = w[0], p.depth = x[1];
    p.a = factor(part), p.b = weight_factor(stream, part, w, Layout::forward);
    p.scale = 1 / args.f(0);
    p.out = logits.as<float>() + row * w[0];
    multiply(stream, x.dtype, Layout::forward, p);
  });
}

}  // namespace

void register_head_logprobs(KernelTable& table) {
  table.set("head_logprobs", head_logprobs);
  table.set("head_logits", head_logits);
}

}  // namespace steptrain::cuda
