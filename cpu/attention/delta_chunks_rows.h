// The rows of a path in one chunk of the gated delta rule (delta_chunks.h): queries, keys and gates, and the products of these rows
// with each other.
#pragma once

#if defined(__AVX512BF16__)

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/ops.h"
#include "cpu/attention/delta_chunks_factors.h"
#include "cpu/norm.h"

namespace steptrain::cpu::STEPTRAIN_ISA::delta {

constexpr float kEps = 1e-6f;

struct Shape {
  int64_t key_heads, heads, key_size, value_size, group, width;

  Shape(const TensorView& qkv, int64_t heads, int64_t value_size, int64_t key_heads, int64_t key_size)
      : key_heads(key_heads),
        heads(heads),
        key_size(key_size),
        value_size(value_size),
        group(key_heads > 0 ? heads / key_heads : 0),
        width(qkv[1]) {}

  /// Whether heads are whole tiles of bf16; what is wrong in itself is not, and the recurrence refuses it.
  bool fits(DType dtype) const {
    return dtype == DType::bf16 && key_heads > 0 && heads > 0 && heads == key_heads * group && key_size > 0 &&
           value_size > 0 && key_size % kSide == 0 && value_size % kSide == 0 &&
           width == 2 * key_heads * key_size + heads * value_size;
  }

  int64_t query(int64_t t, int64_t key_head) const { return t * width + key_head * key_size; }
  int64_t key(int64_t t, int64_t key_head) const { return query(t, key_heads + key_head); }
  int64_t value(int64_t t, int64_t head) const {
    return t * width + 2 * key_heads * key_size + head * value_size;
  }
  int64_t state() const { return key_size * value_size; }
};

/// A path's rows of one chunk: the tokens of [0, rows), of which those from `from` on are its own.
struct Rows {
  const int32_t* tokens;  // of its own rows
  int64_t from, rows;

  int64_t token(int64_t i) const { return tokens[i - from]; }
  int64_t depth() const { return (rows + kSide - 1) / kSide * kSide; }
};

/// What rows of a path have in common for all value heads of a key head.
struct Keys {
  bf16 *rows, *query_rows;      // [kChunk][K], zero from the last one up to a whole tile
  bf16 *left, *query_left;      // in tile order
  bf16 *panels, *query_panels;  // of kᵀ and qᵀ: a row is a column
  bf16 *across, *query_across;  // kᵀ and qᵀ as left factors
  float *scale, *query_scale;   // 1/|k|, 1/|q|
  Tiles keys, queries;          // k_i·k_j, q_i·k_j of what is stored

  Keys(Memory& memory, int64_t size, bool backward) {
    rows = memory.take<bf16>(kChunk * size);
    query_rows = memory.take<bf16>(kChunk * size);
    left = memory.take<bf16>(kChunk * size);
    query_left = memory.take<bf16>(kChunk * size);
    panels = memory.take<bf16>(kChunk * size);
    query_panels = backward ? memory.take<bf16>(kChunk * size) : nullptr;
    across = memory.take<bf16>(kChunk * size);
    query_across = backward ? memory.take<bf16>(kChunk * size) : nullptr;
    scale = memory.take<float>(kChunk);
    query_scale = memory.take<float>(kChunk);
    keys = memory.tiles(kChunk, kChunk);
    queries = memory.tiles(kChunk, kChunk);
  }
};

/// 1/|x|.
inline float inverse_norm(const bf16* x, int64_t size) {
  vf even = zero(), odd = zero();
  for (int64_t i = 0; i < size; i += kSide) {
    const vf a = load(x + i), b = load(x + i + kLanes);
    even = fma(a, a, even), odd = fma(b, b, odd);
  }
  const float squares = lane_sum(even + odd);
  return 1.0f / std::sqrt(squares + kEps);
}

/// Reads the own rows of a path, and multiplies them by all.
inline void read_keys(const Shape& shape, const bf16* qkv, int64_t key_head, const Rows& path, Keys& out,
                      bool queries, bool backward) {
  const int64_t size = shape.key_size, depth = path.depth();
  const auto bytes = static_cast<size_t>(size) * sizeof(bf16);
  for (int64_t i = path.from; i < path.rows; i++) {
    const bf16* const k = qkv + shape.key(path.token(i), key_head);
    std::memcpy(out.rows + i * size, k, bytes);
    order_row(k, size, out.left, i);
    out.scale[i] = inverse_norm(k, size);
    if (!queries) continue;
    const bf16* const q = qkv + shape.query(path.token(i), key_head);
    if (backward) std::memcpy(out.query_rows + i * size, q, bytes);
    order_row(q, size, out.query_left, i);
    out.query_scale[i] = inverse_norm(q, size);
  }
  for (int64_t i = path.rows; i < depth; i++) {
    std::memset(static_cast<void*>(out.rows + i * size), 0, bytes);
    if (backward) std::memset(static_cast<void*>(out.query_rows + i * size), 0, bytes);
  }
  for (int64_t i = path.from / kSide * kSide; i < depth; i += kSide) {
    pack_rows<bf16>(out.rows + i * size, size, kSide, size, out.panels + i * size);
    if (backward && queries)
      pack_rows<bf16>(out.query_rows + i * size, size, kSide, size, out.query_panels + i * size);
  }
  product(path.from, path.rows, size, {{out.left, out.panels}}, out.keys, false);
  if (queries) product(path.from, path.rows, size, {{out.query_left, out.panels}}, out.queries, false);
  across_of(out.panels, path.rows, size, out.across);
  if (backward && queries) across_of(out.query_panels, path.rows, size, out.query_across);
}

/// What one value head has of the rows of a path.
struct Gates {
  float *sum, *power, *beta;  // g, e^g and β of each row
  float *softened, *moved;    // softplus(a + dt_bias), a + dt_bias
  float* decay;               // [kChunk][kChunk]: G, 0 above the diagonal
  float *keys, *queries;      // [kChunk][kChunk]: -G·(k·k) below the diagonal, G·(q·k) up to it
  float rate;                 // exp(a_log)

  explicit Gates(Memory& memory) : rate(0) {
    for (float** const each : {&sum, &power, &beta, &softened, &moved}) *each = memory.take<float>(kChunk);
    for (float** const each : {&decay, &keys, &queries}) *each = memory.take<float>(kChunk * kChunk);
  }
};

inline float read(const TensorView& x, int64_t i) {
  return x.dtype == DType::f32 ? x.as<float>()[i] : to_float(x.as<bf16>()[i]);
}

/// log(1 + y) for 0 ≤ y ≤ 1.
inline vf log1p(vf y) {
  const vf one = set1(1.0f), u = one + y;
  return select_less(one, u, log(u) * (y / (u - one)), y);
}

/// e^x, and 0 below e^-60: what is far below the rounding of everything beside it would make products too small for normal numbers,
/// each of which takes the processor as long as a hundred others.
inline vf decayed(vf x) {
  const vf least = set1(-60.0f);
  return select_less(x, least, zero(), exp(max(least, x)));
}

struct GateInputs {
  const TensorView &a, &b, &a_log, &dt_bias;
};

/// The gates of the own rows of a path, and the products of its rows under them.
inline void read_gates(const Shape& shape, const GateInputs& in, int64_t head, const Rows& path,
                       const Keys& keys, bool queries, Gates& out) {
  const float dt = read(in.dt_bias, head);
  out.rate = std::exp(read(in.a_log, head));
  alignas(64) float logs[kChunk], open[kChunk];
  for (int64_t i = 0; i < kChunk; i++) logs[i] = open[i] = 0;
  for (int64_t i = path.from; i < path.rows; i++) {
    const int64_t at = path.token(i) * shape.heads + head;
    logs[i] = read(in.a, at) + dt;
    open[i] = read(in.b, at);
  }
  const int64_t first = path.from / kLanes * kLanes;
  for (int64_t i = first; i < path.rows; i += kLanes) {
    const vf x = load(logs + i), away = max(x, zero() - x);
    const vf softened = max(x, zero()) + log1p(exp(zero() - away));
    alignas(64) float moved[kLanes], soft[kLanes], beta[kLanes];
    store(moved, x), store(soft, softened), store(beta, sigmoid(load(open + i)));
    store(logs + i, zero() - set1(out.rate) * softened);
    for (int64_t l = std::max(path.from, i); l < std::min(path.rows, i + kLanes); l++)
      out.moved[l] = moved[l - i], out.softened[l] = soft[l - i], out.beta[l] = beta[l - i];
  }
  for (int64_t i = path.from; i < path.rows; i++) out.sum[i] = (i > 0 ? out.sum[i - 1] : 0.0f) + logs[i];
  for (int64_t i = path.rows; i < kChunk; i++) out.sum[i] = 0;
  for (int64_t i = first; i < path.rows; i += kLanes) store(out.power + i, decayed(load(out.sum + i)));
  const float size = 1.0f / std::sqrt(static_cast<float>(shape.key_size));
  alignas(64) float lane[kLanes];
  for (int i = 0; i < kLanes; i++) lane[i] = static_cast<float>(i);
  for (int64_t i = path.from; i < path.rows; i++) {
    const vf key = set1(keys.scale[i]), query = set1(queries ? keys.query_scale[i] * size : 0.0f),
             sum = set1(out.sum[i]);
    for (int64_t j = 0; j < kChunk; j += kLanes) {
      float *const decay = out.decay + i * kChunk + j, *const below = out.keys + i * kChunk + j,
                   *const upto = out.queries + i * kChunk + j;
      if (j > i) {
        store(decay, zero()), store(below, zero()), store(upto, zero());
        continue;
      }
      const vf column = load(lane) + set1(static_cast<float>(j)), row = set1(static_cast<float>(i));
      const vf power = select_less(row, column, zero(), decayed(sum - load(out.sum + j)));
      const vf other = load(keys.scale + j), scaled = power * other;
      store(decay, power);
      const vf product = load(keys.keys.row(i, j / kSide) + j % kSide);
      store(below, select_less(column, row, zero() - product * (scaled * key), zero()));
      if (!queries) continue;
      const vf beside = load(keys.queries.row(i, j / kSide) + j % kSide);
      store(upto, select_less(row, column, zero(), beside * (scaled * query)));
    }
  }
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
