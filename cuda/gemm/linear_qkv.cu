// linear_qkv, linear_qkv_stack: three linears of the same rows. Products of few rows share one launch (cuda/gemm/few_rows.cuh); all
// others take linear's kernels, one after the other. The bits are linear's. LoRA pairs take two more, that of q
// and those of k and v together; a stack takes two for each of its sides, and in bf16 one more. A norm in front is in
// the product's launch where few::can_norm says so, else it takes one.
#include "core/error.h"
#include "cuda/gemm/few_rows_launch.cuh"
#include "cuda/gemm/lora.h"
#include "cuda/gemm/quantized.h"
#include "cuda/gemm/stack.h"
#include "cuda/norm.h"
#include "cuda/runtime/families.h"

namespace steptrain::cuda {
namespace {

using few::StoreEach;
constexpr int kSides = StoreEach::kCount;
const char* const kPairs[kSides] = {"q", "k", "v"};
const char* const kStacks[kSides] = {"q_", "k_", "v_"};

/// Whether the kernels of few rows take all of them; each of them then takes those alone, too.
bool few_rows(const Stream& stream, DType activations, const Product (&products)[kSides]) {
  if (activations != DType::bf16 || products[0].rows == 0 || products[0].rows > few::kMaxRows) return false;
  for (const Product& p : products)
    if (loading_of(stream, p) == Loading::registers) return false;
  return true;
}

/// `norm`: of the rows, by the kernel that multiplies them.
void multiply_each(Stream& stream, DType activations, Product (&products)[kSides],
                   const few::Norm* norm = nullptr) {
  if (!few_rows(stream, activations, products)) {
    for (const Product& p : products) multiply(stream, activations, Layout::forward, p);
    return;
  }
  StoreEach epilogue;
  for (int i = 0; i < kSides; i++) {
    round_factors(stream, loading_of(stream, products[i]), products[i]);
    epilogue.of[i] = products[i];
  }
  if (few::column_tiles(products[0], epilogue, 1) == 0) return;
  norm ? few::launch(stream, products[0], epilogue, *norm) : few::launch(stream, products[0], epilogue);
}

/// x·Wᵀ + bias.
Product product_of(Stream& stream, const TensorView& x, const TensorView& w, const TensorView& bias) {
  Product p;
  p.rows = x[0], p.columns = w[0], p.depth = x[1];
  p.a = factor(x), p.b = weight_factor(stream, x, w, Layout::forward);
  p.bias = bias.data, p.bias_dtype = bias.dtype;
  return p;
}

void linear_qkv(Stream& stream, const Args& args) {
  constexpr int kNorm = 13, kOutputs = 14;
  const auto& t = args.tensor;  // x; weights; biases; a and b of each pair; norm; outputs
  const bool inside = t[kNorm] && !t[7] && !t[9] && !t[11] && few::can_norm(t[0], {t[1], t[2], t[3]});
  const TensorView x = t[kNorm] && !inside ? normed(stream, t[0], t[kNorm], args.f(3)) : t[0];
  Product products[kSides];
  LowRank pairs[kSides];
  for (int i = 0; i < kSides; i++) {
    const TensorView &a = t[7 + 2 * i], &b = t[8 + 2 * i];
    if (static_cast<bool>(a) != static_cast<bool>(b))
      throw Error("E_SHAPE", format("linear_qkv: %s_a and %s_b come together; only %s_%s was given",
                                    kPairs[i], kPairs[i], kPairs[i], a ? "a" : "b"));
    products[i] = product_of(stream, x, t[1 + i], t[4 + i]);
    products[i].lora_scale = args.f(i);
    set_output(products[i], t[kOutputs + i].data, x.dtype, false);
    pairs[i] = {x, a, b, {}, 1, {}};
  }
  fold_in(stream, Layout::forward, pairs[0], products[0]);
  fold_in(stream, pairs[1], products[1], pairs[2], products[2]);
  const few::Norm norm = inside ? few::norm_of(t[kNorm], args.f(3)) : few::Norm{};
  multiply_each(stream, x.dtype, products, inside ? &norm : nullptr);
}

void linear_qkv_stack(Stream& stream, const Args& args) {
  constexpr int kAdapter = 4, kFirst = 8, kOutputs = 20;  // places of the adapter, the first stack and q
  const auto& t = args.tensor;  // x; weights; adapter; biases; a, b, ranks and scales of each stack; outputs
  const TensorView& x = t[0];
  Stack stacks[kSides];
  for (int i = 0; i < kSides; i++) {
    const int at = kFirst + 4 * i;
    stacks[i] = {t[at],    t[at + 1], t[at] ? t[kAdapter] : TensorView{}, t[at + 2], t[at + 3],
                 kAdapter, at + 2};
    check_stack("linear_qkv_stack", kStacks[i], stacks[i], x.dtype);
  }
  Product products[kSides];
  TensorView sums[kSides];
  for (int i = 0; i < kSides; i++) {
    products[i] = product_of(stream, x, t[1 + i], t[5 + i]);
    sums[i] = begin_stack(stream, x, stacks[i], products[i], t[kOutputs + i]);
  }
  multiply_each(stream, x.dtype, products);
  for (int i = 0; i < kSides; i++) finish_stack(stream, sums[i], t[kOutputs + i]);
}

}  // namespace

void register_linear_qkv(KernelTable& table) {
  table.set("linear_qkv", linear_qkv);
  table.set("linear_qkv_stack", linear_qkv_stack);
}

}  // namespace steptrain::cuda
