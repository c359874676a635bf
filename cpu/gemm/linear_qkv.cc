// linear_qkv, linear_qkv_stack: three linears of the same rows in one region, with the bits of linear. A norm in front
// takes a region of its own.
#include "core/error.h"
#include "cpu/gemm/normed.h"
#include "cpu/gemm/products.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

void check_pair(const char* side, const TensorView& a, const TensorView& b) {
  if (static_cast<bool>(a) != static_cast<bool>(b))
    throw Error("E_SHAPE", format("linear_qkv: %s_a and %s_b come together; only %s_%s was given", side, side,
                                  side, a ? "a" : "b"));
}

template <typename T>
void qkv_of_pairs(Stream& stream, const Args& args) {
  const auto [rows, w_q, w_k, w_v, q_bias, k_bias, v_bias, q_a, q_b, k_a, k_b, v_a, v_b, norm, q, k, v] =
      args.tensors<17>();
  const TensorView none;
  const Dropout undropped;
  check_pair("q", q_a, q_b);
  check_pair("k", k_a, k_b);
  check_pair("v", v_a, v_b);
  const TensorView x = normed<T>(stream, rows, norm, args.f(3));
  const Projection<T> queries(stream, w_q, q_a, q_b, none, x[0], args.f(0), undropped),
      keys(stream, w_k, k_a, k_b, none, x[0], args.f(1), undropped),
      values(stream, w_v, v_a, v_b, none, x[0], args.f(2), undropped);
  multiply_outputs<T, 3>(stream, x, {{{queries, q_bias, q}, {keys, k_bias, k}, {values, v_bias, v}}});
}

template <typename T>
void qkv_of_stacks(Stream& stream, const Args& args) {
  const auto [x, w_q, w_k, w_v, adapter, q_bias, k_bias, v_bias, q_a, q_b, q_ranks, q_scales, k_a, k_b,
              k_ranks, k_scales, v_a, v_b, v_ranks, v_scales, q, k, v] = args.tensors<23>();
  const TensorView none;
  const Dropout undropped;
  const auto project = [&](const TensorView& w) {
    return Projection<T>(stream, w, none, none, none, x[0], 1, undropped);
  };
  Projection<T> queries = project(w_q), keys = project(w_k), values = project(w_v);
  const auto add_stack = [&, &x = x, &adapter = adapter](Projection<T>& weight, const char* side,
                                                         const TensorView& a, const TensorView& b,
                                                         const TensorView& ranks, const TensorView& scales) {
    const Stack stack{a ? adapter : TensorView{}, ranks, scales};
    check_stack("linear_qkv_stack", side, stack, x.dtype, a, b);
    if (stack) weight.add_stack(stream, stack, a, b, x[0]);
  };
  add_stack(queries, "q_", q_a, q_b, q_ranks, q_scales);
  add_stack(keys, "k_", k_a, k_b, k_ranks, k_scales);
  add_stack(values, "v_", v_a, v_b, v_ranks, v_scales);
  multiply_outputs<T, 3>(stream, x, {{{queries, q_bias, q}, {keys, k_bias, k}, {values, v_bias, v}}});
}

void linear_qkv(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? qkv_of_pairs<bf16>(stream, args) : qkv_of_pairs<float>(stream, args);
}

void linear_qkv_stack(Stream& stream, const Args& args) {
  args.tensor[0].dtype == DType::bf16 ? qkv_of_stacks<bf16>(stream, args)
                                      : qkv_of_stacks<float>(stream, args);
}

}  // namespace

void register_linear_qkv(KernelTable& table) {
  table.set("linear_qkv", linear_qkv);
  table.set("linear_qkv_stack", linear_qkv_stack);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
