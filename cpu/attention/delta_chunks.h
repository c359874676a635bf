// The gated delta rule (cpu/gated_delta_rule.cc) on AMX, by chunks of kChunk tokens: products of blocks instead of a state for
// each token. Within a chunk, with the state S before it, g_i = Σ_{l≤i} log α_l and G_ij = e^(g_i - g_j):
//   δ_i = β_i·(v_i - e^g_i·Sᵀk_i - Σ_{j<i} G_ij·(k_i·k_j)·δ_j)
//   o_i = e^g_i·Sᵀq_i + Σ_{j≤i} G_ij·(q_i·k_j)·δ_j
//   S'  = e^g_n·S + Σ_j e^(g_n - g_j)·k_j·δ_jᵀ
// Chunks begin at multiples of kChunk of a path: a trunk, or what a branch continues and the branch. A branch takes the rows of the
// chunk's trunk before it as they are and the state before the chunk, so it has the bits of a sequence of its own. Queries and keys
// are factors as they are stored, in bf16, and their norms scale sums. States stay in f32; as factors they are the sum of two bf16.
#pragma once

#if defined(__AMX_BF16__)

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/ops.h"
#include "cpu/gemm/panel.h"
#include "cpu/gemm/tile_amx.h"
#include "cpu/norm.h"
#include "cpu/recurrence.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_BASE {
const KernelTable& kernels();
}

namespace steptrain::cpu::STEPTRAIN_ISA::delta {

/// The kernel that takes token by token.
inline void by_tokens(const char* op, Stream& stream, const Args& args) {
  STEPTRAIN_BASE::kernels().at(op_index(op))(stream, args);
}

constexpr int64_t kChunk = 64;
constexpr int64_t kSide = 32;  // of a tile of f32: rows, and columns
constexpr int64_t kTileSize = kSide * kSide;
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

/// A matrix of f32 in tiles, as products write them.
struct Tiles {
  float* data;
  int64_t across;  // tiles beside each other

  float* tile(int64_t down, int64_t right) const { return data + (down * across + right) * kTileSize; }
  /// kSide elements of row r, from column kSide·right on.
  float* row(int64_t r, int64_t right) const { return tile(r / kSide, right) + r % kSide * kSide; }
};

/// Memory of one member of the pool, handed out piece by piece. Without a base it counts alone.
struct Memory {
  char* base;
  int64_t used = 0;

  template <typename T>
  T* take(int64_t count) {
    T* const taken = base ? reinterpret_cast<T*>(base + used) : nullptr;
    used += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return taken;
  }
  Tiles tiles(int64_t rows, int64_t columns) {
    return {take<float>((rows + kSide - 1) / kSide * kSide * columns), columns / kSide};
  }
};

/// A factor as the sum of two bf16. `low` may be null.
struct Halves {
  bf16 *high, *low;
};

inline vf upper_float(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline vf lower_float(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
/// Pairs (a_i, b_i).
inline __m512i paired(vf a, vf b) {
  alignas(64) static constexpr uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(order),
                                  reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
}

/// The panels (cpu/gemm/packed.h) of x, whose rows are the depth, row r scaled by scale[r]; rows but [from, count) are zero.
template <bool kLow>
void column_panels(const Tiles& x, int64_t from, int64_t count, int64_t depth, const float* scale,
                   const Halves& out) {
  const auto there = [&](int64_t d) { return d >= from && d < count; };
  for (int64_t right = 0; right < x.across; right++) {
    const int64_t panel = right * depth * kPanel;
    for (int64_t d = 0; d < depth; d += 2) {
      const vf first = set1(there(d) && scale ? scale[d] : 1.0f),
               second = set1(there(d + 1) && scale ? scale[d + 1] : 1.0f);
      for (int64_t c = 0; c < kSide; c += kLanes) {
        const vf a = there(d) ? load(x.row(d, right) + c) * first : zero();
        const vf b = there(d + 1) ? load(x.row(d + 1, right) + c) * second : zero();
        const __m512i high = paired(a, b);
        const int64_t at = panel + d * kPanel + 2 * c;
        _mm512_storeu_si512(out.high + at, high);
        if constexpr (kLow)
          _mm512_storeu_si512(out.low + at, paired(a - lower_float(high), b - upper_float(high)));
      }
    }
  }
}

/// The panels of xᵀ: the columns of x are the depth.
inline void row_panels(const Tiles& x, int64_t rows, int64_t depth, bf16* out) {
  for (int64_t down = 0; down * kSide < rows; down++)
    for (int64_t right = 0; right < x.across; right++)
      for (int64_t first = 0; first < kSide; first += kLanes) {
        vf block[kLanes];
        for (int64_t i = 0; i < kLanes; i++) {
          const float* const row = x.tile(down, right) + (first + i) * kSide;
          block[i] = reinterpret_cast<vf>(_mm512_cvtne2ps_pbh(load(row + kLanes), load(row)));
        }
        transpose(block);
        bf16* const to = out + down * depth * kPanel + right * kSide * kPanel + 2 * first;
        for (int64_t i = 0; i < kLanes; i++) store(reinterpret_cast<float*>(to + 2 * i * kPanel), block[i]);
      }
}

/// A left factor in tile order (cpu/gemm/tile_amx.h). `at(r, step)` are the 32 elements of row r from column 32·step on.
template <bool kLow, typename At>
void left_factor(int64_t from, int64_t rows, int64_t depth, const At& at, const Halves& out) {
  for (int64_t r = from; r < rows; r++)
    for (int64_t step = 0; step * kSide < depth; step++) {
      const float* const x = at(r, step);
      const vf a = load(x), b = load(x + kLanes);
      const auto high = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
      const int64_t place = r / 16 * 16 * depth + step * 16 * kSide + r % 16 * kSide;
      _mm512_storeu_si512(out.high + place, high);
      if constexpr (kLow) {
        const vf rest_a = a - load(out.high + place), rest_b = b - load(out.high + place + kLanes);
        _mm512_storeu_si512(out.low + place, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(rest_b, rest_a)));
      }
    }
}

/// A left factor and the panels that it meets.
struct Factors {
  const bf16 *left, *panels;
};

/// A tile of out's rows: all products before it is stored.
template <bool kLower, size_t N>
void multiply_tile(int64_t row, int64_t right, int64_t depth, const Factors (&factors)[N], float* c,
                   bool accumulate) {
  constexpr int64_t stride = kPanel * sizeof(float), lower = 16 * kPanel;
  if (accumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    if constexpr (kLower) _tile_loadd(2, c + lower, stride);
    if constexpr (kLower) _tile_loadd(3, c + lower + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kLower) _tile_zero(2);
    if constexpr (kLower) _tile_zero(3);
  }
  for (const Factors& each : factors) {
    const bf16* x = each.left + row * depth;
    const bf16* panel = each.panels + right * depth * kPanel;
    for (int64_t i = 0; i < depth; i += kSide, x += 16 * kSide, panel += kSide * kPanel)
      amx_tile::add_step<kLower, 2>(x, kSide, 16 * depth, panel);
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  if constexpr (kLower) _tile_stored(2, c + lower, stride);
  if constexpr (kLower) _tile_stored(3, c + lower + 16, stride);
}

/// out rows [from, rows), in whole tiles, = or += the products of left factors [rows, depth] and panels of out's columns.
template <size_t N>
void product(int64_t from, int64_t rows, int64_t depth, const Factors (&factors)[N], const Tiles& out,
             bool accumulate) {
  amx_tile::configure(amx_tile::kRows);
  for (int64_t r = from / kSide * kSide; r < rows; r += kSide)
    for (int64_t right = 0; right < out.across; right++) {
      float* const c = out.tile(r / kSide, right);
      if (rows - r > 16) {
        multiply_tile<true>(r, right, depth, factors, c, accumulate);
      } else {
        multiply_tile<false>(r, right, depth, factors, c, accumulate);
      }
    }
}

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

/// sum() of simd.h, by the same tree.
inline float lane_sum(vf x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

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

/// xᵀ as a left factor, from the panels of x's rows.
inline void across_of(const bf16* panels, int64_t rows, int64_t size, bf16* out) {
  alignas(64) static constexpr uint16_t even[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                                    22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                                    44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  const __m512i first = _mm512_load_si512(even), second = _mm512_or_si512(first, _mm512_set1_epi16(1));
  const int64_t steps = (rows + kSide - 1) / kSide;
  for (int64_t step = 0; step < steps; step++)
    for (int64_t d = 0; d < size; d += 2) {
      const bf16* const from = panels + step * size * kPanel + d * kPanel;
      const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + kPanel);
      bf16* const to = out + (d / 16 * steps + step) * 16 * kSide + d % 16 * kSide;
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, first, b));
      _mm512_storeu_si512(to + kSide, _mm512_permutex2var_epi16(a, second, b));
    }
}

/// A path's rows of one chunk: the tokens of [0, rows), of which those from `from` on are its own.
struct Rows {
  const int32_t* tokens;  // of its own rows
  int64_t from, rows;

  int64_t token(int64_t i) const { return tokens[i - from]; }
  int64_t depth() const { return (rows + kSide - 1) / kSide * kSide; }
};

/// Reads the own rows of a path, and multiplies them by all.
inline void read_keys(const Shape& shape, const bf16* qkv, int64_t key_head, const Rows& path, Keys& out,
                      bool queries, bool backward) {
  const int64_t size = shape.key_size, depth = path.depth();
  const auto bytes = static_cast<size_t>(size) * sizeof(bf16);
  for (int64_t i = path.from; i < path.rows; i++) {
    const bf16* const k = qkv + shape.key(path.token(i), key_head);
    std::memcpy(out.rows + i * size, k, bytes);
    amx_tile::order_row(k, size, out.left, i);
    out.scale[i] = inverse_norm(k, size);
    if (!queries) continue;
    const bf16* const q = qkv + shape.query(path.token(i), key_head);
    if (backward) std::memcpy(out.query_rows + i * size, q, bytes);
    amx_tile::order_row(q, size, out.query_left, i);
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

constexpr int64_t kSolved = 8;  // rows of a tile of registers

/// x_i = β_i·(x_i + Σ_{j<i} c_ij·x_j) for the own rows, from the first one down.
inline void solve(const float* c, const float* beta, const Rows& path, const Tiles& x) {
  for (int64_t right = 0; right < x.across; right++)
    for (int64_t first = path.from / kSolved * kSolved; first < path.rows; first += kSolved) {
      vf sums[kSolved][2];
#pragma GCC unroll 8
      for (int r = 0; r < kSolved; r++) {
        const float* const row = x.row(first + r, right);
        sums[r][0] = load(row), sums[r][1] = load(row + kLanes);
      }
      for (int64_t j = 0; j < first; j++) {
        const float* const row = x.row(j, right);
        const vf low = load(row), high = load(row + kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kSolved; r++) {
          const vf factor = set1(c[(first + r) * kChunk + j]);
          sums[r][0] = fma(factor, low, sums[r][0]);
          sums[r][1] = fma(factor, high, sums[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kSolved; r++) {
        const int64_t i = first + r;
        if (i >= path.rows) break;
        float* const row = x.row(i, right);
        vf low, high;
        if (i < path.from) {
          low = load(row), high = load(row + kLanes);
        } else {
          low = sums[r][0] * set1(beta[i]), high = sums[r][1] * set1(beta[i]);
          store(row, low), store(row + kLanes, high);
        }
#pragma GCC unroll 8
        for (int later = r + 1; later < kSolved; later++) {
          const vf factor = set1(c[(first + later) * kChunk + i]);
          sums[later][0] = fma(factor, low, sums[later][0]);
          sums[later][1] = fma(factor, high, sums[later][1]);
        }
      }
    }
}

/// δ of the own rows, from Sᵀk of what is stored.
inline void deltas(const Shape& shape, const bf16* qkv, int64_t head, const Rows& path, const Keys& keys,
                   const Gates& gates, const Tiles& memory, const Tiles& delta) {
  for (int64_t i = path.from; i < path.rows; i++) {
    const bf16* const v = qkv + shape.value(path.token(i), head);
    const vf scale = set1(0.0f - gates.power[i] * keys.scale[i]);
    for (int64_t right = 0; right < delta.across; right++)
      for (int64_t c = 0; c < kSide; c += kLanes) {
        const vf there = load(memory.row(i, right) + c);
        store(delta.row(i, right) + c, fma(scale, there, load(v + right * kSide + c)));
      }
  }
  solve(gates.keys, gates.beta, path, delta);
}

/// S of one value head, the same as factors, and δ of the rows of a path.
struct Head {
  Tiles state;
  Halves panels;
  Tiles delta;
  Gates gates;

  Head(Memory& memory, const Shape& shape)
      : state(memory.tiles(shape.key_size, shape.value_size)),
        panels{memory.take<bf16>(shape.state()), memory.take<bf16>(shape.state())},
        delta(memory.tiles(kChunk, shape.value_size)),
        gates(memory) {}
};

/// e^(g_n - g_i)/|k_i| of the rows of a path.
inline void to_end(const Rows& path, const Keys& keys, const Gates& gates, float* scale) {
  for (int64_t i = 0; i < path.rows; i += kLanes)
    store(scale + i, decayed(set1(gates.sum[path.rows - 1]) - load(gates.sum + i)) * load(keys.scale + i));
}

/// out = e^g_n·S + Σ_j e^(g_n - g_j)·k_j·δ_jᵀ of a path's rows.
inline void advance(const Shape& shape, const Rows& path, const Keys& keys, const Head& head,
                    const Halves& panels, const Tiles& out) {
  alignas(64) float scale[kChunk];
  to_end(path, keys, head.gates, scale);
  column_panels<true>(head.delta, 0, path.rows, path.depth(), scale, panels);
  const vf decay = set1(head.gates.power[path.rows - 1]);
  for (int64_t i = 0; i < shape.state(); i += kLanes) store(out.data + i, decay * load(head.state.data + i));
  product(0, shape.key_size, path.depth(), {{keys.across, panels.high}, {keys.across, panels.low}}, out,
          true);
}

/// What one member of the pool keeps of the rows of a path, and of the state before them.
struct Walk {
  Keys keys;
  Halves deltas;  // as factors
  Halves square;  // a matrix of rows by rows as a left factor
  Tiles memory;   // Sᵀk or Sᵀq of the rows
  Tiles inner;    // what the rows give each other
  std::vector<Head> heads;
  std::vector<Tiles> next;  // states after the rows

  Walk(Memory& memory, const Shape& shape, bool backward)
      : keys(memory, shape.key_size, backward),
        deltas{memory.take<bf16>(kChunk * shape.value_size), memory.take<bf16>(kChunk * shape.value_size)},
        square{memory.take<bf16>(kChunk * kChunk), memory.take<bf16>(kChunk * kChunk)},
        memory(memory.tiles(kChunk, shape.value_size)),
        inner(memory.tiles(kChunk, shape.value_size)) {
    for (int64_t h = 0; h < shape.group; h++) {
      heads.emplace_back(memory, shape);
      next.push_back(memory.tiles(shape.key_size, shape.value_size));
    }
  }

  void clear(const Shape& shape) {
    for (Head& head : heads) std::fill_n(head.state.data, shape.state(), 0.0f);
  }
  /// The states as factors, for all rows of a chunk.
  void pack(const Shape& shape) {
    for (Head& head : heads)
      column_panels<true>(head.state, 0, shape.key_size, shape.key_size, nullptr, head.panels);
  }
  /// δ of the own rows of a path.
  void remember(const Shape& shape, const bf16* qkv, const GateInputs& gates, int64_t key_head,
                const Rows& path, bool queries) {
    read_keys(shape, qkv, key_head, path, keys, queries, false);
    for (int64_t h = 0; h < shape.group; h++) {
      Head& head = heads[static_cast<size_t>(h)];
      const int64_t index = key_head * shape.group + h;
      read_gates(shape, gates, index, path, keys, queries, head.gates);
      product(path.from, path.rows, shape.key_size,
              {{keys.left, head.panels.high}, {keys.left, head.panels.low}}, memory, false);
      delta::deltas(shape, qkv, index, path, keys, head.gates, memory, head.delta);
    }
  }
  /// The states after a whole chunk, into those of `to`.
  void leave(const Shape& shape, const Rows& path, const std::vector<Tiles>& to) {
    for (size_t h = 0; h < heads.size(); h++) advance(shape, path, keys, heads[h], deltas, to[h]);
  }
  void step() {
    for (size_t h = 0; h < heads.size(); h++) std::swap(heads[h].state, next[h]);
  }
  void point(const std::vector<Tiles>& states) {
    for (size_t h = 0; h < heads.size(); h++) heads[h].state = states[h];
  }
  void point_deltas(const std::vector<Tiles>& deltas) {
    for (size_t h = 0; h < heads.size(); h++) heads[h].delta = deltas[h];
  }
  std::vector<Tiles> deltas_of() const {
    std::vector<Tiles> each;
    for (const Head& head : heads) each.push_back(head.delta);
    return each;
  }
  std::vector<Tiles> states() const {
    std::vector<Tiles> each;
    for (const Head& head : heads) each.push_back(head.state);
    return each;
  }
};

/// The tokens of a sequence: its trunk, and the runs of its branches in order.
struct Tree {
  struct Branch {
    int64_t first, count, at;  // tokens first … first + count - 1 after `at` tokens of the trunk
  };
  int32_t *trunk, *all;  // tokens of the trunk; all, in order
  int64_t length = 0;    // of the trunk
  Branch* branches;
  int64_t count = 0;

  Tree(Memory& memory, int64_t longest, bool branched)
      : trunk(memory.take<int32_t>(longest)),
        all(memory.take<int32_t>(longest)),
        branches(memory.take<Branch>(branched ? longest : 1)) {}

  void read(const Recurrence& sequences, int64_t s) {
    length = count = 0;
    const int64_t first = sequences.begin(s), tokens = sequences.length(s);
    int64_t run = 0;
    for (int64_t i = 0; i < tokens; i++) {
      const int64_t branch = sequences.branch_of(first + i);
      all[i] = static_cast<int32_t>(first + i);
      if (branch == 0) {
        trunk[length++] = all[i];
      } else if (branch != run) {
        branches[count++] = {i, 1, length};
      } else {
        branches[count - 1].count++;
      }
      run = branch;
    }
  }
  /// Chunks of the trunk, with one that only branches have.
  int64_t chunks() const {
    const int64_t full = (length + kChunk - 1) / kChunk;
    return count > 0 ? std::max(full, branches[count - 1].at / kChunk + 1) : full;
  }
  int64_t longest_branch() const {
    int64_t most = 0;
    for (int64_t b = 0; b < count; b++) most = std::max(most, branches[b].count);
    return most;
  }
  Rows chunk(int64_t m) const {
    return {trunk + m * kChunk, 0, std::clamp<int64_t>(length - m * kChunk, 0, kChunk)};
  }
  /// The rows of a branch in the chunk of the trunk where it begins.
  Rows beginning(const Branch& branch) const {
    const int64_t from = branch.at % kChunk;
    return {all + branch.first, from, std::min(from + branch.count, kChunk)};
  }
  /// Later ones.
  Rows later(const Branch& branch, int64_t done) const {
    return {all + branch.first + done, 0, std::min(branch.count - done, kChunk)};
  }
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
