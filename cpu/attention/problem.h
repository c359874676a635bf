// What attention and its backward share: the checked problem, the mask, and the order of work.
//
// The query rows of one sequence and one KV head form one list, with the heads of a group inside a query: row
// r is query r / group, head r % group. So grouped heads fill vectors, whatever their number, and share every
// tile of keys and values. Keys come in tiles of kTile from the sequence's own token 0. kRows × kTile scores
// in f32 are 16 KiB, a tile of keys with 128 elements 32 KiB in f32:
// both stay in the L2 cache, the scores in the L1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/args.h"
#include "cpu/runtime/stream.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr int64_t kTile = 64;      // keys per tile
constexpr int64_t kRows = 64;      // query rows per block
constexpr float kMasked = -1e30f;  // a score (log2 units) that weighs exactly 0

/// For %lld of format().
constexpr long long wide(int64_t n) {
  return n;
}

constexpr int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

/// A query row of one KV head: `member` of the group's heads in `query`.
struct RowPlace {
  int32_t query, member;
};

/// Extents and settings of one call, checked.
struct Problem {
  int64_t tokens, heads, kv_heads, group, size, sequences;
  const int32_t* cu_seqlens;
  const int32_t* branch;  // or null
  bool causal;
  int64_t window;  // 0: none
  float scale;

  /// Throws E_DTYPE, E_SHAPE or E_RANGE.
  Problem(const char* op, const TensorView& q, const TensorView& k, const TensorView& v,
          const TensorView& cu_seqlens, const TensorView& branch, const Args& args)
      : Problem(op, q, k, v, cu_seqlens, branch, args.i(0) != 0, args.i(1), args.f(2)) {}
  Problem(const char* op, const TensorView& q, const TensorView& k, const TensorView& v,
          const TensorView& cu_seqlens, const TensorView& branch, bool causal, int64_t window, float scale);

  /// Element offset of a query row of a (sequence, KV head) in q, o, do, dq.
  int64_t query_row(int64_t sequence, int64_t kv_head, RowPlace row) const {
    return ((cu_seqlens[sequence] + row.query) * heads + kv_head * group + row.member) * size;
  }
  /// Element offset of a key in k, v, dk, dv.
  int64_t key_row(int64_t sequence, int64_t kv_head, int64_t key) const {
    return ((cu_seqlens[sequence] + key) * kv_heads + kv_head) * size;
  }
  /// Index of a query row in lse.
  int64_t statistic(int64_t sequence, int64_t kv_head, RowPlace row) const {
    return (kv_head * group + row.member) * tokens + cu_seqlens[sequence] + row.query;
  }
  int64_t length(int64_t sequence) const { return cu_seqlens[sequence + 1] - cu_seqlens[sequence]; }
  int64_t rows(int64_t sequence) const { return length(sequence) * group; }
  int64_t row_blocks(int64_t sequence) const { return (rows(sequence) + kRows - 1) / kRows; }
};

/// Hands out the pieces of each (sequence, KV head): the longest sequence first, KV heads inside pieces.
class Schedule {
 public:
  /// Of anything with kv_heads, sequences and length(sequence);
  /// pieces(sequence) → pieces per KV head. Memory from scratch.
  template <typename P, typename F>
  Schedule(const P& problem, Scratch& scratch, F pieces) : kv_heads_(problem.kv_heads) {
    sequences_ = problem.sequences;
    order_ = scratch.take<int64_t>(sequences_);
    ends_ = scratch.take<int64_t>(sequences_);
    for (int64_t s = 0; s < sequences_; s++) order_[s] = s;
    std::sort(order_, order_ + sequences_, [&](int64_t a, int64_t b) {
      return problem.length(a) != problem.length(b) ? problem.length(a) > problem.length(b) : a < b;
    });
    for (int64_t i = 0; i < sequences_; i++)
      ends_[i] = (i ? ends_[i - 1] : 0) + pieces(order_[i]) * kv_heads_;
  }

  struct Task {
    int64_t sequence, head, piece;
  };
  int64_t tasks() const { return sequences_ ? ends_[sequences_ - 1] : 0; }
  Task operator[](int64_t task) const {
    const int64_t i = std::upper_bound(ends_, ends_ + sequences_, task) - ends_;
    const int64_t local = task - (i ? ends_[i - 1] : 0);
    return {order_[i], local % kv_heads_, local / kv_heads_};
  }

 private:
  int64_t kv_heads_, sequences_;
  int64_t* order_;
  int64_t* ends_;
};

/// Up to kRows query rows of one (sequence, KV head), and the keys visible to each: first ≤ key ≤ last, and
/// of these the keys whose branch is 0 or the row's own. Rows past `count` repeat the last.
struct RowBlock {
  int64_t begin, count;   // in the list of rows
  RowPlace place[kRows];  // of queries of this call
  int32_t first[kRows], last[kRows], branch[kRows];
  const int32_t* key_branch;  // of the sequence's tokens, or null

  RowBlock(const Problem& problem, int64_t sequence, int64_t index);
  /// Causal rows without branches, of which row 0 belongs to the query of token `query`.
  RowBlock(int64_t begin, int64_t rows, int64_t group, int64_t query, int64_t window);

  /// The keys visible to any row: lowest() … highest(), none where lowest() > highest(). Rows ascend.
  int64_t lowest() const { return first[0]; }
  int64_t highest() const { return last[kRows - 1]; }
  /// Whether all keys [from, to) are visible to every row.
  bool all_visible(int64_t from, int64_t to) const {
    return !key_branch && from >= first[kRows - 1] && to - 1 <= last[0];
  }
  /// Whether branches mask all keys [from, to) for every row.
  bool all_masked(int64_t from, int64_t to) const;

 private:
  void find_places(int64_t group);
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
