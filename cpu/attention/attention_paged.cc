// Attention over the paged cache: o = softmax(scale·q·kᵀ, visible keys)·v; o is overwritten. The visible keys of a
// query are those up to its own, with a window only the last `window` of them. Pages are the key tiles of
// attention, so a token has the same bits as in one forward of attention over its whole sequence. The number
// of queries in its row, the other rows and the page numbers do not matter. Masked pages are not read, and
// what lies past a row's length may be anything. attention_step first puts the new token of each row into the cache.
#include "cpu/attention/few_rows.h"
#include "cpu/attention/forward.h"
#include "cpu/attention/new_tokens.h"
#include "cpu/attention/page.h"
#include "cpu/indices.h"
#include "cpu/rope.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

/// Extents and settings of one call, checked. A sequence is a row of the op: its queries and its pages.
struct PagedProblem {
  const char* op;
  int64_t heads, kv_heads, group, size, sequences, max_pages, longest, elements;
  const int32_t *offsets, *pages, *lengths;
  int64_t window;  // 0: none
  float scale;

  PagedProblem(const char* name, const TensorView& q, const TensorView& cache, const int32_t* query_offsets,
               const TensorView& page_table, const TensorView& row_lengths, int64_t visible, float factor,
               int64_t most = INT64_MAX)
      : op(name),
        heads(q[1]),
        kv_heads(page_heads(name, cache, q[2])),
        group(heads / kv_heads),
        size(q[2]),
        sequences(row_lengths[0]),
        max_pages(page_table[1]),
        longest(std::min(page_table[1] * kTile, most)),
        elements(cache[1]),
        offsets(query_offsets),
        pages(page_table.as<int32_t>()),
        lengths(row_lengths.as<int32_t>()),
        window(std::max<int64_t>(visible, 0)),
        scale(factor) {
    if (heads != kv_heads * group)
      throw Error("E_SHAPE", format("%s: %lld query heads cannot share %lld KV heads evenly", op, wide(heads),
                                    wide(kv_heads)));
    check_lengths();
    for (int64_t s = 0; s < sequences; s++) check_pages(s, cache[0]);
  }

  int64_t queries(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t length(int64_t s) const { return lengths[s]; }
  /// Rows of the softmax, per KV head.
  int64_t rows(int64_t s) const { return lengths[s] > 0 ? queries(s) * group : 0; }
  /// Whether the rows are so few that lanes should be keys. A sum of p then takes one addition per row and key
  /// instead of one for kLanes rows: a quarter more work, so full vectors of rows are faster.
  bool few(int64_t s) const { return rows(s) <= 16; }
  int64_t row_blocks(int64_t s) const { return few(s) ? 0 : (rows(s) + kRows - 1) / kRows; }
  int64_t first_query(int64_t s) const { return lengths[s] - queries(s); }
  /// The first key that is visible to any query of the sequence.
  int64_t first_key(int64_t s) const {
    return window > 0 ? std::max<int64_t>(0, first_query(s) - window + 1) : 0;
  }
  int32_t page(int64_t s, int64_t tile) const { return pages[s * max_pages + tile / kTile]; }
  int64_t query_row(int64_t s, int64_t kv_head, RowPlace row) const {
    return ((offsets[s] + row.query) * heads + kv_head * group + row.member) * size;
  }

 private:
  void check_lengths() const {
    const auto refuse = [&](const std::string& what) { throw Error("E_RANGE", op + (": " + what)); };
    for (int64_t s = 0; s < sequences; s++) {
      if (lengths[s] < 0 || lengths[s] > longest)
        refuse(format("lengths[%lld] is %d, outside 0..%lld", wide(s), lengths[s], wide(longest)));
      if (lengths[s] > 0 && lengths[s] < queries(s))
        refuse(format("lengths[%lld] is %d, below the row's %lld queries", wide(s), lengths[s],
                      wide(queries(s))));
    }
  }

  void check_pages(int64_t s, int64_t count) const {
    if (rows(s) == 0) return;
    for (int64_t tile = first_key(s) / kTile * kTile; tile < lengths[s]; tile += kTile) {
      if (page(s, tile) < 0 || page(s, tile) >= count)
        throw Error("E_RANGE", format("%s: pages[%lld, %lld] is %d, outside 0..%lld", op, wide(s),
                                      wide(tile / kTile), page(s, tile), wide(count - 1)));
    }
  }
};

template <typename Operand>
class PagedForward {
 public:
  using T = typename Operand::Storage;

  PagedForward(const PagedProblem& problem, const TensorView& q, const TensorView& cache, const TensorView& o)
      : problem_(problem), at_(problem.size), q_(q.as<T>()), cache_(cache.as<T>()), o_(o.as<T>()) {}

  int64_t workspace() const {
    return std::max(BlockForward<Operand>::workspace(problem_.size),
                    FewRows<Operand>::workspace(problem_.size));
  }

  /// The rows of neighbouring sequences [begin, end). Each has few rows, and all begin with the same page.
  void few_rows(int64_t begin, int64_t end, int64_t head, float* memory) const {
    FewRows<Operand> rows(memory, problem_.size, problem_.scale);
    int64_t lowest = INT64_MAX, longest = 0;
    for (int64_t s = begin; s < end; s++) {
      for (int64_t r = 0; r < problem_.rows(s); r++) {
        const RowPlace place{static_cast<int32_t>(r / problem_.group),
                             static_cast<int32_t>(r % problem_.group)};
        const int64_t query = problem_.first_query(s) + place.query, at = problem_.query_row(s, head, place);
        const int64_t first = problem_.window > 0 ? std::max<int64_t>(0, query - problem_.window + 1) : 0;
        rows.add({q_ + at, o_ + at, first, query});
      }
      if (problem_.rows(s) == 0) continue;
      lowest = std::min(lowest, problem_.first_key(s));
      longest = std::max(longest, problem_.length(s));
    }
    for (int64_t tile = lowest / kTile * kTile; tile < longest; tile += kTile) {
      const auto page_of = [&](int64_t s) {
        return problem_.rows(s) > 0 && tile < problem_.length(s) && tile + kTile > problem_.first_key(s)
                   ? page(s, tile, head)
                   : nullptr;
      };
      for (int64_t s = begin, row = 0; s < end;) {
        const T* const data = page_of(s);
        const int64_t first = row;
        do {
          row += problem_.rows(s++);
        } while (s < end && page_of(s) == data);
        if (data) rows.add_page(data, tile, first, row);
      }
    }
    rows.finish();
  }

  void block(int64_t sequence, int64_t head, int64_t index, float* memory) const {
    const RowBlock rows(index * kRows, problem_.rows(sequence), problem_.group,
                        problem_.first_query(sequence), problem_.window);
    const auto offset = [&](int64_t r) { return problem_.query_row(sequence, head, rows.place[r]); };
    BlockForward<Operand> block(memory, problem_.size, problem_.scale, rows,
                                [&](int64_t r) { return q_ + offset(r); });
    for (int64_t tile = rows.lowest() / kTile * kTile; tile <= rows.highest(); tile += kTile) {
      const int64_t from = std::max(tile, rows.lowest() / kTileRows * kTileRows);
      const int64_t to = std::min(tile + kTile, round_up(rows.highest() + 1, kTileRows));
      const int64_t visible_end = std::min(to, rows.highest() + 1) - tile;
      block.add_tile(key_tile(block, page(sequence, tile, head), from - tile, to - tile, visible_end), from,
                     to);
    }
    block.finish([&](int64_t r) { return o_ + offset(r); });
  }

 private:
  const T* page(int64_t sequence, int64_t tile, int64_t head) const {
    return cache_ + problem_.page(sequence, tile) * problem_.elements + head * head_elements(problem_.size);
  }

  /// Places [from, to) of a page. Keys from place `visible_end` on are masked and may hold anything; their
  /// values are multiplied by 0, so they must be replaced by finite ones.
  KeyTile key_tile(const BlockForward<Operand>& block, const T* page, int64_t from, int64_t to,
                   int64_t visible_end) const {
    const T *const keys = page + at_.key(from, 0), *const values = page + at_.value_units(from, 0);
    if constexpr (sizeof(T) * Operand::kSteps == sizeof(float)) {  // the page holds units
      KeyTile tile{reinterpret_cast<const float*>(keys), 1, kTile, reinterpret_cast<const float*>(values),
                   at_.width};
      if (visible_end < to) unpack_values(block, page, from, to, visible_end, tile);
      return tile;
    } else {
      KeyTile tile{block.keys(), 1, kTile, nullptr, 0};
      for (int64_t d = 0; d < problem_.size; d++) {
        for (int64_t j = 0; j < to - from; j += kLanes)
          store(block.keys() + d * kTile + j, load(keys + d * kTile + j));
      }
      unpack_values(block, page, from, to, visible_end, tile);
      return tile;
    }
  }

  void unpack_values(const BlockForward<Operand>& block, const T* page, int64_t from, int64_t to,
                     int64_t visible_end, KeyTile& tile) const {
    float* out = block.values();
    for (int64_t j = from; j < to; j += Operand::kSteps, out += block.lanes()) {
      for (int64_t d = 0; d < block.lanes(); d += kLanes)
        store(out + d, Operand::stored_units(page + at_.value_units(j, d), visible_end - j));
    }
    tile.v = block.values();
    tile.value_step = block.lanes();
  }

  const PagedProblem& problem_;
  PageHead<Operand> at_;
  const T* q_;
  const T* cache_;
  T* o_;
};

/// Groups of neighbouring sequences that have few rows and the same first page, no larger than one workspace
/// holds. A task takes one KV head of a group.
class Groups {
 public:
  Groups(const PagedProblem& problem, Scratch& scratch)
      : begins_(scratch.take<int64_t>(problem.sequences + 1)) {
    int64_t rows = 0;     // of the group
    int64_t before = -1;  // the previous sequence
    for (int64_t s = 0; s < problem.sequences; s++) {
      if (problem.rows(s) == 0) continue;
      const bool joins = before >= 0 && problem.few(s) && problem.few(before) && shared(problem, before, s) &&
                         rows + problem.rows(s) <= FewRows<Single<float>>::kMaxRows;
      if (!joins) {
        begins_[count_++] = s;
        rows = 0;
      }
      rows += problem.rows(s);
      before = s;
    }
    begins_[count_] = problem.sequences;
  }
  int64_t count() const { return count_; }
  int64_t begin(int64_t group) const { return begins_[group]; }
  int64_t end(int64_t group) const { return begins_[group + 1]; }

 private:
  static bool shared(const PagedProblem& problem, int64_t a, int64_t b) {
    const int64_t tile = std::max(problem.first_key(a), problem.first_key(b)) / kTile * kTile;
    return tile < std::min(problem.length(a), problem.length(b)) &&
           problem.page(a, tile) == problem.page(b, tile);
  }

  int64_t* begins_;
  int64_t count_ = 0;
};

void attend(Stream& stream, const PagedProblem& problem, const TensorView& q, const TensorView& cache,
            const TensorView& o) {
  const Schedule blocks(problem, stream.scratch, [&](int64_t s) { return problem.row_blocks(s); });
  const Groups groups(problem, stream.scratch);
  by_operand(q.dtype, [&](auto operand) {
    using T = typename decltype(operand)::Storage;
    for (int64_t s = 0; s < problem.sequences; s++) {
      if (problem.lengths[s] == 0)
        std::fill_n(o.as<T>() + problem.query_row(s, 0, RowPlace{}),
                    problem.queries(s) * problem.heads * problem.size, T{});
    }
    const PagedForward<decltype(operand)> forward(problem, q, cache, o);
    float* const memory = stream.scratch.take<float>(stream.pool.threads() * forward.workspace());
    stream.pool.region([&](Worker& worker) {
      float* const own = memory + worker.index * forward.workspace();
      for (int64_t i; (i = worker.next(0)) < blocks.tasks();) {
        const auto task = blocks[i];
        forward.block(task.sequence, task.head, problem.row_blocks(task.sequence) - 1 - task.piece, own);
      }
      for (int64_t i; (i = worker.next(1)) < groups.count() * problem.kv_heads;) {
        const int64_t group = i / problem.kv_heads;
        if (problem.few(groups.begin(group)))
          forward.few_rows(groups.begin(group), groups.end(group), i % problem.kv_heads, own);
      }
    });
  });
}

void attention_paged(Stream& stream, const Args& args) {
  const auto [q, cache, query_offsets, pages, lengths, o] = args.tensors<6>();
  check_offsets("attention_paged", "query_offsets", query_offsets, q[0]);
  attend(stream,
         PagedProblem("attention_paged", q, cache, query_offsets.as<int32_t>(), pages, lengths, args.i(0),
                      args.f(1)),
         q, cache, o);
}

/// [n] of i32 in workspace.
TensorView integers(Stream& stream, int64_t n) {
  return {stream.scratch.take<int32_t>(n), {n}, 1, DType::i32, false};
}

void attention_step(Stream& stream, const Args& args) {
  const auto [q, k, v, cache, pages, lengths, cosines, sines, k_weight, q_weight, o] = args.tensors<11>();
  const int64_t rows = q[0];
  const TensorView slots = integers(stream, rows), positions = integers(stream, rows),
                   offsets = integers(stream, rows + 1);
  TensorView rotated = q;
  rotated.data = stream.scratch.take<char>(q.bytes());
  for (int64_t r = 0; r <= rows; r++) offsets.as<int32_t>()[r] = static_cast<int32_t>(r);
  const PagedProblem problem("attention_step", q, cache, offsets.as<int32_t>(), pages, lengths, args.i(1),
                             args.f(2), cosines[0]);
  check_width("attention_step", q[2], cosines);
  for (int64_t r = 0; r < rows; r++) {
    const int32_t length = lengths.as<int32_t>()[r];
    positions.as<int32_t>()[r] = std::max(length - 1, 0);
    slots.as<int32_t>()[r] =
        length == 0 ? -1 : static_cast<int32_t>(problem.page(r, length - 1) * kTile + (length - 1) % kTile);
  }
  write_new("attention_step", stream,
            {k, v, slots, cache, cosines, sines, positions, k_weight, q, q_weight, rotated}, args.f(0));
  attend(stream, problem, rotated, cache, o);
}

}  // namespace

void register_attention_paged(KernelTable& table) {
  table.set("attention_paged", attention_paged);
  table.set("attention_step", attention_step);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
