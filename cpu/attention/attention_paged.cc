// Attention over the paged cache: o = softmax(scale·q·kᵀ, keys up to the query's own, of them the window)·v,
// which is =. Pages are the key tiles of attention, so a token gets the bits that attention gives it in one
// forward over its whole sequence, whatever the number of queries in its row, the rows beside it and the
// numbers of its pages. Rows that no query sees are not read: what lies past a row's length may be anything.
#include "cpu/attention/forward.h"
#include "cpu/attention/page.h"
#include "cpu/indices.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

long long wide(int64_t n) {
  return n;
}

/// Extents and settings of one call, checked. A sequence is a row of the op: its queries and its pages.
struct PagedProblem {
  int64_t heads, kv_heads, group, size, sequences, most_pages, elements;
  const int32_t *offsets, *pages, *lengths;
  int64_t window;  // 0: none
  float scale;

  PagedProblem(const TensorView& q, const TensorView& cache, const TensorView& query_offsets,
               const TensorView& page_table, const TensorView& row_lengths, const Args& args)
      : heads(q[1]),
        kv_heads(page_heads("attention_paged", cache, q[2])),
        group(heads / kv_heads),
        size(q[2]),
        sequences(row_lengths[0]),
        most_pages(page_table[1]),
        elements(cache[1]),
        offsets(query_offsets.as<int32_t>()),
        pages(page_table.as<int32_t>()),
        lengths(row_lengths.as<int32_t>()),
        window(std::max<int64_t>(args.i(0), 0)),
        scale(args.f(1)) {
    if (heads != kv_heads * group)
      throw Error("E_SHAPE", format("attention_paged: %lld query heads cannot share %lld KV heads evenly",
                                    wide(heads), wide(kv_heads)));
    check_offsets("attention_paged", "query_offsets", query_offsets, q[0]);
    check_lengths();
    for (int64_t s = 0; s < sequences; s++) check_pages(s, cache[0]);
  }

  int64_t queries(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t length(int64_t s) const { return lengths[s]; }
  /// Rows of the softmax, per KV head.
  int64_t rows(int64_t s) const { return lengths[s] > 0 ? queries(s) * group : 0; }
  int64_t row_blocks(int64_t s) const { return (rows(s) + kRows - 1) / kRows; }
  int64_t first_query(int64_t s) const { return lengths[s] - queries(s); }
  int64_t query_row(int64_t s, int64_t kv_head, int64_t r) const {
    return ((offsets[s] + r / group) * heads + kv_head * group + r % group) * size;
  }

 private:
  void check_lengths() const {
    const auto refuse = [](const std::string& what) { throw Error("E_RANGE", "attention_paged: " + what); };
    for (int64_t s = 0; s < sequences; s++) {
      const int64_t longest = most_pages * kTile;
      if (lengths[s] < 0 || lengths[s] > longest)
        refuse(format("lengths[%lld] is %d, outside 0..%lld", wide(s), lengths[s], wide(longest)));
      if (lengths[s] > 0 && lengths[s] < queries(s))
        refuse(format("lengths[%lld] is %d, below the row's %lld queries", wide(s), lengths[s],
                      wide(queries(s))));
    }
  }

  void check_pages(int64_t s, int64_t count) const {
    if (rows(s) == 0) return;
    const int64_t lowest = window > 0 ? std::max<int64_t>(0, first_query(s) - window + 1) : 0;
    for (int64_t i = lowest / kTile; i * kTile < lengths[s]; i++) {
      const int32_t page = pages[s * most_pages + i];
      if (page < 0 || page >= count)
        throw Error("E_RANGE", format("attention_paged: pages[%lld, %lld] is %d, outside 0..%lld", wide(s),
                                      wide(i), page, wide(count - 1)));
    }
  }
};

template <typename Operand>
class PagedForward {
 public:
  using T = typename Operand::Storage;

  PagedForward(const PagedProblem& problem, const TensorView& q, const TensorView& cache, const TensorView& o)
      : problem_(problem), at_(problem.size), q_(q.as<T>()), cache_(cache.as<T>()), o_(o.as<T>()) {}

  int64_t workspace() const { return BlockForward<Operand>::workspace(problem_.size); }

  void block(int64_t sequence, int64_t head, int64_t index, float* memory) const {
    const RowBlock rows(index * kRows, problem_.rows(sequence), problem_.group,
                        problem_.first_query(sequence), problem_.window);
    const auto offset = [&](int64_t r) { return problem_.query_row(sequence, head, rows.begin + r); };
    const BlockForward<Operand> block(memory, problem_.size, problem_.scale, rows,
                                      [&](int64_t r) { return q_ + offset(r); });
    for (int64_t tile = rows.lowest() / kTile * kTile; tile <= rows.highest(); tile += kTile) {
      const int64_t from = std::max(tile, rows.lowest() / kTileRows * kTileRows);
      const int64_t to = std::min(tile + kTile, round_up(rows.highest() + 1, kTileRows));
      const int64_t page = problem_.pages[sequence * problem_.most_pages + tile / kTile];
      const T* const data = cache_ + page * problem_.elements + head * head_elements(problem_.size);
      const int64_t there = std::min(to, rows.highest() + 1) - tile;
      block.add_tile(key_tile(block, data, from - tile, to - tile, there), from, to);
    }
    block.finish([&](int64_t r) { return o_ + offset(r); });
  }

 private:
  /// Places [from, to) of a page, of which those below `there` hold keys that a row sees. The others may hold
  /// anything: scores are masked, but values are multiplied by 0, so they must be finite.
  KeyTile key_tile(const BlockForward<Operand>& block, const T* page, int64_t from, int64_t to,
                   int64_t there) const {
    const T *const keys = page + at_.key(from, 0), *const values = page + at_.value(from, 0);
    if constexpr (sizeof(T) * Operand::kSteps == sizeof(float)) {  // the page holds units
      KeyTile tile{reinterpret_cast<const float*>(keys), 1, kTile, reinterpret_cast<const float*>(values),
                   at_.width};
      if (there < to) unpack_values(block, page, from, to, there, tile);
      return tile;
    } else {
      KeyTile tile{block.keys(), 1, kTile, nullptr, 0};
      for (int64_t d = 0; d < problem_.size; d++) {
        for (int64_t j = 0; j < to - from; j += kLanes)
          store(block.keys() + d * kTile + j, load(keys + d * kTile + j));
      }
      unpack_values(block, page, from, to, there, tile);
      return tile;
    }
  }

  void unpack_values(const BlockForward<Operand>& block, const T* page, int64_t from, int64_t to,
                     int64_t there, KeyTile& tile) const {
    float* out = block.values();
    for (int64_t j = from; j < to; j += Operand::kSteps, out += block.lanes()) {
      for (int64_t d = 0; d < block.lanes(); d += kLanes)
        store(out + d, Operand::stored_units(page + at_.value(j, d), there - j));
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

void attention_paged(Stream& stream, const Args& args) {
  const auto [q, cache, query_offsets, pages, lengths, o] = args.tensors<6>();
  const PagedProblem problem(q, cache, query_offsets, pages, lengths, args);
  const Schedule schedule(problem, stream.scratch, [&](int64_t s) { return problem.row_blocks(s); });
  by_operand(q.dtype, [&](auto operand) {
    using T = typename decltype(operand)::Storage;
    for (int64_t s = 0; s < problem.sequences; s++) {
      if (problem.lengths[s] == 0)
        std::fill_n(o.as<T>() + problem.query_row(s, 0, 0), problem.queries(s) * problem.heads * problem.size,
                    T{});
    }
    const PagedForward<decltype(operand)> forward(problem, q, cache, o);
    float* const memory = stream.scratch.take<float>(stream.pool.threads() * forward.workspace());
    stream.pool.region([&](Worker& worker) {
      for (int64_t i; (i = worker.next()) < schedule.tasks();) {
        const auto task = schedule[i];
        forward.block(task.sequence, task.head, problem.row_blocks(task.sequence) - 1 - task.piece,
                      memory + worker.index * forward.workspace());
      }
    });
  });
}

}  // namespace

void register_attention_paged(KernelTable& table) {
  table.set("attention_paged", attention_paged);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
