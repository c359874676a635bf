// The gemm family. T tokens, K input and N output features, r LoRA rank. Activations decide the arithmetic:
// bf16 ones run on tensor cores with every factor rounded to bf16, f32 ones in f32; sums are f32 either way.
//   linear      u = drop(x)·Aᵀ, y = x·Wᵀ + bias + scale·u·Bᵀ, the pair folded in as extra depth
//   linear_dx   v = scale·dy·B, dx (+)= dy·W + mask·(v·A)
//   lora_grads  da += vᵀ·drop(x), db += scale·dyᵀ·u
//   linear_dw   dw += dyᵀ·x, db += column sums of dy
// y, u, v and dx are = (dx += where asked), weight gradients +=. Launches: one per product, but one for both
// of lora_grads, one for each f32 weight of an aligned bf16 product, one for a bias gradient. A packed weight
// lies row-major here; pack_weight and unpack_weight convert or copy, y =.
#include "core/error.h"
#include "cuda/convert.h"
#include "cuda/gemm/lora.h"
#include "cuda/gemm/product.h"
#include "cuda/runtime/families.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

void set_output(Product& p, void* out, DType dtype, bool accumulate) {
  p.out = out;
  p.out_dtype = dtype;
  p.accumulate = accumulate;
}

void linear(Stream& stream, const Args& args) {
  const auto [x, w, bias, lora_a, lora_b, row_ids, positions, y, u_out] = args.tensors<9>();
  const Dropout dropout =
      dropout_of("linear", {args.d(1), args.i(2), args.i(3)}, x[0], lora_a, lora_b, row_ids, positions);
  if (u_out && !lora_a)
    throw Error("E_SHAPE", "linear: u is the LoRA pair's; pass lora_a and lora_b or no u");
  Product p;
  p.rows = x[0], p.columns = w[0], p.depth = x[1];
  p.a = factor(x), p.b = factor(w);
  p.bias = bias.data, p.bias_dtype = bias.dtype;
  set_output(p, y.data, y.dtype, false);
  if (lora_a) {
    fold_in(stream, Layout::forward, {x, lora_a, lora_b, u_out, 1, dropout}, p);
    p.extra_scale = args.f(0);
  }
  multiply(stream, x.dtype, Layout::forward, p);
}

void linear_dx(Stream& stream, const Args& args) {
  const auto [dy, w, lora_a, lora_b, row_ids, positions, dx, v_out] = args.tensors<8>();
  const Dropout dropout =
      dropout_of("linear_dx", {args.d(1), args.i(2), args.i(3)}, dy[0], lora_a, lora_b, row_ids, positions);
  if (v_out && !lora_a)
    throw Error("E_SHAPE", "linear_dx: v is the LoRA pair's; pass lora_a and lora_b or no v");
  Product p;
  p.rows = dy[0], p.columns = w[1], p.depth = dy[1];
  p.a = factor(dy), p.b = factor(w);
  set_output(p, dx.data, dx.dtype, args.i(4) != 0);
  if (lora_a) {
    fold_in(stream, Layout::input, {dy, lora_b, lora_a, v_out, args.f(0), {}}, p);
    drop(p, Dropped::extra, dropout);
  }
  multiply(stream, dy.dtype, Layout::input, p);
}

constexpr int kColumns = 32;  // per block of the bias gradient
constexpr int kLanes = 8;     // threads that share a column

/// db[n] += Σ_t dy[t][n]: lane i adds tokens i, i + kLanes, … in order, then the lanes are added in order.
template <typename T>
__global__ void column_sums_kernel(float* db, const T* dy, int64_t tokens, int64_t features) {
  __shared__ float sums[kLanes][kColumns];
  const int column = static_cast<int>(threadIdx.x) % kColumns,
            lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t n = int64_t{blockIdx.x} * kColumns + column;
  float sum = 0;
  if (n < features)
    for (int64_t t = lane; t < tokens; t += kLanes) sum += to_float(dy[t * features + n]);
  sums[lane][column] = sum;
  __syncthreads();
  if (lane != 0 || n >= features) return;
  float total = sums[0][column];
#pragma unroll
  for (int i = 1; i < kLanes; i++) total += sums[i][column];
  db[n] += total;
}

void linear_dw(Stream& stream, const Args& args) {
  const auto [x, dy, dw, db] = args.tensors<4>();
  if (dw) {
    Product p;
    p.rows = dy[1], p.columns = x[1], p.depth = x[0];
    p.a = factor(dy), p.b = factor(x);
    set_output(p, dw.data, DType::f32, true);
    multiply(stream, x.dtype, Layout::weight, p);
  }
  if (db) {
    by_storage(dy.dtype, [&](auto t) {
      using T = decltype(t);
      stream.launch(column_sums_kernel<T>, (dy[1] + kColumns - 1) / kColumns, kColumns * kLanes, 0,
                    db.as<float>(), dy.as<T>(), dy[0], dy[1]);
    });
  }
}

void pack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  convert(stream, w, y);
}

void unpack_weight(Stream& stream, const Args& args) {
  const auto [w, y] = args.tensors<2>();
  convert(stream, w, y);
}

}  // namespace

void register_gemm(KernelTable& table) {
  table.set("pack_weight", pack_weight);
  table.set("unpack_weight", unpack_weight);
  table.set("linear", linear);
  table.set("linear_dx", linear_dx);
  table.set("lora_grads", lora_grads);
  table.set("linear_dw", linear_dw);
}

}  // namespace steptrain::cuda
