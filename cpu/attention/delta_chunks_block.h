// The backward of the gated delta rule (delta_chunks.h) for one block, the rows of a path in one chunk. With do, the gradient dS' of
// the state after a chunk, and dδ:
//   dδ_j = Σ_{i≥j} G_ij·(q_i·k_j)·do_i + e^(g_n - g_j)·dS'ᵀk_j - Σ_{i>j} G_ij·(k_i·k_j)·β_i·dδ_i,   dv_i = β_i·dδ_i
//   W_ij = G_ij·(do_i·δ_j) for j ≤ i,   X_ij = -G_ij·(dv_i·δ_j) for j < i
//   dq_i = e^g_i·S·do_i + Σ_j W_ij·k_j
//   dk_i = e^(g_n - g_i)·dS'·δ_i - e^g_i·S·dv_i + Σ_j W_ji·q_j + Σ_j X_ij·k_j + Σ_j X_ji·k_j
//   dS   = e^g_n·dS' + Σ_i e^g_i·(q_i·do_iᵀ - k_i·dv_iᵀ)
// and dg from the products of which each factor e^g is a part. What goes from chunk to chunk is made of factors of two bf16, what
// only this chunk's gradients need of one.
#pragma once

#if defined(__AVX512BF16__)

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/attention/delta_chunks_gradients.h"

namespace steptrain::cpu::STEPTRAIN_ISA::delta {
namespace {  // of delta_chunks_backward.cc alone

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
      order_row(from, V, sums.dout_left, i);
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

}  // namespace
}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
