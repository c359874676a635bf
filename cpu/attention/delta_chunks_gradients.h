// The rows of one chunk that the backward of the gated delta rule keeps, and its way back through their triangle of products.
#pragma once

#if defined(__AVX512BF16__)

#include <algorithm>
#include <vector>

#include "cpu/attention/delta_chunks.h"

namespace steptrain::cpu::STEPTRAIN_ISA::delta {
namespace {  // of delta_chunks_backward.cc alone

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

}  // namespace
}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
