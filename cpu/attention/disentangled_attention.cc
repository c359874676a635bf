// Disentangled attention forward: softmax(scale·(q_i·k_j + q_i·pk_b + k_j·pq_b))·v with b the bucket of i - j,
// and lse; both =. The online softmax is that of attention (forward.h); between a tile's scores and its
// maximum come the two biases, each from a product with the positions whose buckets the tile has. A row's bits
// depend on its own sequence alone: an element of a product does not depend on which others are computed with it.
#include "cpu/attention/disentangled.h"
#include "cpu/attention/forward.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

Buckets::Buckets(const char* op, const TensorView& buckets, const TensorView& positions,
                 const Problem& problem)
    : table(buckets.as<int32_t>()), size(buckets[0]), rows(positions[0]) {
  if (rows < 2 || rows % 2 != 0)
    throw Error("E_SHAPE", format("%s: expected an even number of position rows, at least 2, got %lld", op,
                                  static_cast<long long>(rows)));
  int64_t longest = 1;
  for (int64_t s = 0; s < problem.sequences; s++) longest = std::max(longest, problem.length(s));
  if (size < longest)
    throw Error("E_RANGE", format("%s: buckets has %lld distances, a sequence of %lld tokens needs as many",
                                  op, static_cast<long long>(size), static_cast<long long>(longest)));
  for (int64_t d = 0; d < size; d++) {
    const int64_t step = table[d] - (d ? table[d - 1] : 0);
    if (step == 0 || (d > 0 && step == 1)) continue;
    throw Error("E_RANGE", format("%s: buckets[%lld] is %d, expected to begin at 0 and grow by 0 or 1", op,
                                  static_cast<long long>(d), table[d]));
  }
}

namespace {

template <typename Operand>
class Forward {
 public:
  using T = typename Operand::Storage;

  Forward(const Problem& problem, const Buckets& buckets, Scratch& scratch,
          const std::array<TensorView, 9>& tensors)
      : problem_(problem),
        buckets_(buckets),
        q_(tensors[0].as<T>()),
        k_(tensors[1].as<T>()),
        v_(tensors[2].as<T>()),
        pos_q_(tensors[3].as<T>()),
        pos_k_(tensors[4].as<T>()),
        o_(tensors[7].as<T>()),
        lse_(tensors[8].as<float>()),
        units_(padded_units<Operand>(problem.size)),
        rows_(round_up(buckets.rows, kTileRows) + kTileRows),
        columns_(round_up(buckets.rows, kLanes) + kLanes) {
    row_units_ = scratch.take<float>(problem.heads * rows_ * units_);
    column_units_ = scratch.take<float>(problem.heads * units_ * columns_);
  }

  int64_t workspace() const {
    return BlockForward<Operand>::workspace(problem_.size) + kWindow * kRows + kTile * kWindow;
  }

  /// The positions of a head: of keys as rows of units, of queries as columns; zeros past the last.
  void pack_positions(int64_t head) const {
    float *const rows = row_units_ + head * rows_ * units_, *const columns = head_columns(head);
    std::fill(rows, rows + rows_ * units_, 0.0f);
    std::fill(columns, columns + units_ * columns_, 0.0f);
    for (int64_t b = 0; b < buckets_.rows; b++)
      pack_row<Operand>(position(pos_k_, head, b), problem_.size, rows + b * units_);
    for (int64_t b = 0; b < buckets_.rows; b += kLanes) {
      // Past the last row it is repeated; no bucket leads there.
      const T* row[kLanes];
      for (int i = 0; i < kLanes; i++) row[i] = position(pos_q_, head, std::min(b + i, buckets_.rows - 1));
      pack_columns<Operand>(row, problem_.size, columns + b, columns_);
    }
  }

  void block(int64_t sequence, int64_t head, int64_t index, float* memory) const {
    const RowBlock rows(problem_, sequence, index);
    const int64_t length = problem_.length(sequence);
    const auto offset = [&](int64_t r) { return problem_.query_row(sequence, head, rows.place[r]); };
    BlockForward<Operand> block(memory, problem_.size, problem_.scale, rows,
                                [&](int64_t r) { return q_ + offset(r); });
    float* const of_keys = memory + BlockForward<Operand>::workspace(problem_.size);
    float* const of_queries = of_keys + kWindow * kRows;
    for (int64_t from = 0; from < length; from += kTile) {
      const int64_t to = std::min(from + kTile, round_up(length, kTileRows));
      pack_keys(block, sequence, head, from, to);
      const BucketWindow window(buckets_, rows.begin - (from + kTile - 1), 1);
      block.add_tile({block.keys(), units_, 1, block.values(), block.lanes()}, from, to, [&](float* scores) {
        block.score(row_units_ + (head * rows_ + window.lowest) * units_, units_, 1,
                    round_up(window.width, kTileRows), of_keys);
        score_positions(block.keys(), head_columns(head) + window.lowest, window.width, to - from,
                        of_queries);
        add_biases(window, of_keys, of_queries, to - from, scores);
      });
    }
    block.finish([&](int64_t r) { return o_ + offset(r); });
    float lse[kRows];
    block.log_sums(lse);
    for (int64_t r = 0; r < rows.count; r++) lse_[problem_.statistic(sequence, head, rows.place[r])] = lse[r];
  }

 private:
  const T* position(const T* positions, int64_t head, int64_t bucket) const {
    return positions + (bucket * problem_.heads + head) * problem_.size;
  }
  float* head_columns(int64_t head) const { return column_units_ + head * units_ * columns_; }

  /// Keys [from, to) as rows and their values interleaved, with zeros past the sequence's end.
  void pack_keys(const BlockForward<Operand>& block, int64_t sequence, int64_t head, int64_t from,
                 int64_t to) const {
    const int64_t length = problem_.length(sequence);
    const auto row = [&](const T* tensor, int64_t key) {
      return key < length ? tensor + problem_.key_row(sequence, head, key) : block.zeros();
    };
    for (int64_t key = from; key < to; key++)
      pack_row<Operand>(row(k_, key), problem_.size, block.keys() + (key - from) * units_);
    for (int64_t key = from; key < to; key += Operand::kSteps)
      pack_interleaved<Operand>(row(v_, key), row(v_, key + Operand::kSteps - 1), problem_.size,
                                block.values() + (key - from) / Operand::kSteps * block.lanes());
  }

  /// out[key][bucket] = scale·k·pq in log2 units.
  void score_positions(const float* keys, const float* columns, int64_t width, int64_t count,
                       float* out) const {
    const vf scale = set1(problem_.scale * std::numbers::log2e_v<float>);
    const int64_t steps = (problem_.size + Operand::kSteps - 1) / Operand::kSteps;
    by_vectors(static_cast<int>((width + kLanes - 1) / kLanes), [&](int first, auto vectors) {
      for (int64_t key = 0; key < count; key += kTileRows) {
        vf acc[kTileRows][vectors()] = {};
        accumulate<Operand>(acc, keys + key * units_, units_, 1, columns + first * kLanes, columns_, steps);
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < vectors(); v++)
            store(out + (key + r) * kWindow + (first + v) * kLanes, acc[r][v] * scale);
        }
      }
    });
  }

  /// scores[key][row] += of_keys[bucket][row] + of_queries[key][bucket].
  static void add_biases(const BucketWindow& window, const float* of_keys, const float* of_queries,
                         int64_t keys, float* scores) {
    for (int64_t key = 0; key < keys; key++) {
      for (int64_t r = 0; r < kRows; r += kLanes) {
        const int32_t* const index = window.index + r - key + kTile - 1;
        const vf biases = gather(of_keys + r, index, kRows, 1) + gather(of_queries + key * kWindow, index);
        store(scores + key * kRows + r, load(scores + key * kRows + r) + biases);
      }
    }
  }

  const Problem& problem_;
  const Buckets& buckets_;
  const T *q_, *k_, *v_, *pos_q_, *pos_k_;
  T* o_;
  float* lse_;
  int64_t units_, rows_, columns_;
  float *row_units_, *column_units_;
};

void disentangled_attention(Stream& stream, const Args& args) {
  const auto tensors = args.tensors<9>();
  const auto& q = tensors[0];
  const Problem problem("disentangled_attention", q, tensors[1], tensors[2], tensors[6], {}, false, 0,
                        args.f(0));
  const Buckets buckets("disentangled_attention", tensors[5], tensors[3], problem);
  const Schedule schedule(problem, stream.scratch, [&](int64_t s) { return problem.row_blocks(s); });
  by_operand(q.dtype, [&](auto operand) {
    const Forward<decltype(operand)> forward(problem, buckets, stream.scratch, tensors);
    float* const memory = stream.scratch.take<float>(stream.pool.threads() * forward.workspace());
    stream.pool.region([&](Worker& worker) {
      for (int64_t head; (head = worker.next(0)) < problem.heads;) forward.pack_positions(head);
      worker.barrier();
      for (int64_t i; (i = worker.next(1)) < schedule.tasks();) {
        const auto task = schedule[i];
        forward.block(task.sequence, task.head, task.piece, memory + worker.index * forward.workspace());
      }
    });
  });
}

}  // namespace

void register_disentangled_attention(KernelTable& table) {
  table.set("disentangled_attention", disentangled_attention);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
