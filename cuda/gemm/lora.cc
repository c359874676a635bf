#include "cuda/gemm/lora.h"

#include <utility>

#include "core/error.h"

namespace steptrain::cuda {
namespace {

/// The rank of a pair, which is the number of columns of `low`.
int64_t rank_of(const LowRank& pair, Layout layout) {
  if (!pair.first) return 0;
  return layout == Layout::forward ? pair.first[0] : pair.first[1];
}

NarrowFactor narrow_factor(Stream& stream, const LowRank& pair, int64_t rank, Product& p) {
  NarrowFactor f;
  if (rank == 0) return f;
  const int64_t tokens = pair.rows[0];
  const Factor second = factor(pair.second);
  f.b = factor(pair.first), f.columns = rank;
  f.out = pair.out.as<float>();
  p.rank = rank;
  // The product that follows reads both in bf16.
  f.rounded = stream.scratch.take<bf16>(tokens * whole_chunks(rank));
  f.other = pair.second.as<float>();
  f.other_columns = second.columns;
  f.count = second.rows * whole_chunks(second.columns);
  f.other_rounded = stream.scratch.take<bf16>(f.count);
  // One rounding either way, of scale·u or of u: the same relative error, and the same bits where the scale is a power of
  // two.
  std::swap(f.rounded_scale, p.lora_scale);
  p.lora_a = {f.rounded, DType::bf16, tokens, whole_chunks(rank)};
  p.lora_b = {f.other_rounded, DType::bf16, second.rows, whole_chunks(second.columns)};
  return f;
}

Narrow narrow_of(const LowRank& pair) {
  Narrow narrow;
  narrow.x = factor(pair.rows);
  narrow.scale = pair.scale;
  narrow.dropped = pair.dropout.rate > 0, narrow.dropout = pair.dropout;
  return narrow;
}

}  // namespace

Dropout dropout_of(const char* op, const DropoutArgs& args, int64_t tokens, const TensorView& lora_a,
                   const TensorView& lora_b, const TensorView& row_ids, const TensorView& positions) {
  const bool has_a = static_cast<bool>(lora_a), has_b = static_cast<bool>(lora_b);
  const double rate = args.rate;
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
  d.key0 = static_cast<uint32_t>(args.key0);
  d.key1 = static_cast<uint32_t>(args.key1);
  return d;
}

void fold_in(Stream& stream, Layout layout, const LowRank& pair, Product& p) {
  const int64_t tokens = pair.rows[0], rank = rank_of(pair, layout);
  if (rank == 0) return;
  if (takes_narrow(pair.rows, rank)) {
    Narrow narrow = narrow_of(pair);
    narrow.of[0] = narrow_factor(stream, pair, rank, p);
    return pair.db ? multiply_narrow_once(stream, narrow, pair.u, pair.db)
                   : multiply_narrow(stream, layout, narrow);
  }
  Product low;
  low.rows = tokens, low.columns = rank, low.depth = pair.rows[1];
  low.a = factor(pair.rows), low.b = factor(pair.first);
  low.scale = pair.scale;
  drop(low, Dropped::a, pair.dropout);
  low.out = pair.out ? pair.out.as<float>() : stream.scratch.take<float>(tokens * rank);
  multiply(stream, pair.rows.dtype, layout, low);
  p.rank = rank;
  p.lora_a = {low.out, DType::f32, tokens, rank};
  p.lora_b = factor(pair.second);
}

void fold_in(Stream& stream, const LowRank& pair, Product& p, const LowRank& twin_pair, Product& twin) {
  const int64_t rank = rank_of(pair, Layout::forward), twin_rank = rank_of(twin_pair, Layout::forward);
  const bool dropped = pair.dropout.rate > 0 || twin_pair.dropout.rate > 0;
  if (rank == 0 || twin_rank == 0 || dropped || !takes_narrow(pair.rows, rank + twin_rank)) {
    fold_in(stream, Layout::forward, pair, p);
    return fold_in(stream, Layout::forward, twin_pair, twin);
  }
  Narrow narrow = narrow_of(pair);
  narrow.of[0] = narrow_factor(stream, pair, rank, p);
  narrow.of[1] = narrow_factor(stream, twin_pair, twin_rank, twin);
  multiply_narrow(stream, Layout::forward, narrow);
}

void add_lora_gradients(Stream& stream, const LoraGradients& gradients, const TensorView& dy,
                        const TensorView& v, float scale, const Dropout& dropout) {
  const auto& [x, u, da, db] = gradients;
  const bool both = static_cast<bool>(dy);
  if (takes_narrow_gradients(x, both ? dy : x, u[1])) {
    NarrowGradient a, b;
    a.narrow = factor(v), a.wide = factor(x);
    a.dropped = dropout.rate > 0, a.dropout = dropout;
    a.out = da.as<float>(), a.narrow_stride = x[1], a.wide_stride = 1;
    if (both) {
      b.narrow = factor(u), b.wide = factor(dy);
      b.scale = scale;
      b.out = db.as<float>(), b.narrow_stride = 1, b.wide_stride = u[1];
    }
    return add_narrow_gradients(stream, a, b);
  }
  Product a;
  a.rows = v[1], a.columns = x[1], a.depth = x[0];
  a.a = factor(v), a.b = factor(x);
  drop(a, Dropped::b, dropout);
  a.out = da.data, a.accumulate = true;
  multiply(stream, x.dtype, Layout::weight, a);
  if (!both) return;

  Product b;
  b.rows = dy[1], b.columns = u[1], b.depth = x[0];
  b.a = factor(dy), b.b = factor(u);
  b.scale = scale;
  b.out = db.data, b.accumulate = true;
  multiply(stream, x.dtype, Layout::weight, b);
}

}  // namespace steptrain::cuda
