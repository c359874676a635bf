// The linear ops of experts: rows sorted by expert, each expert with a weight [N,K] and a LoRA pair of its own, as
// cuda/gemm/linear.cc, linear_dx.cc, lora.cc and linear_dw.cu do it for one. A product is one launch for all
// experts (cuda/gemm/groups.h), with one more for each f32 factor that is rounded and for quantised weights.
#include "core/experts.h"
#include "cuda/gemm/groups.h"
#include "cuda/gemm/lora.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

/// Of `experts` weights, each of which one or several groups have.
Groups groups_of(const Stream& stream, const TensorView& offsets, int argument, int64_t experts) {
  return {offsets.as<const int32_t>(), offsets[0] - 1, experts, argument, stream.faults};
}

/// Tensors of all experts [E, rows, columns], one below the other.
Factor stacked(const TensorView& t) {
  return {t.data, t.dtype, t[0] * t[1], t[2]};
}

/// The low-rank rows of groups with a pair, scale · drop(rows)·first, in `out` or workspace, and with them the pairs into `p`.
void fold_experts(Stream& stream, Layout layout, const LowRank& pair, int64_t rank, Groups groups,
                  Product& p) {
  groups.first = groups.bare, groups.weights = groups.count - groups.bare;
  Product low;
  low.rows = pair.rows[0], low.columns = rank, low.depth = pair.rows[1];
  low.a = factor(pair.rows), low.b = stacked(pair.first);
  low.scale = pair.scale;
  drop(low, Dropped::a, pair.dropout);
  low.out = pair.out ? pair.out.as<float>() : stream.scratch.take<float>(low.rows * rank);
  multiply_groups(stream, pair.rows.dtype, layout, low, groups);
  p.rank = rank;
  p.lora_a = {low.out, DType::f32, low.rows, rank};
  p.lora_b = stacked(pair.second);
}

/// Of each group: out += scale · aᵀ·drop(b), in f32.
void add_products(Stream& stream, DType activations, const TensorView& a, const TensorView& b, float scale,
                  const Dropout& dropout, const TensorView& out, const Groups& groups) {
  Product p;
  p.rows = a[1], p.columns = b[1], p.depth = a[0];
  p.a = factor(a), p.b = factor(b);
  p.scale = scale;
  drop(p, Dropped::b, dropout);
  set_output(p, out.data, DType::f32, true);
  multiply_groups(stream, activations, Layout::weight, p, groups);
}

void linear_experts(Stream& stream, const Args& args) {
  const auto [x, w, offsets, lora_a, lora_b, scales, row_ids, positions, y, u] = args.tensors<10>();
  const Dropout dropout = dropout_of("linear_experts", {args.d(1), args.i(2), args.i(3)}, x[0], lora_a,
                                     lora_b, row_ids, positions);
  Groups groups = groups_of(stream, offsets, 2, w[0]);
  groups.bare = groups_without_pair(offsets, w, lora_a, scales, u);
  if (scales) groups.scales = scales.as<const float>();
  Product p;
  p.rows = x[0], p.columns = w[1], p.depth = w[2];
  p.a = factor(x), p.b = group_weights(stream, x.dtype, w, groups);
  set_output(p, y.data, y.dtype, false);
  if (groups.bare < groups.count) {
    p.lora_scale = args.f(0);
    fold_experts(stream, Layout::forward, {x, lora_a, lora_b, u, 1, dropout}, lora_a[1], groups, p);
  }
  multiply_groups(stream, x.dtype, Layout::forward, p, groups);
}

void linear_experts_dx(Stream& stream, const Args& args) {
  const auto [dy, w, offsets, lora_a, lora_b, row_ids, positions, dx, v] = args.tensors<9>();
  const Dropout dropout = dropout_of("linear_experts_dx", {args.d(1), args.i(2), args.i(3)}, dy[0], lora_a,
                                     lora_b, row_ids, positions);
  if (v && !lora_a)
    throw Error("E_SHAPE", "linear_experts_dx: v is the LoRA pairs'; pass lora_a and lora_b or no v");
  const Groups groups = groups_of(stream, offsets, 2, w[0]);
  Product p;
  p.rows = dy[0], p.columns = w[2], p.depth = w[1];
  p.a = factor(dy), p.b = group_weights(stream, dy.dtype, w, groups);
  set_output(p, dx.data, dx.dtype, args.i(4) != 0);
  if (lora_a) {
    fold_experts(stream, Layout::input, {dy, lora_b, lora_a, v, args.f(0), {}}, lora_a[1], groups, p);
    drop(p, Dropped::lora, dropout);
  }
  multiply_groups(stream, dy.dtype, Layout::input, p, groups);
}

void linear_experts_lora_grads(Stream& stream, const Args& args) {
  const auto [x, dy, u, v, offsets, da, db, row_ids, positions] = args.tensors<9>();
  const Dropout dropout = dropout_of("linear_experts_lora_grads", {args.d(1), args.i(2), args.i(3)}, x[0], u,
                                     v, row_ids, positions);
  const Groups groups = groups_of(stream, offsets, 4, da[0]);
  add_products(stream, x.dtype, v, x, 1, dropout, da, groups);
  add_products(stream, x.dtype, dy, u, args.f(0), {}, db, groups);
}

void linear_experts_dw(Stream& stream, const Args& args) {
  const auto [x, dy, offsets, dw] = args.tensors<4>();
  add_products(stream, x.dtype, dy, x, 1, {}, dw, groups_of(stream, offsets, 2, dw[0]));
}

}  // namespace

void register_linear_experts(KernelTable& table) {
  table.set("linear_experts", linear_experts);
  table.set("linear_experts_dx", linear_experts_dx);
  table.set("linear_experts_lora_grads", linear_experts_lora_grads);
  table.set("linear_experts_dw", linear_experts_dw);
}

}  // namespace steptrain::cuda
