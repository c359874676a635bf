// The gated delta rule (cpu/gated_delta_rule.cc) in bf16, by chunks of kChunk tokens: products of blocks instead of a state for
// each token. Within a chunk, with the state S before it, g_i = Σ_{l≤i} log α_l and G_ij = e^(g_i - g_j):
//   δ_i = β_i·(v_i - e^g_i·Sᵀk_i - Σ_{j<i} G_ij·(k_i·k_j)·δ_j)
//   o_i = e^g_i·Sᵀq_i + Σ_{j≤i} G_ij·(q_i·k_j)·δ_j
//   S'  = e^g_n·S + Σ_j e^(g_n - g_j)·k_j·δ_jᵀ
// Chunks begin at multiples of kChunk of a path: a trunk, or what a branch continues and the branch. A branch takes the rows of the
// chunk's trunk before it as they are and the state before the chunk, so it has the bits of a sequence of its own. Queries and keys
// are factors as they are stored, in bf16, and their norms scale sums. States stay in f32; as factors they are the sum of two bf16.
#pragma once

#if defined(__AVX512BF16__)

#include <algorithm>
#include <vector>

#include "cpu/attention/delta_chunks_rows.h"
#include "cpu/attention/delta_chunks_tree.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_BASE {
const KernelTable& kernels();
}

namespace steptrain::cpu::STEPTRAIN_ISA::delta {

/// The kernel that takes token by token.
inline void by_tokens(const char* op, Stream& stream, const Args& args) {
  STEPTRAIN_BASE::kernels().at(op_index(op))(stream, args);
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

}  // namespace steptrain::cpu::STEPTRAIN_ISA::delta

#endif
