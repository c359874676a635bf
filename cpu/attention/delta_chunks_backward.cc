// The backward of the gated delta rule by chunks (delta_chunks.h). A first walk keeps δ of all tokens and the state before every
// chunk of the trunk; the second goes back through the chunks, branches before what they continue. With do, the gradient dS' of the
// state after a chunk, and dδ:
//   dδ_j = Σ_{i≥j} G_ij·(q_i·k_j)·do_i + e^(g_n - g_j)·dS'ᵀk_j - Σ_{i>j} G_ij·(k_i·k_j)·β_i·dδ_i,   dv_i = β_i·dδ_i
//   W_ij = G_ij·(do_i·δ_j) for j ≤ i,   X_ij = -G_ij·(dv_i·δ_j) for j < i
//   dq_i = e^g_i·S·do_i + Σ_j W_ij·k_j
//   dk_i = e^(g_n - g_i)·dS'·δ_i - e^g_i·S·dv_i + Σ_j W_ji·q_j + Σ_j X_ij·k_j + Σ_j X_ji·k_j
//   dS   = e^g_n·dS' + Σ_i e^g_i·(q_i·do_iᵀ - k_i·dv_iᵀ)
// and dg from the products of which each factor e^g is a part. What goes from chunk to chunk is made of factors of two bf16, what
// only this chunk's gradients need of one.
#include "cpu/attention/delta_chunks.h"

#if defined(__AMX_BF16__)

namespace steptrain::cpu::STEPTRAIN_ISA::delta {
namespace {

/// Products of the rows of one chunk.
struct Sums {
  Tiles dout, ddelta, dv, beside;               // [kChunk, V]; do, dδ, β·dδ and a product
  Tiles from_state, read, written, query, key;  // [kChunk, K]: S·do, S·dv, dS'·δ, of q and k within the chunk
  Tiles outputs, values;                        // [kChunk, kChunk]: do·δ, dv·δ
  float *transposed, *to_query, *to_key, *low, *high;  // [kChunk][kChunk]
  bf16 *dout_rows, *dout_left;
  Halves left, square, panels, query_panels, after;
  bf16 *after_rows, *delta_rows, *key_columns, *query_columns;

  Sums(Memory& memory, const Shape& shape) {
    const int64_t K = shape.key_size, V = shape.value_size, widest = std::max({K, V, kChunk});
    for (Tiles* const each : {&dout, &ddelta, &dv, &beside}) *each = memory.tiles(kChunk, V);
    for (Tiles* const each : {&from_state, &read, &written, &query, &key}) *each = memory.tiles(kChunk, K);
    for (Tiles* const each : {&outputs, &values}) *each = memory.tiles(kChunk, kChunk);
    for (float** const each : {&transposed, &to_query, &to_key, &low, &high})
      *each = memory.take<float>(kChunk * kChunk);
    dout_rows = memory.take<bf16>(kChunk * V);
    dout_left = memory.take<bf16>(kChunk * V);
    left = {memory.take<bf16>(kChunk * widest), memory.take<bf16>(kChunk * widest)};
    square = {memory.take<bf16>(kChunk * kChunk), memory.take<bf16>(kChunk * kChunk)};
    panels = {memory.take<bf16>(kChunk * V), memory.take<bf16>(kChunk * V)};
    query_panels = {memory.take<bf16>(kChunk * V), memory.take<bf16>(kChunk * V)};
    after = {memory.take<bf16>(K * V), memory.take<bf16>(K * V)};
    after_rows = memory.take<bf16>(K * V);
    delta_rows = memory.take<bf16>(kChunk * V);
    key_columns = memory.take<bf16>(kChunk * K);
    query_columns = memory.take<bf16>(kChunk * K);
  }
};

/// Gradients of the rows of a path, of those that it continues too.
struct RowGradients {
  float *query, *key;         // [kChunk][K], of all value heads
  std::vector<float*> delta;  // [kChunk][V] of each value head
  std::vector<float*> sum;    // dg of each value head

  RowGradients(Memory& memory, const Shape& shape)
      : query(memory.take<float>(kChunk * shape.key_size)), key(memory.take<float>(kChunk * shape.key_size)) {
    for (int64_t h = 0; h < shape.group; h++) {
      delta.push_back(memory.take<float>(kChunk * shape.value_size));
      sum.push_back(memory.take<float>(kChunk));
    }
  }
  void clear(const Shape& shape) {
    std::fill_n(query, kChunk * shape.key_size, 0.0f);
    std::fill_n(key, kChunk * shape.key_size, 0.0f);
    for (size_t h = 0; h < delta.size(); h++) {
      std::fill_n(delta[h], kChunk * shape.value_size, 0.0f);
      std::fill_n(sum[h], kChunk, 0.0f);
    }
  }
  /// Adds those of the first rows.
  void add(const Shape& shape, const RowGradients& other, int64_t rows) {
    const auto sum_up = [](float* into, const float* from, int64_t count) {
      for (int64_t i = 0; i < count; i++) into[i] += from[i];
    };
    sum_up(key, other.key, rows * shape.key_size);
    for (size_t h = 0; h < delta.size(); h++) {
      sum_up(delta[h], other.delta[h], rows * shape.value_size);
      sum_up(sum[h], other.sum[h], rows);
    }
  }
};

/// out = xᵀ of the own rows of x, [kChunk][kChunk], and zeros in the place of the others.
void transposed(const float* x, const Rows& path, float* out) {
  for (int64_t i = 0; i < path.depth(); i += kLanes)
    for (int64_t j = 0; j < path.depth(); j += kLanes) {
      vf block[kLanes];
      for (int64_t l = 0; l < kLanes; l++)
        block[l] = i + l >= path.from && i + l < path.rows ? load(x + (i + l) * kChunk + j) : zero();
      transpose(block);
      for (int64_t l = 0; l < kLanes; l++) store(out + (j + l) * kChunk + i, block[l]);
    }
}

/// dδ of all rows and β·dδ of the own ones, from the last row up: x_j += Σ_{i>j} c_ij·y_i, y_j = β_j·x_j. `across` is cᵀ.
void solve_back(const float* across, const float* beta, const Rows& path, const Tiles& x, const Tiles& y) {
  for (int64_t right = 0; right < x.across; right++)
    for (int64_t first = (path.rows - 1) / kSolved * kSolved; first >= 0; first -= kSolved) {
      vf sums[kSolved][2];
#pragma GCC unroll 8
      for (int r = 0; r < kSolved; r++) {
        const float* const row = x.row(first + r, right);
        sums[r][0] = load(row), sums[r][1] = load(row + kLanes);
      }
      for (int64_t i = path.rows - 1; i >= std::max(first + kSolved, path.from); i--) {
        const float* const row = y.row(i, right);
        const vf low = load(row), high = load(row + kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kSolved; r++) {
          const vf factor = set1(across[(first + r) * kChunk + i]);
          sums[r][0] = fma(factor, low, sums[r][0]);
          sums[r][1] = fma(factor, high, sums[r][1]);
        }
      }
#pragma GCC unroll 8
      for (int r = kSolved - 1; r >= 0; r--) {
        const int64_t i = first + r;
        if (i >= path.rows) continue;
        float* const row = x.row(i, right);
        store(row, sums[r][0]), store(row + kLanes, sums[r][1]);
        if (i < path.from) continue;
        const vf low = sums[r][0] * set1(beta[i]), high = sums[r][1] * set1(beta[i]);
        store(y.row(i, right), low), store(y.row(i, right) + kLanes, high);
#pragma GCC unroll 8
        for (int before = 0; before < r; before++) {
          const vf factor = set1(across[(first + before) * kChunk + i]);
          sums[before][0] = fma(factor, low, sums[before][0]);
          sums[before][1] = fma(factor, high, sums[before][1]);
        }
      }
    }
}

/// Everything of one key head of one sequence.
struct Backward {
  const Shape& shape;
  const bf16 *dout, *qkv;
  GateInputs gates;
  bf16 *dqkv, *da, *db;
  float *drate, *dsoft;
  int64_t first;  // token of the sequence
  int64_t key_head;
  Sums& sums;
  const std::vector<float*>& kept;  // δ of each token of branches, by value head

  /// Reads the own rows of a path.
  void read(Walk& walk, const Rows& path) const {
    read_keys(shape, qkv, key_head, path, walk.keys, true, true);
    for (int64_t h = 0; h < shape.group; h++)
      read_gates(shape, gates, key_head * shape.group + h, path, walk.keys, true,
                 walk.heads[static_cast<size_t>(h)].gates);
  }
  /// Copies δ of a branch's own rows from where it is kept, or there.
  void recall(const Walk& walk, const Rows& path) const {
    each_kept(walk, path, [](float* here, float* there) { std::copy_n(there, kSide, here); });
  }
  void keep(const Walk& walk, const Rows& path) const {
    each_kept(walk, path, [](float* here, float* there) { std::copy_n(here, kSide, there); });
  }
  void each_kept(const Walk& walk, const Rows& path, const auto& copy) const {
    for (int64_t h = 0; h < shape.group; h++) {
      const Tiles& delta = walk.heads[static_cast<size_t>(h)].delta;
      for (int64_t i = path.from; i < path.rows; i++) {
        float* const there = kept[static_cast<size_t>(h)] + (path.token(i) - first) * shape.value_size;
        for (int64_t right = 0; right < delta.across; right++)
          copy(delta.row(i, right), there + right * kSide);
      }
    }
  }

  /// dδ of all rows and dv of the own ones. `out` has what later branches add.
  void values(const Keys& keys, const Head& head, const Rows& path, int64_t index, bool goes_on, bool fresh,
              const float* scale, float* out) const {
    const Gates& g = head.gates;
    const int64_t V = shape.value_size, depth = path.depth();
    const auto bytes = static_cast<size_t>(V) * sizeof(bf16);
    for (int64_t i = 0; i < depth; i++)
      if (i < path.from || i >= path.rows) std::memset(static_cast<void*>(sums.dout_rows + i * V), 0, bytes);
    for (int64_t i = path.from; i < path.rows; i++) {
      const bf16* const from = dout + (path.token(i) * shape.heads + index) * V;
      std::memcpy(sums.dout_rows + i * V, from, bytes);
      amx_tile::order_row(from, V, sums.dout_left, i);
      for (int64_t right = 0; right < sums.dout.across; right++)
        for (int64_t c = 0; c < kSide; c += kLanes)
          store(sums.dout.row(i, right) + c, load(from + right * kSide + c));
    }
    if (goes_on) {
      product(0, path.rows, shape.key_size, {{keys.left, sums.after.high}, {keys.left, sums.after.low}},
              sums.ddelta, false);
    }
    // Products of do are exact in its panels.
    for (int64_t c = 0; c < V; c += kPanel)
      pack_columns<bf16>(sums.dout_rows + c, V, kPanel, depth,
                         sums.panels.high + c / kPanel * depth * kPanel);
    transposed(g.queries, path, sums.transposed);
    const auto row = [&](int64_t r, int64_t step) { return sums.transposed + r * kChunk + step * kSide; };
    left_factor<true>(0, path.rows, depth, row, sums.square);
    product(0, path.rows, depth, {{sums.square.high, sums.panels.high}, {sums.square.low, sums.panels.high}},
            sums.beside, false);
    for (int64_t i = 0; i < path.rows; i++)
      for (int64_t c = 0; c < V; c += kLanes) {
        const int64_t right = c / kSide, at = c % kSide;
        vf x = load(sums.beside.row(i, right) + at);
        if (!fresh) x = x + load(out + i * V + c);
        if (goes_on) x = fma(set1(scale[i]), load(sums.ddelta.row(i, right) + at), x);
        store(sums.ddelta.row(i, right) + at, x);
      }
    transposed(g.keys, path, sums.transposed);
    solve_back(sums.transposed, g.beta, path, sums.ddelta, sums.dv);
    for (int64_t i = 0; i < path.from; i++)
      for (int64_t right = 0; right < sums.ddelta.across; right++)
        std::copy_n(sums.ddelta.row(i, right), kSide, out + i * V + right * kSide);
  }

  /// W and X as factors of rows of k and q, and their parts of dg.
  void within(const Keys& keys, const Gates& g, const Rows& path, float* dsum) const {
    const float size = 1.0f / std::sqrt(static_cast<float>(shape.key_size));
    alignas(64) float lane[kLanes], column[kChunk];
    for (int i = 0; i < kLanes; i++) lane[i] = static_cast<float>(i);
    std::fill_n(column, kChunk, 0.0f);
    for (int64_t i = path.from; i < path.rows; i++) {
      vf row = zero();
      const vf at = set1(static_cast<float>(i)), own = set1(keys.scale[i]),
               query = set1(keys.query_scale[i] * size);
      for (int64_t j = 0; j < path.depth(); j += kLanes) {
        const int64_t place = i * kChunk + j;
        if (j > i) {
          for (float* const each : {sums.to_query, sums.to_key, sums.low, sums.high})
            store(each + place, zero());
          continue;
        }
        const vf index = load(lane) + set1(static_cast<float>(j)), decay = load(g.decay + place);
        const vf from_output = load(sums.outputs.row(i, j / kSide) + j % kSide);
        const vf from_value = load(sums.values.row(i, j / kSide) + j % kSide);
        const vf w = select_less(at, index, zero(), decay * from_output);
        const vf x = select_less(index, at, zero() - decay * from_value, zero());
        const vf both = fma(load(g.queries + place), from_output, load(g.keys + place) * from_value);
        const vf e = select_less(index, at, both, zero());
        row = row + e;
        store(column + j, load(column + j) + e);
        const vf other = load(keys.scale + j);
        const auto scaled = [&](vf value, vf factor) {
          return select_less(at, index, zero(), value * factor);
        };
        store(sums.to_query + place, scaled(w, other));
        store(sums.to_key + place, w * query);
        store(sums.low + place, scaled(x, other));
        store(sums.high + place, x * own);
      }
      dsum[i] += lane_sum(row);
    }
    for (int64_t j = 0; j < path.rows; j++) dsum[j] -= column[j];
  }

  /// One block. `after`: the gradient of the state after it, of which `before` gets its part. Unless they are `fresh`, before and
  /// rows have the gradients of branches.
  void block(Walk& walk, const Rows& path, const std::vector<Tiles>& after, const std::vector<Tiles>& before,
             RowGradients& rows, bool fresh, bool first_of_state) const {
    const Keys& keys = walk.keys;
    const int64_t K = shape.key_size, V = shape.value_size, depth = path.depth();
    const float size = 1.0f / std::sqrt(static_cast<float>(K));
    const bool goes_on = !after.empty();
    for (int64_t c = 0; c < K; c += kPanel) {
      pack_columns<bf16>(keys.rows + c, K, kPanel, depth, sums.key_columns + c / kPanel * depth * kPanel);
      pack_columns<bf16>(keys.query_rows + c, K, kPanel, depth,
                         sums.query_columns + c / kPanel * depth * kPanel);
    }
    for (int64_t h = 0; h < shape.group; h++) {
      const auto at = static_cast<size_t>(h);
      Head& head = walk.heads[at];
      const Gates& g = head.gates;
      const int64_t index = key_head * shape.group + h;
      float* const dsum = rows.sum[at];
      if (fresh) std::fill_n(dsum, kChunk, 0.0f);
      const bool first_head = fresh && h == 0;
      alignas(64) float scale[kChunk], end[kChunk];
      to_end(path, keys, g, scale);
      for (int64_t i = 0; i < path.rows; i += kLanes)
        store(end + i, decayed(set1(g.sum[path.rows - 1]) - load(g.sum + i)));
      if (goes_on) {
        column_panels<true>(after[at], 0, K, K, nullptr, sums.after);
        row_panels(after[at], K, V, sums.after_rows);
      }
      values(keys, head, path, index, goes_on, fresh, scale, rows.delta[at]);

      row_panels(head.delta, path.rows, V, sums.delta_rows);
      const auto delta_row = [&](int64_t r, int64_t step) { return head.delta.row(r, step); };
      const auto dv_row = [&](int64_t r, int64_t step) { return sums.dv.row(r, step); };
      if (goes_on) {
        left_factor<false>(0, path.rows, V, delta_row, sums.left);
        product(0, path.rows, V, {{sums.left.high, sums.after_rows}}, sums.written, false);
      }
      product(path.from, path.rows, V, {{sums.dout_left, sums.delta_rows}}, sums.outputs, false);
      product(path.from, path.rows, V, {{sums.dout_left, head.panels.high}}, sums.from_state, false);
      left_factor<false>(path.from, path.rows, V, dv_row, sums.left);
      product(path.from, path.rows, V, {{sums.left.high, sums.delta_rows}}, sums.values, false);
      product(path.from, path.rows, V, {{sums.left.high, head.panels.high}}, sums.read, false);

      within(keys, g, path, dsum);
      const auto matrix = [](const float* x) {
        return [x](int64_t r, int64_t step) { return x + r * kChunk + step * kSide; };
      };
      left_factor<false>(path.from, path.rows, depth, matrix(sums.to_query), sums.square);
      product(path.from, path.rows, depth, {{sums.square.high, sums.key_columns}}, sums.query, false);
      transposed(sums.to_key, path, sums.transposed);
      left_factor<false>(0, path.rows, depth, matrix(sums.transposed), sums.square);
      transposed(sums.high, path, sums.transposed);
      for (int64_t i = path.from; i < path.rows; i++)
        for (int64_t j = 0; j < depth; j += kLanes) {
          float* const to = sums.transposed + i * kChunk + j;
          store(to, load(to) + load(sums.low + i * kChunk + j));
        }
      left_factor<false>(0, path.rows, depth, matrix(sums.transposed), {sums.square.low, nullptr});
      product(0, path.rows, depth,
              {{sums.square.high, sums.query_columns}, {sums.square.low, sums.key_columns}}, sums.key, false);

      // The gradient of the state before.
      alignas(64) float factor[kChunk];
      for (int64_t i = path.from; i < path.rows; i++) factor[i] = 0.0f - g.power[i] * keys.scale[i];
      column_panels<true>(sums.dv, path.from, path.rows, depth, factor, sums.panels);
      float along = 0;  // of the state and the gradient of the state after
      if (goes_on) {
        const vf decay = set1(g.power[path.rows - 1]);
        vf even = zero(), odd = zero();
        for (int64_t i = 0; i < shape.state(); i += kSide)
          for (int64_t c = i; c < i + kSide; c += kLanes) {
            const vf x = load(after[at].data + c);
            vf& products = c == i ? even : odd;
            products = fma(x, load(head.state.data + c), products);
            store(before[at].data + c, first_of_state ? decay * x : fma(decay, x, load(before[at].data + c)));
          }
        along = lane_sum(even + odd);
      } else if (first_of_state) {
        std::fill_n(before[at].data, shape.state(), 0.0f);
      }
      for (int64_t i = path.from; i < path.rows; i++) factor[i] = g.power[i] * keys.query_scale[i] * size;
      column_panels<true>(sums.dout, path.from, path.rows, depth, factor, sums.query_panels);
      product(0, K, depth,
              {{keys.across, sums.panels.high},
               {keys.across, sums.panels.low},
               {keys.query_across, sums.query_panels.high},
               {keys.query_across, sums.query_panels.low}},
              before[at], true);

      // Gradients of q, k and g.
      float ends = 0;
      for (int64_t i = 0; i < path.rows; i++) {
        const bool own = i >= path.from;
        const float power = own ? g.power[i] : 0.0f;
        const vf by_power = set1(power), by_end = set1(end[i]);
        vf by_written = zero(), by_read = zero(), by_query = zero();
        for (int64_t c = 0; c < K; c += kLanes) {
          const int64_t right = c / kSide, place = c % kSide;
          float *const query = rows.query + i * K + c, *const key = rows.key + i * K + c;
          const vf k = load(keys.rows + i * K + c);
          vf dk = load(sums.key.row(i, right) + place);
          if (goes_on) {
            const vf written = load(sums.written.row(i, right) + place);
            dk = fma(by_end, written, dk);
            by_written = fma(k, written, by_written);
          }
          if (own) {
            const vf read = load(sums.read.row(i, right) + place);
            dk = dk - by_power * read;
            by_read = fma(k, read, by_read);
            const vf from_state = load(sums.from_state.row(i, right) + place);
            by_query = fma(load(keys.query_rows + i * K + c), from_state, by_query);
            const vf dq = fma(by_power, from_state, load(sums.query.row(i, right) + place));
            store(query, first_head ? dq : load(query) + dq);
          }
          store(key, first_head ? dk : load(key) + dk);
        }
        if (goes_on) {
          const float part = scale[i] * lane_sum(by_written);
          ends += part;
          dsum[i] -= part;
        }
        if (own)
          dsum[i] +=
              power * (keys.query_scale[i] * size * lane_sum(by_query) - keys.scale[i] * lane_sum(by_read));
      }
      if (goes_on) dsum[path.rows - 1] += ends + g.power[path.rows - 1] * along;
      store_gates(g, head.delta, path, index, dsum);
    }
    store_keys(keys, path, rows);
  }

  /// dv, da and db of the own rows. dg of a row adds to log α of all rows up to it.
  void store_gates(const Gates& g, const Tiles& delta, const Rows& path, int64_t index, float* dsum) const {
    float run = 0;
    for (int64_t i = path.rows - 1; i >= path.from; i--) {
      run += dsum[i];
      const int64_t t = path.token(i), at = t * shape.heads + index;
      drate[at] = -run * g.rate * g.softened[i];
      dsoft[at] = -run * g.rate / (1.0f + std::exp(-g.moved[i]));
      da[at] = from_float<bf16>(dsoft[at]);
      // dβ·β = dδ·δ
      vf even = zero(), odd = zero();
      bf16* const dv = dqkv + shape.value(t, index);
      for (int64_t right = 0; right < delta.across; right++) {
        const float *const x = sums.ddelta.row(i, right), *const y = delta.row(i, right),
                           *const value = sums.dv.row(i, right);
        even = fma(load(x), load(y), even), odd = fma(load(x + kLanes), load(y + kLanes), odd);
        store_row(dv + right * kSide, load(value), load(value + kLanes));
      }
      db[at] = from_float<bf16>(lane_sum(even + odd) * (1.0f - g.beta[i]));
    }
    if (path.from > 0) dsum[path.from - 1] += run;
  }

  /// dx of y = x·factor/|x|.
  static void normal_backward(const bf16* x, const float* dy, bf16* dx, int64_t size, float inverse,
                              float factor) {
    const vf unit = set1(inverse);
    vf even = zero(), odd = zero();
    for (int64_t i = 0; i < size; i += kSide) {
      even = fma(load(x + i) * unit, load(dy + i), even);
      odd = fma(load(x + i + kLanes) * unit, load(dy + i + kLanes), odd);
    }
    const float along = lane_sum(even + odd);
    for (int64_t i = 0; i < size; i += kLanes)
      store(dx + i, (load(dy + i) - load(x + i) * unit * set1(along)) * set1(inverse * factor));
  }
  void store_keys(const Keys& keys, const Rows& path, const RowGradients& rows) const {
    const int64_t K = shape.key_size;
    const float size = 1.0f / std::sqrt(static_cast<float>(K));
    for (int64_t i = path.from; i < path.rows; i++) {
      const int64_t t = path.token(i);
      normal_backward(keys.query_rows + i * K, rows.query + i * K, dqkv + shape.query(t, key_head), K,
                      keys.query_scale[i], size);
      normal_backward(keys.rows + i * K, rows.key + i * K, dqkv + shape.key(t, key_head), K, keys.scale[i],
                      1.0f);
    }
  }
};

using Each = std::vector<Tiles>;  // of the value heads

/// The memory of one member of the pool.
struct Room {
  Walk trunk, own;
  Tree tree;
  Sums sums;
  RowGradients rows, continued;  // of a block; of the trunk's rows by branches
  std::vector<float*> kept;
  std::vector<Each>
      starts;  // the state before each chunk of the trunk; going back, before those of a branch too
  std::vector<Each> deltas;  // δ of each chunk of the trunk
  Each after, before, branch_after, branch_before;
  const Each branched_deltas, own_states, own_next;

  Room(Memory& memory, const Shape& shape, int64_t longest, bool branched)
      : trunk(memory, shape, true),
        own(memory, shape, true),
        tree(memory, longest, branched),
        sums(memory, shape),
        rows(memory, shape),
        continued(memory, shape),
        branched_deltas(trunk.deltas_of()),
        own_states(own.states()),
        own_next(own.next) {
    const auto each = [&](int64_t rows) {
      Each tiles;
      for (int64_t h = 0; h < shape.group; h++) tiles.push_back(memory.tiles(rows, shape.value_size));
      return tiles;
    };
    for (int64_t h = 0; h < shape.group; h++)
      kept.push_back(memory.take<float>(branched ? longest * shape.value_size : 0));
    // A trunk and a branch together have no more chunks than the sequence, but for the two that they begin.
    for (int64_t i = 0; i < longest / kChunk + 2; i++) {
      starts.push_back(each(shape.key_size));
      deltas.push_back(each(kChunk));
    }
    after = each(shape.key_size), before = each(shape.key_size);
    if (branched) branch_after = each(shape.key_size), branch_before = each(shape.key_size);
  }

  /// Lets branches take places in δ of a chunk of the trunk.
  void branch_from(int64_t m) {
    for (size_t h = 0; h < trunk.heads.size(); h++)
      std::copy_n(deltas[static_cast<size_t>(m)][h].data, kChunk * trunk.heads[h].delta.across * kSide,
                  branched_deltas[h].data);
    trunk.point_deltas(branched_deltas);
  }
};

/// The first walk: δ of all tokens, and the states before the chunks of the trunk.
void walk_forward(const Backward& work, Room& room) {
  const Shape& shape = work.shape;
  const auto remember = [&](Walk& walk, const Rows& path) {
    walk.remember(shape, work.qkv, work.gates, work.key_head, path, false);
  };
  const Tree& tree = room.tree;
  Walk &trunk = room.trunk, &own = room.own;
  trunk.point(room.starts[0]);
  trunk.clear(shape);
  own.point(room.own_states);
  own.next = room.own_next;
  int64_t last = 0;
  for (int64_t m = 0, chunks = tree.chunks(); m < chunks; m++) {
    const auto at = static_cast<size_t>(m);
    const Rows path = tree.chunk(m);
    trunk.point(room.starts[at]);
    trunk.point_deltas(room.deltas[at]);
    trunk.pack(shape);
    if (path.rows > 0) remember(trunk, path);
    if (m + 1 < chunks) trunk.leave(shape, path, room.starts[at + 1]);
    const int64_t first = last;
    while (last < tree.count && tree.branches[last].at / kChunk == m) last++;
    if (last > first) room.branch_from(m);
    for (int64_t b = last - 1; b >= first; b--) {
      const Tree::Branch& branch = tree.branches[b];
      const Rows beginning = tree.beginning(branch);
      remember(trunk, beginning);
      work.keep(trunk, beginning);
      int64_t done = beginning.rows - beginning.from;
      if (done == branch.count) continue;
      trunk.leave(shape, beginning, own.states());
      while (true) {
        const Rows later = tree.later(branch, done);
        own.pack(shape);
        remember(own, later);
        work.keep(own, later);
        done += later.rows;
        if (done == branch.count) break;
        own.leave(shape, later, own.next);
        own.step();
      }
    }
  }
}

/// The states before a block as factors of rows of gradients.
void pack_back(const Shape& shape, Walk& walk) {
  for (Head& head : walk.heads) row_panels(head.state, shape.key_size, shape.value_size, head.panels.high);
}

/// The gradients of a branch; those of the rows that it continues go to `continued`, of the state to `before`.
void branch_back(const Backward& work, Room& room, const Tree::Branch& branch, int64_t m,
                 bool first_of_state) {
  const Shape& shape = work.shape;
  const Tree& tree = room.tree;
  Walk &trunk = room.trunk, &own = room.own;
  const Rows beginning = tree.beginning(branch);
  work.read(trunk, beginning);
  work.recall(trunk, beginning);
  const int64_t begun = beginning.rows - beginning.from;
  const int64_t chunks = (branch.count - begun + kChunk - 1) / kChunk;
  if (chunks > 0) {
    // States after the trunk's chunk m are no longer needed.
    const auto start = [&](int64_t c) -> const Each& { return room.starts[static_cast<size_t>(m + 1 + c)]; };
    const auto read = [&](int64_t c) {
      const Rows path = tree.later(branch, begun + c * kChunk);
      own.point(start(c));
      work.read(own, path);
      work.recall(own, path);
      return path;
    };
    trunk.leave(shape, beginning, start(0));
    for (int64_t c = 0; c + 1 < chunks; c++) {
      const Rows path = read(c);
      own.leave(shape, path, start(c + 1));
    }
    for (int64_t c = chunks - 1; c >= 0; c--) {
      const Rows path = read(c);
      pack_back(shape, own);
      work.block(own, path, c + 1 < chunks ? room.branch_after : Each{}, room.branch_before, room.rows, true,
                 true);
      std::swap(room.branch_after, room.branch_before);
    }
  }
  work.block(trunk, beginning, chunks > 0 ? room.branch_after : Each{}, room.before, room.rows, true,
             first_of_state);
  room.continued.add(shape, room.rows, beginning.from);
}

void walk_back(const Backward& work, Room& room) {
  const Shape& shape = work.shape;
  const Tree& tree = room.tree;
  Walk& trunk = room.trunk;
  int64_t left = tree.count;
  const int64_t chunks = tree.chunks();
  for (int64_t m = chunks - 1; m >= 0; m--) {
    const auto at = static_cast<size_t>(m);
    const Rows path = tree.chunk(m);
    trunk.point(room.starts[at]);
    trunk.point_deltas(room.deltas[at]);
    pack_back(shape, trunk);
    if (path.rows > 0) work.read(trunk, path);
    bool fresh = true;
    for (; left > 0 && tree.branches[left - 1].at / kChunk == m; left--) {
      if (fresh) {
        room.branch_from(m);
        room.continued.clear(shape);
      }
      branch_back(work, room, tree.branches[left - 1], m, fresh);
      fresh = false;
    }
    if (path.rows > 0) {
      if (!fresh) {
        trunk.point_deltas(room.deltas[at]);
        work.read(trunk, path);
      }
      work.block(trunk, path, m + 1 < chunks ? room.after : Each{}, room.before, room.continued, fresh,
                 fresh);
    }
    std::swap(room.after, room.before);
  }
}

}  // namespace

void gated_delta_rule_backward(Stream& stream, const Args& args) {
  const auto [dout, qkv, a, b, a_log, dt_bias, cu, branches, da_log, ddt_bias, dqkv, da, db] =
      args.tensors<13>();
  const Shape shape(qkv, a[1], dout[2], args.i(0), args.i(1));
  if (!shape.fits(qkv.dtype)) return by_tokens("gated_delta_rule_backward", stream, args);
  const Recurrence sequences("gated_delta_rule_backward", qkv[0], cu, branches);
  const int64_t longest = sequences.longest(), tokens = qkv[0];
  Memory counted{nullptr};
  Room(counted, shape, longest, static_cast<bool>(branches));
  char* const scratch = stream.scratch.take<char>(stream.pool.threads() * counted.used);
  float* const drate = stream.scratch.take<float>(2 * tokens * shape.heads);
  float* const dsoft = drate + tokens * shape.heads;
  const bool branched = static_cast<bool>(branches);
  const GateInputs gates{a, b, a_log, dt_bias};
  const TensorView &incoming = dout, &inputs = qkv, &to_qkv = dqkv, &to_a = da, &to_b = db;
  stream.pool.region([&](Worker& worker) {
    Memory memory{scratch + worker.index * counted.used};
    Room room(memory, shape, longest, branched);
    const int64_t tasks = sequences.sequences * shape.key_heads;
    for (int64_t task; (task = worker.next()) < tasks;) {
      const int64_t s = task / shape.key_heads;
      room.tree.read(sequences, s);
      const Backward work{shape,
                          incoming.as<bf16>(),
                          inputs.as<bf16>(),
                          gates,
                          to_qkv.as<bf16>(),
                          to_a.as<bf16>(),
                          to_b.as<bf16>(),
                          drate,
                          dsoft,
                          sequences.begin(s),
                          task % shape.key_heads,
                          room.sums,
                          room.kept};
      walk_forward(work, room);
      walk_back(work, room);
    }
  });
  const auto add = [&](const TensorView& into, const float* from) {
    if (!into) return;
    stream.pool.run(shape.heads, [&](int64_t head) {
      float total = 0;
      for (int64_t t = 0; t < tokens; t++) total += from[t * shape.heads + head];
      into.as<float>()[head] += total;
    });
  };
  add(da_log, drate);
  add(ddt_bias, dsoft);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
