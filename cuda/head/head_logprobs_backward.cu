// The gradient of head_logprobs, in spans: dz of the logits, dx = dz·W (`=`) and, for a trainable head,
// dw += dzᵀ·x. Sums are f32; with bf16 rows dz is rounded to bf16.
#include "cuda/convert.h"
#include "cuda/head/head.h"
#include "cuda/head/spans.cuh"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

void head_logprobs_backward(Stream& stream, const Args& args) {
  const auto [dlogprobs, dentropy, x, w, targets, lse, entropy, dw, dx] = args.tensors<9>();
  check_temperature("head_logprobs_backward", args.d(0));
  const Head head(stream, x, w);
  const int64_t rows = head.span_rows(), size = x[1];
  void* const buffer = head.buffer(rows);
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
      const Factor dz = head.map(row, count, first, n, gradient, buffer);
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

}  // namespace

void register_head_logprobs_backward(KernelTable& table) {
  table.set("head_logprobs_backward", head_logprobs_backward);
}

}  // namespace steptrain::cuda
