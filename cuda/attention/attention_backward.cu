// The gradient of attention (cuda/attention/attention.cc): dq, dk and dv, all =. Chooses the kernels: bf16 on
// tensor cores (cuda/attention/sm90_backward*.cu, backward_bf16_*.cu); f32, odd head sizes and odd addresses
// on the ordinary cores (portable.cu). Sums run in the order of the forward. Four launches: plan, delta, dq,
// dk and dv (on Hopper, by five products, both, then dq's rounding); a fifth where blocks divide a group's heads.
#include <algorithm>

#include "core/error.h"
#include "cuda/attention/problem.h"
#include "cuda/reduce.cuh"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

constexpr int kDeltaThreads = 128;

/// delta[h][t] = Σ_d do·o. A warp takes a (token, head), a lane eight neighbouring elements at a time.
template <typename T>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_delta_kernel(const T* dout, const T* o, float* delta, int64_t tokens, int32_t heads,
                           int32_t size, bool wide) {
  const int64_t row = int64_t{blockIdx.x} * (kDeltaThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= tokens * heads) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float sum = 0;
  for (int d = lane * kEight; d < size; d += kWarp * kEight) {
    float a[kEight], b[kEight];
    const int count = in_group(d, size);
    load8(dout + row * size + d, count, wide, a);
    load8(o + row * size + d, count, wide, b);
#pragma unroll
    for (int i = 0; i < kEight; i++) sum = fmaf(a[i], b[i], sum);
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) delta[row % heads * tokens + row / heads] = sum;
}

/// dk and then dv = Σ parts[i], in order, eight elements a thread.
__global__ void __launch_bounds__(kDeltaThreads)
    attention_parts_kernel(const __grid_constant__ GroupParts parts, bf16* dk, bf16* dv, int64_t elements) {
  int64_t at = (int64_t{blockIdx.x} * kDeltaThreads + threadIdx.x) * kEight;
  if (at >= 2 * elements) return;
  const bool of_values = at >= elements;
  if (of_values) at -= elements;
  const float* const from = (of_values ? parts.dv : parts.dk) + at;
  float sum[kEight];
  load8(from, kEight, true, sum);
  for (int part = 1; part < parts.parts; part++) {
    float more[kEight];
    load8(from + part * elements, kEight, true, more);
#pragma unroll
    for (int i = 0; i < kEight; i++) sum[i] += more[i];
  }
  store8((of_values ? dv : dk) + at, kEight, true, sum);
}

/// About eight blocks for each tile of keys. The heads alone decide, so that bits do not depend on the batch.
GroupParts divide_group(Stream& stream, const Attention& p) {
  constexpr int32_t kBlocks = 8;
  if (p.group <= 1 || p.kv_heads >= kBlocks) return {1, p.group, nullptr, nullptr};
  const int32_t wanted = std::min(p.group, kBlocks / p.kv_heads), heads = (p.group + wanted - 1) / wanted,
                parts = (p.group + heads - 1) / heads;
  if (parts == 1) return {1, p.group, nullptr, nullptr};
  const int64_t elements = p.tokens * p.kv_heads * p.size * parts;
  return {parts, heads, stream.scratch.take<float>(elements), stream.scratch.take<float>(elements)};
}

void attention_backward(Stream& stream, const Args& args) {
  const auto [dout, q, k, v, o, lse, cu_seqlens, branch, dq, dk, dv] = args.tensors<11>();
  const bool tensor_cores = on_tensor_cores(q, {dout, q, k, v, o, dq, dk, dv});
  const bool hopper = tensor_cores && on_hopper(stream, q[2]);
  const Attention problem = plan_attention(stream, "attention_backward", q, k, v, cu_seqlens, 6, branch, args,
                                           hopper         ? kHopperRows
                                           : tensor_cores ? kBackwardRows
                                                          : kPortableRows);
  if (dout.dtype != q.dtype || o.dtype != q.dtype)
    throw Error("E_DTYPE", format("attention_backward: q is %s, so do and o must be, got %s and %s",
                                  name_of(q.dtype), name_of(dout.dtype), name_of(o.dtype)));
  const float* const delta = attention_delta(stream, dout, o);
  const AttentionTensors tensors{q.data, k.data,  v.data,  dout.data, lse.as<float>(),
                                 delta,  nullptr, dq.data, dk.data,   dv.data};
  if (!tensor_cores) return attention_backward_portable(stream, problem, tensors, q.dtype);
  const GroupParts parts = divide_group(stream, problem);
#ifdef STEPTRAIN_SM90
  const int32_t columns = problem.kv_heads * parts.parts;
  if (hopper && (problem.size == 64 || stream.hardware.choice.takes(Successor::attention_backward))) {
    // What a column reads of a token: q and do of its heads.
    const auto backward = problem.size == 64 ? attention_backward_sm90 : attention_backward_sm90_128;
    backward(stream, problem, tensors, parts, columns_in_cache(problem, columns, 1, 4 * q[2] * parts.heads));
  } else if (hopper) {
    attention_queries_sm90(stream, problem, tensors, {problem.heads, problem.heads});
    attention_keys_sm90(stream, problem, tensors, parts, {columns, columns});
  }
#endif
  if (!hopper) {
    attention_queries_bf16(stream, problem, tensors);
    attention_keys_bf16(stream, problem, tensors, parts);
  }
  if (!parts.dk) return;
  const int64_t elements = k.numel(), groups = 2 * elements / kEight;
  stream.launch(attention_parts_kernel, (groups + kDeltaThreads - 1) / kDeltaThreads, kDeltaThreads, 0, parts,
                dk.as<bf16>(), dv.as<bf16>(), elements);
}

}  // namespace

float* attention_delta(Stream& stream, const TensorView& dout, const TensorView& o) {
  float* const delta = stream.scratch.take<float>(o[0] * o[1]);
  by_storage(o.dtype, [&](auto t) {
    using T = decltype(t);
    constexpr int kRows = kDeltaThreads / kWarp;
    stream.launch(attention_delta_kernel<T>, (o[0] * o[1] + kRows - 1) / kRows, kDeltaThreads, 0,
                  dout.as<T>(), o.as<T>(), delta, o[0], o[1], o[2], all_wide({dout, o}, o[2]));
  });
  return delta;
}

void register_attention_backward(KernelTable& table) {
  table.set("attention_backward", attention_backward);
}

}  // namespace steptrain::cuda
