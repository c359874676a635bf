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
#include "cuda/families.h"
#include "cuda/gemm.h"
#include "cuda/gemm_skinny.h"
#include "cuda/storage.cuh"

namespace steptrain::cuda {
namespace {

Factor factor(const TensorView& t) {
  return {t.data, t.dtype, t[0], t[1]};
}

void set_output(Product& p, void* out, DType dtype, bool accumulate) {
  p.out = out;
  p.out_dtype = dtype;
  p.accumulate = accumulate;
}

/// The mask's arguments checked for `tokens` rows, its rate and keys the scalars from 1 on; no mask without a
/// LoRA pair.
Dropout dropout_of(const char* op, const Args& args, int64_t tokens, bool has_a, bool has_b,
                   const TensorView& row_ids, const TensorView& positions) {
  const double rate = args.d(1);
  if (has_a != has_b)
    throw Error("E_SHAPE", format("%s: lora_a and lora_b come together; only %s was given", op,
                                  has_a ? "lora_a" : "lora_b"));
  if (!(rate >= 0 && rate < 1))
    throw Error("E_RANGE", format("%s: dropout must be at least 0 and below 1, got %g", op, rate));
  if (tokens == 0 || rate == 0 || !has_a) return {};
  if (!row_ids || !positions)
    throw Error("E_SHAPE",
                format("%s: dropout %g needs row_ids and positions, which key its mask", op, rate));
  Dropout d;
  d.row_ids = row_ids.as<int32_t>();
  d.positions = positions.as<int32_t>();
  d.rate = static_cast<float>(rate);
  d.kept = 1.0f / (1.0f - d.rate);
  d.key0 = static_cast<uint32_t>(args.i(2));
  d.key1 = static_cast<uint32_t>(args.i(3));
  return d;
}

void drop(Product& p, Dropped what, const Dropout& dropout) {
  p.dropout = dropout;
  p.dropped = dropout.rate > 0 ? what : Dropped::nothing;
}

/// A LoRA pair on its way through linear or linear_dx: low = scale · drop(rows)·first, [T, r], is extra depth
/// of `p`, where `second` is its other factor.
struct LowRank {
  TensorView rows, first, second;
  TensorView out;  // where low is kept, may be absent
  float scale = 1;
  Dropout dropout;
};

/// Ranks that the kernels of cuda/gemm_skinny.h take.
NarrowFactor narrow_factor(Stream& stream, const LowRank& pair, int64_t rank, Product& p) {
  NarrowFactor f;
  f.b = factor(pair.first), f.columns = rank;
  f.out = pair.out.as<float>();
  // The product that follows reads them in bf16, where it can read them wide.
  const Factor second = factor(pair.second);
  if (rank % kEight == 0 && second.columns % kEight == 0) {
    const int64_t tokens = pair.rows[0];
    f.rounded = stream.scratch.take<bf16>(tokens * rank);
    f.other = pair.second.as<float>();
    f.count = pair.second.numel();
    f.other_rounded = stream.scratch.take<bf16>(f.count);
    p.extra_a = {f.rounded, DType::bf16, tokens, rank};
    p.extra_b = {f.other_rounded, DType::bf16, second.rows, second.columns};
  } else {
    if (!f.out) f.out = stream.scratch.take<float>(pair.rows[0] * rank);
    p.extra_a = {f.out, DType::f32, pair.rows[0], rank};
    p.extra_b = second;
  }
  return f;
}

void fold_in(Stream& stream, Layout layout, const LowRank& pair, Product& p) {
  const int64_t tokens = pair.rows[0], rank = layout == Layout::forward ? pair.first[0] : pair.first[1];
  p.extra_depth = rank;
  if (pair.rows.dtype == DType::bf16 && rank <= kMostNarrow) {
    Narrow narrow;
    narrow.x = factor(pair.rows);
    narrow.of[0] = narrow_factor(stream, pair, rank, p);
    narrow.scale = pair.scale;
    narrow.dropped = pair.dropout.rate > 0, narrow.dropout = pair.dropout;
    return multiply_narrow(stream, layout, narrow);
  }
  Product low;
  low.rows = tokens, low.columns = rank, low.depth = pair.rows[1];
  low.a = factor(pair.rows), low.b = factor(pair.first);
  low.scale = pair.scale;
  drop(low, Dropped::a, pair.dropout);
  float* const out = pair.out ? pair.out.as<float>() : stream.scratch.take<float>(tokens * rank);
  set_output(low, out, DType::f32, false);
  multiply(stream, pair.rows.dtype, layout, low);
  p.extra_a = {out, DType::f32, tokens, rank};
  p.extra_b = factor(pair.second);
}

void linear(Stream& stream, const Args& args) {
  const auto [x, w, bias, lora_a, lora_b, row_ids, positions, y, u_out] = args.tensors<9>();
  const Dropout dropout = dropout_of("linear", args, x[0], static_cast<bool>(lora_a),
                                     static_cast<bool>(lora_b), row_ids, positions);
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
  const Dropout dropout = dropout_of("linear_dx", args, dy[0], static_cast<bool>(lora_a),
                                     static_cast<bool>(lora_b), row_ids, positions);
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

void lora_grads(Stream& stream, const Args& args) {
  const auto [x, dy, u, v, da, db, row_ids, positions] = args.tensors<8>();
  const Dropout dropout = dropout_of("lora_grads", args, x[0], true, true, row_ids, positions);
  if (x.dtype == DType::bf16 && dy.dtype == DType::bf16 && u[1] <= kMostNarrow) {
    NarrowGradient a;
    a.narrow = factor(v), a.wide = factor(x);
    a.dropped = dropout.rate > 0, a.dropout = dropout;
    a.out = da.as<float>(), a.narrow_stride = x[1], a.wide_stride = 1;
    NarrowGradient b;
    b.narrow = factor(u), b.wide = factor(dy);
    b.scale = args.f(0);
    b.out = db.as<float>(), b.narrow_stride = 1, b.wide_stride = u[1];
    return add_narrow_gradients(stream, a, b);
  }
  Product a;
  a.rows = v[1], a.columns = x[1], a.depth = x[0];
  a.a = factor(v), a.b = factor(x);
  drop(a, Dropped::b, dropout);
  set_output(a, da.data, DType::f32, true);
  multiply(stream, x.dtype, Layout::weight, a);

  Product b;
  b.rows = dy[1], b.columns = u[1], b.depth = x[0];
  b.a = factor(dy), b.b = factor(u);
  b.scale = args.f(0);
  set_output(b, db.data, DType::f32, true);
  multiply(stream, x.dtype, Layout::weight, b);
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
