// Attention forward: o = softmax(scale·q·kᵀ, visible keys)·v and lse over ragged sequences, a block of query
// rows at a time, by an online softmax over key tiles; both outputs are =. Scores and sums are f32. With
// AVX512_BF16 and bf16 storage the operands of both products, p included, are bf16; elsewhere they are f32.
// Lanes are query rows, so a row's bits depend on its own keys alone: key tiles count from the sequence's
// token 0, every sum runs over ascending keys, and a masked key adds exactly 0, whether its tile is skipped
// or not. The mask leaves every row its own key at least.
#include <cmath>
#include <numbers>

#include "cpu/attention/tile.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr float kMinimum = -1e20f;  // the maximum of no scores: above kMasked, below any score

/// The memory of one thread. Every part is a whole number of cache lines.
struct Workspace {
  float *q, *k, *v, *scores, *o, *maximum, *sum, *decay, *zeros;

  static int64_t floats(int64_t units, int64_t lanes) {
    return units * kRows + kTile * units + kTile * lanes + kTile * kRows + lanes * kRows + 3 * kRows + lanes;
  }
  Workspace(float* memory, int64_t units, int64_t lanes)
      : q(memory),
        k(q + units * kRows),
        v(k + kTile * units),
        scores(v + kTile * lanes),
        o(scores + kTile * kRows),
        maximum(o + lanes * kRows),
        sum(maximum + kRows),
        decay(sum + kRows),
        zeros(decay + kRows) {}
};

template <typename Operand>
class Forward {
 public:
  using T = typename Operand::Storage;

  Forward(const Problem& problem, const TensorView& q, const TensorView& k, const TensorView& v,
          const TensorView& o, const TensorView& lse)
      : problem_(problem),
        q_(q.as<T>()),
        k_(k.as<T>()),
        v_(v.as<T>()),
        o_(o.as<T>()),
        lse_(lse.as<float>()),
        units_(padded_units<Operand>(problem.size)),
        lanes_(round_up(problem.size, kLanes)) {}

  int64_t workspace() const { return Workspace::floats(units_, lanes_); }

  void block(int64_t sequence, int64_t head, int64_t index, float* memory) const {
    const Workspace w(memory, units_, lanes_);
    const RowBlock rows(problem_, sequence, index);
    const int vectors = static_cast<int>((rows.count + kLanes - 1) / kLanes);
    pack_queries(w, rows, sequence, head, vectors);
    std::fill(w.maximum, w.maximum + kRows, kMinimum);
    std::fill(w.sum, w.sum + kRows, 0.0f);
    std::fill(w.o, w.o + lanes_ * kRows, 0.0f);
    std::fill(w.zeros, w.zeros + lanes_, 0.0f);
    for (int64_t tile = rows.lowest() / kTile * kTile; tile <= rows.highest(); tile += kTile) {
      const int64_t from = std::max(tile, rows.lowest() / kTileRows * kTileRows);
      const int64_t to = std::min(tile + kTile, round_up(rows.highest() + 1, kTileRows));
      if (rows.all_masked(from, std::min(to, rows.highest() + 1))) continue;
      pack_keys(w, sequence, head, from, to);
      score(w, to - from, vectors);
      if (!rows.all_visible(from, to)) mask(w, rows, from, to);
      make_probabilities(w, to - from, vectors);
      add_values(w, to - from, vectors);
    }
    finish(w, rows, sequence, head, vectors);
  }

 private:
  /// Transposes the queries, one row per lane.
  void pack_queries(const Workspace& w, const RowBlock& rows, int64_t sequence, int64_t head,
                    int vectors) const {
    for (int v = 0; v < vectors; v++) {
      const T* row[kLanes];
      for (int i = 0; i < kLanes; i++) {
        const int64_t r = std::min<int64_t>(v * kLanes + i, rows.count - 1);
        row[i] = q_ + problem_.query_row(sequence, head, rows.begin + r);
      }
      pack_columns<Operand>(row, problem_.size, w.q + v * kLanes, kRows);
    }
  }

  /// Keys [from, to) as rows and their values interleaved, with zeros past the sequence's end.
  void pack_keys(const Workspace& w, int64_t sequence, int64_t head, int64_t from, int64_t to) const {
    const int64_t length = problem_.length(sequence);
    const auto row = [&](const T* tensor, int64_t key) {
      return key < length ? tensor + problem_.key_row(sequence, head, key)
                          : reinterpret_cast<const T*>(w.zeros);
    };
    for (int64_t key = from; key < to; key++)
      pack_row<Operand>(row(k_, key), problem_.size, w.k + (key - from) * units_);
    for (int64_t key = from; key < to; key += Operand::kSteps)
      pack_interleaved<Operand>(row(v_, key), row(v_, key + Operand::kSteps - 1), problem_.size,
                                w.v + (key - from) / Operand::kSteps * lanes_);
  }

  /// scores[key][row] = scale·q·k in log2 units.
  void score(const Workspace& w, int64_t keys, int vectors) const {
    const vf scale = set1(problem_.scale * std::numbers::log2e_v<float>);
    const int64_t steps = (problem_.size + Operand::kSteps - 1) / Operand::kSteps;
    by_vectors(vectors, [&](int first, auto width) {
      for (int64_t key = 0; key < keys; key += kTileRows) {
        vf acc[kTileRows][width()] = {};
        accumulate<Operand>(acc, w.k + key * units_, units_, 1, w.q + first * kLanes, kRows, steps);
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < width(); v++)
            store(w.scores + (key + r) * kRows + (first + v) * kLanes, acc[r][v] * scale);
        }
      }
    });
  }

  void mask(const Workspace& w, const RowBlock& rows, int64_t from, int64_t to) const {
    for (int64_t key = from; key < to; key++) {
      float* scores = w.scores + (key - from) * kRows;
      const auto j = static_cast<int32_t>(key);
      for (int64_t r = 0; r < kRows; r++)
        scores[r] = (j >= rows.first[r]) & (j <= rows.last[r]) ? scores[r] : kMasked;
      if (!rows.key_branch || key > rows.highest() || rows.key_branch[key] == 0) continue;
      const int32_t branch = rows.key_branch[key];
      for (int64_t r = 0; r < kRows; r++) scores[r] = branch == rows.branch[r] ? scores[r] : kMasked;
    }
  }

  /// Turns scores into probabilities relative to the running maximum, as units whose steps are keys.
  void make_probabilities(const Workspace& w, int64_t keys, int vectors) const {
    by_vectors(vectors, [&](int first, auto width) {
      float* const scores = w.scores + first * kLanes;
      vf maximum[width()], sum[width()];
      for (int v = 0; v < width(); v++) maximum[v] = load(w.maximum + (first + v) * kLanes);
      for (int64_t key = 0; key < keys; key++) {
        for (int v = 0; v < width(); v++)
          maximum[v] = max(maximum[v], load(scores + key * kRows + v * kLanes));
      }
      for (int v = 0; v < width(); v++) {
        const int64_t at = (first + v) * kLanes;
        const vf decay = exp2(load(w.maximum + at) - maximum[v]);
        store(w.decay + at, decay);
        store(w.maximum + at, maximum[v]);
        sum[v] = load(w.sum + at) * decay;
      }
      for (int64_t key = 0; key < keys; key += Operand::kSteps) {
        for (int v = 0; v < width(); v++) {
          vf p[Operand::kSteps];
          for (int64_t s = 0; s < Operand::kSteps; s++) {
            p[s] = exp2(load(scores + (key + s) * kRows + v * kLanes) - maximum[v]);
            sum[v] = sum[v] + p[s];
          }
          store(scores + key / Operand::kSteps * kRows + v * kLanes,
                Operand::round(p[0], p[Operand::kSteps - 1]));
        }
      }
      for (int v = 0; v < width(); v++) store(w.sum + (first + v) * kLanes, sum[v]);
    });
  }

  /// o[d][row] = o·decay + Σ_key v·p.
  void add_values(const Workspace& w, int64_t keys, int vectors) const {
    by_vectors(vectors, [&](int first, auto width) {
      vf decay[width()];
      for (int v = 0; v < width(); v++) decay[v] = load(w.decay + (first + v) * kLanes);
      for (int64_t d = 0; d < problem_.size; d += kTileRows) {
        vf acc[kTileRows][width()];
        float* const out = w.o + d * kRows + first * kLanes;
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < width(); v++) acc[r][v] = load(out + r * kRows + v * kLanes) * decay[v];
        }
        accumulate<Operand>(acc, w.v + d, 1, lanes_, w.scores + first * kLanes, kRows,
                            keys / Operand::kSteps);
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < width(); v++) store(out + r * kRows + v * kLanes, acc[r][v]);
        }
      }
    });
  }

  void finish(const Workspace& w, const RowBlock& rows, int64_t sequence, int64_t head, int vectors) const {
    for (int v = 0; v < vectors; v++) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, rows.count - v * kLanes));
      T* row[kLanes];
      for (int i = 0; i < n; i++)
        row[i] = o_ + problem_.query_row(sequence, head, rows.begin + v * kLanes + i);
      const vf inverse = set1(1.0f) / load(w.sum + v * kLanes);
      unpack_columns(w.o + v * kLanes, kRows, inverse, row, n, problem_.size);
    }
    for (int64_t r = 0; r < rows.count; r++) {
      lse_[problem_.statistic(sequence, head, rows.begin + r)] =
          w.maximum[r] * std::numbers::ln2_v<float> + std::log(w.sum[r]);
    }
  }

  const Problem& problem_;
  const T *q_, *k_, *v_;
  T* o_;
  float* lse_;
  int64_t units_, lanes_;
};

void attention(Stream& stream, const Args& args) {
  const auto [q, k, v, cu_seqlens, branch, o, lse] = args.tensors<7>();
  const Problem problem("attention", q, k, v, cu_seqlens, branch, args);
  const Schedule schedule(problem, stream.scratch, [&](int64_t s) { return problem.row_blocks(s); });
  by_operand(q.dtype, [&](auto operand) {
    const Forward<decltype(operand)> forward(problem, q, k, v, o, lse);
    float* const memory = stream.scratch.take<float>(stream.pool.threads() * forward.workspace());
    stream.pool.region([&](Worker& worker) {
      for (int64_t i; (i = worker.next()) < schedule.tasks();) {
        const auto task = schedule[i];
        // The last queries of a causal sequence have the most visible keys, so they go first.
        forward.block(task.sequence, task.head, problem.row_blocks(task.sequence) - 1 - task.piece,
                      memory + worker.index * forward.workspace());
      }
    });
  });
}

}  // namespace

void register_attention(KernelTable& table) {
  table.set("attention", attention);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
