// Attention forward: o = softmax(scale·q·kᵀ, visible keys)·v and lse over ragged sequences, a block of query
// rows at a time, by an online softmax over key tiles (forward.h); both outputs are overwritten. Key tiles count from
// the sequence's token 0. The mask leaves every row its own key at least.
#include "cpu/attention/forward.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

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
        lse_(lse.as<float>()) {}

  int64_t workspace() const { return BlockForward<Operand>::workspace(problem_.size); }

  void block(int64_t sequence, int64_t head, int64_t index, float* memory) const {
    const RowBlock rows(problem_, sequence, index);
    const auto offset = [&](int64_t r) { return problem_.query_row(sequence, head, rows.begin + r); };
    const BlockForward<Operand> block(memory, problem_.size, problem_.scale, rows,
                                      [&](int64_t r) { return q_ + offset(r); });
    for (int64_t tile = rows.lowest() / kTile * kTile; tile <= rows.highest(); tile += kTile) {
      const int64_t from = std::max(tile, rows.lowest() / kTileRows * kTileRows);
      const int64_t to = std::min(tile + kTile, round_up(rows.highest() + 1, kTileRows));
      if (rows.all_masked(from, std::min(to, rows.highest() + 1))) continue;
      block.add_tile(pack_keys(block, sequence, head, from, to), from, to);
    }
    block.finish([&](int64_t r) { return o_ + offset(r); });
    for (int64_t r = 0; r < rows.count; r++)
      lse_[problem_.statistic(sequence, head, rows.begin + r)] = block.lse(r);
  }

 private:
  /// Keys [from, to) as rows and their values interleaved, with zeros past the sequence's end.
  KeyTile pack_keys(const BlockForward<Operand>& block, int64_t sequence, int64_t head, int64_t from,
                    int64_t to) const {
    const int64_t length = problem_.length(sequence), units = block.units(), lanes = block.lanes();
    const auto row = [&](const T* tensor, int64_t key) {
      return key < length ? tensor + problem_.key_row(sequence, head, key) : block.zeros();
    };
    for (int64_t key = from; key < to; key++)
      pack_row<Operand>(row(k_, key), problem_.size, block.keys() + (key - from) * units);
    for (int64_t key = from; key < to; key += Operand::kSteps)
      pack_interleaved<Operand>(row(v_, key), row(v_, key + Operand::kSteps - 1), problem_.size,
                                block.values() + (key - from) / Operand::kSteps * lanes);
    return {block.keys(), units, 1, block.values(), lanes};
  }

  const Problem& problem_;
  const T *q_, *k_, *v_;
  T* o_;
  float* lse_;
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
