// Attention forward: o = softmax(scale·q·kᵀ, visible keys)·v and lse over ragged sequences, a block of query
// rows at a time, by an online softmax over key tiles (forward.h); both outputs are overwritten. The mask leaves every
// row its own key at least.
#include "cpu/attention/forward.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// The keys and values of a call, packed once for all query rows: of each sequence and KV head keys as rows of units, and
/// values interleaved, with zeros up to a multiple of kTileRows keys.
template <typename Operand>
class PackedKeys {
 public:
  using T = typename Operand::Storage;

  PackedKeys(const Problem& problem, Scratch& scratch, const TensorView& k, const TensorView& v)
      : problem_(problem),
        k_(k.as<T>()),
        v_(v.as<T>()),
        units_(padded_units<Operand>(problem.size)),
        lanes_(round_up(problem.size, kLanes)),
        begin_(scratch.take<int64_t>(problem.sequences + 1)),
        zeros_(scratch.take<float>(lanes_)) {
    begin_[0] = 0;
    for (int64_t s = 0; s < problem.sequences; s++)
      begin_[s + 1] = begin_[s] + round_up(problem.length(s), kTileRows) * problem.kv_heads;
    keys_ = scratch.take<float>(begin_[problem.sequences] * units_);
    values_ = scratch.take<float>(begin_[problem.sequences] / Operand::kSteps * lanes_);
    std::fill_n(zeros_, lanes_, 0.0f);
  }

  void pack(int64_t sequence, int64_t head, int64_t tile) const {
    const int64_t length = problem_.length(sequence), from = tile * kTile;
    const int64_t to = std::min(from + kTile, round_up(length, kTileRows));
    const auto row = [&](const T* tensor, int64_t key) {
      return key < length ? tensor + problem_.key_row(sequence, head, key)
                          : reinterpret_cast<const T*>(zeros_);
    };
    for (int64_t key = from; key < to; key++)
      pack_row<Operand>(row(k_, key), problem_.size, keys(sequence, head, key));
    for (int64_t key = from; key < to; key += Operand::kSteps)
      pack_interleaved<Operand>(row(v_, key), row(v_, key + Operand::kSteps - 1), problem_.size,
                                values(sequence, head, key));
  }

  /// The keys from `from` on, a multiple of kTileRows.
  KeyTile from(int64_t sequence, int64_t head, int64_t from) const {
    return {keys(sequence, head, from), units_, 1, values(sequence, head, from), lanes_};
  }

 private:
  int64_t place(int64_t sequence, int64_t head, int64_t key) const {
    return begin_[sequence] + round_up(problem_.length(sequence), kTileRows) * head + key;
  }
  float* keys(int64_t sequence, int64_t head, int64_t key) const {
    return keys_ + place(sequence, head, key) * units_;
  }
  float* values(int64_t sequence, int64_t head, int64_t key) const {
    return values_ + place(sequence, head, key) / Operand::kSteps * lanes_;
  }

  const Problem& problem_;
  const T *k_, *v_;
  int64_t units_, lanes_;
  int64_t* begin_;  // of each sequence
  float *zeros_, *keys_, *values_;
};

template <typename Operand>
class Forward {
 public:
  using T = typename Operand::Storage;

  Forward(const Problem& problem, const PackedKeys<Operand>& keys, const TensorView& q, const TensorView& o,
          const TensorView& lse)
      : problem_(problem), keys_(keys), q_(q.as<T>()), o_(o.as<T>()), lse_(lse.as<float>()) {}

  void block(int64_t sequence, int64_t head, int64_t index, float* memory) const {
    const RowBlock rows(problem_, sequence, index);
    // Of each row in q and o.
    int64_t offset[kRows], at = problem_.query_row(sequence, head, rows.place[0]);
    for (int64_t r = 0; r < kRows; r++, at += problem_.size) {
      offset[r] = at;
      if (rows.place[r].member + 1 == problem_.group) at += (problem_.heads - problem_.group) * problem_.size;
    }
    BlockForward<Operand> block(memory, problem_.size, problem_.scale, rows,
                                [&](int64_t r) { return q_ + offset[r]; });
    for (int64_t tile = rows.lowest() / kTile * kTile; tile <= rows.highest(); tile += kTile) {
      const int64_t from = std::max(tile, rows.lowest() / kTileRows * kTileRows);
      const int64_t to = std::min(tile + kTile, round_up(rows.highest() + 1, kTileRows));
      if (rows.all_masked(from, std::min(to, rows.highest() + 1))) continue;
      block.add_tile(keys_.from(sequence, head, from), from, to);
    }
    block.finish([&](int64_t r) { return o_ + offset[r]; });
    float lse[kRows];
    block.log_sums(lse);
    for (int64_t r = 0; r < rows.count; r++) lse_[problem_.statistic(sequence, head, rows.place[r])] = lse[r];
  }

 private:
  const Problem& problem_;
  const PackedKeys<Operand>& keys_;
  const T* q_;
  T* o_;
  float* lse_;
};

void attention(Stream& stream, const Args& args) {
  const auto [q, k, v, cu_seqlens, branch, o, lse] = args.tensors<7>();
  const Problem problem("attention", q, k, v, cu_seqlens, branch, args);
  const Schedule tiles(problem, stream.scratch,
                       [&](int64_t s) { return (problem.length(s) + kTile - 1) / kTile; });
  const Schedule blocks(problem, stream.scratch, [&](int64_t s) { return problem.row_blocks(s); });
  by_operand(q.dtype, [&](auto operand) {
    using Operand = decltype(operand);
    const PackedKeys<Operand> keys(problem, stream.scratch, k, v);
    const Forward<Operand> forward(problem, keys, q, o, lse);
    const int64_t floats = BlockForward<Operand>::workspace(problem.size);
    float* const memory = stream.scratch.take<float>(stream.pool.threads() * floats);
    stream.pool.region([&](Worker& worker) {
      for (int64_t i; (i = worker.next(0)) < tiles.tasks();) {
        const auto task = tiles[i];
        keys.pack(task.sequence, task.head, task.piece);
      }
      worker.barrier();
      for (int64_t i; (i = worker.next(1)) < blocks.tasks();) {
        const auto task = blocks[i];
        // The last queries of a causal sequence have the most visible keys, so they go first.
        forward.block(task.sequence, task.head, problem.row_blocks(task.sequence) - 1 - task.piece,
                      memory + worker.index * floats);
      }
    });
  });
}

}  // namespace

void register_attention(KernelTable& table) {
  table.set("attention", attention);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
