// Attention backward: dq, dk, dv (all =) from do and the forward's o and lse. p is recomputed from lse
// for each tile.
//   delta = Σ_d do·o    p = exp(scale·q·k - lse)    ds = scale·p·(do·v - delta)
//   dq = ds·k           dk = dsᵀ·q                  dv = pᵀ·do
// A task takes kKeys keys of one (sequence, KV head) and goes through all query rows to which they are
// visible. So k, v, dk and dv stay in its L2 cache (128 KiB in f32 with D = 64), and grouped heads are added
// in row order. dq is summed in f32 over key blocks in ascending order: a task adds to a row block only after
// the task of the preceding keys has. Tasks are handed out in an order in which that task is already running.
// Lanes are keys. Operands of the products are bf16 pairs or f32, as in the forward; sums are f32. No data is
// updated atomically: bits do not depend on the thread count.
#include <atomic>
#include <cmath>
#include <new>
#include <numbers>

#include "cpu/attention/tile.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kKeys = 128;       // keys per task, whole tiles
constexpr float kPaddedLse = 1e30f;  // lse (log2 units) of padding rows: every p is 0
using Turn = std::atomic<int32_t>;

/// One worker's memory.
struct Workspace {
  float *keys, *values, *keys_by_key, *dkeys, *dvalues;  // of a task
  float *q, *dout, *q_by_row, *dout_by_row;              // of a row block
  float *scores, *p, *ds, *ds_rows, *zeros;

  template <typename Operand>
  static Workspace cut(float* memory, int64_t units, int64_t lanes, int64_t& floats) {
    const float* const begin = memory;
    const auto take = [&](int64_t n) {
      float* part = memory;
      memory += n;
      return part;
    };
    constexpr int64_t kSteps = Operand::kSteps;
    Workspace w;
    w.keys = take(units * kKeys);
    w.values = take(units * kKeys);
    w.keys_by_key = take(kKeys / kSteps * lanes);
    w.dkeys = take(lanes * kKeys);
    w.dvalues = take(lanes * kKeys);
    w.q = take(kRows * units);
    w.dout = take(kRows * units);
    // Where a unit is one step, rows and interleaved rows are the same; so is ds.
    w.q_by_row = kSteps == 1 ? w.q : take(kRows / kSteps * lanes);
    w.dout_by_row = kSteps == 1 ? w.dout : take(kRows / kSteps * lanes);
    w.scores = take(kTileRows * kTile);
    w.p = take(kRows / kSteps * kTile);
    w.ds = take(kRows / kSteps * kTile);
    w.ds_rows = kSteps == 1 ? w.ds : take(kRows * kTile / kSteps);
    w.zeros = take(lanes);
    floats = memory - begin;
    return w;
  }
};

/// What all tasks share about row blocks, in scratch.
/// The rows of each (sequence, KV head) are padded to kTileRows.
struct Rows {
  float *dq, *lse, *delta;           // dq: [rows, lanes]; lse in log2 units
  Turn* turns;                       // per row block: the key block that adds to it next
  int64_t *row_begin, *block_begin;  // of each sequence

  Rows(const Problem& problem, Scratch& scratch, int64_t lanes) {
    row_begin = scratch.take<int64_t>(problem.sequences + 1);
    block_begin = scratch.take<int64_t>(problem.sequences + 1);
    row_begin[0] = block_begin[0] = 0;
    for (int64_t s = 0; s < problem.sequences; s++) {
      row_begin[s + 1] = row_begin[s] + round_up(problem.rows(s), kTileRows) * problem.kv_heads;
      block_begin[s + 1] = block_begin[s] + problem.row_blocks(s) * problem.kv_heads;
    }
    const int64_t rows = row_begin[problem.sequences];
    dq = scratch.take<float>(rows * lanes);
    lse = scratch.take<float>(rows);
    delta = scratch.take<float>(rows);
    turns = scratch.take<Turn>(block_begin[problem.sequences]);
  }
  int64_t row(const Problem& problem, int64_t sequence, int64_t head) const {
    return row_begin[sequence] + round_up(problem.rows(sequence), kTileRows) * head;
  }
  Turn& turn(const Problem& problem, int64_t sequence, int64_t head, int64_t block) const {
    return turns[block_begin[sequence] + problem.row_blocks(sequence) * head + block];
  }
};

template <typename Operand>
class Backward {
 public:
  using T = typename Operand::Storage;
  static constexpr int64_t kSteps = Operand::kSteps;

  Backward(const Problem& problem, Scratch& scratch, int threads, const std::array<TensorView, 11>& tensors)
      : problem_(problem),
        dout_(tensors[0].as<T>()),
        q_(tensors[1].as<T>()),
        k_(tensors[2].as<T>()),
        v_(tensors[3].as<T>()),
        o_(tensors[4].as<T>()),
        lse_(tensors[5].as<float>()),
        dq_(tensors[8].as<T>()),
        dk_(tensors[9].as<T>()),
        dv_(tensors[10].as<T>()),
        units_(padded_units<Operand>(problem.size)),
        lanes_(round_up(problem.size, kLanes)),
        rows_(problem, scratch, lanes_) {
    Workspace::cut<Operand>(nullptr, units_, lanes_, floats_);
    memory_ = scratch.take<float>(threads * floats_);
  }

  /// Computes lse and delta of a row block, before any key block.
  void prepare(int64_t sequence, int64_t head, int64_t index) const {
    const RowBlock rows(problem_, sequence, index);
    const int64_t at = rows_.row(problem_, sequence, head) + rows.begin;
    const int64_t padded = round_up(rows.count, kTileRows);
    std::fill(rows_.dq + at * lanes_, rows_.dq + (at + padded) * lanes_, 0.0f);
    for (int64_t r = 0; r < padded; r++) {
      rows_.lse[at + r] = kPaddedLse;
      rows_.delta[at + r] = 0.0f;
      if (r >= rows.count) continue;
      const float lse = lse_[problem_.statistic(sequence, head, rows.place[r])];
      if (lse != -std::numeric_limits<float>::infinity())
        rows_.lse[at + r] = lse * std::numbers::log2e_v<float>;
      const int64_t row = problem_.query_row(sequence, head, rows.place[r]);
      vf delta = zero();
      for (int64_t d = 0; d < problem_.size; d += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, problem_.size - d));
        delta = fma(load(dout_ + row + d, n), load(o_ + row + d, n), delta);
      }
      rows_.delta[at + r] = sum(delta);
    }
    new (&rows_.turn(problem_, sequence, head, index)) Turn(static_cast<int32_t>(rows.lowest() / kKeys));
  }

  /// dk and dv of key block `index`, and its contribution to dq.
  void block(int64_t sequence, int64_t head, int64_t index, int worker) const {
    int64_t floats;
    const Workspace w = Workspace::cut<Operand>(memory_ + worker * floats_, units_, lanes_, floats);
    const int64_t begin = index * kKeys, end = std::min(begin + kKeys, problem_.length(sequence));
    pack_keys(w, sequence, head, begin, end);
    std::fill(w.dkeys, w.dkeys + lanes_ * kKeys, 0.0f);
    std::fill(w.dvalues, w.dvalues + lanes_ * kKeys, 0.0f);
    const int64_t first = problem_.causal ? begin * problem_.group / kRows : 0;
    int64_t last = problem_.row_blocks(sequence);
    if (problem_.window > 0) last = std::min(last, (end - 1 + problem_.window) * problem_.group / kRows + 1);
    for (int64_t i = first; i < last; i++) {
      const RowBlock rows(problem_, sequence, i);
      if (rows.lowest() >= end) break;
      row_block(w, rows, sequence, head, i, begin, end);
    }
    finish_keys(w, sequence, head, begin, end);
  }

 private:
  void pack_keys(const Workspace& w, int64_t sequence, int64_t head, int64_t begin, int64_t end) const {
    std::fill(w.zeros, w.zeros + lanes_, 0.0f);
    const auto row = [&](const T* tensor, int64_t key) {
      return key < end ? tensor + problem_.key_row(sequence, head, key) : reinterpret_cast<const T*>(w.zeros);
    };
    for (int64_t key = 0; key < kKeys && begin + key < end; key += kLanes) {
      const int64_t column = key / kTile * kTile * units_ + key % kTile;
      const T *k[kLanes], *v[kLanes];
      for (int i = 0; i < kLanes; i++) {
        k[i] = row(k_, begin + key + i);
        v[i] = row(v_, begin + key + i);
      }
      pack_columns<Operand>(k, problem_.size, w.keys + column, kTile);
      pack_columns<Operand>(v, problem_.size, w.values + column, kTile);
      for (int i = 0; i < kLanes; i += kSteps)
        pack_interleaved<Operand>(k[i], k[i + kSteps - 1], problem_.size,
                                  w.keys_by_key + (key + i) / kSteps * lanes_);
    }
  }

  void pack_rows(const Workspace& w, const RowBlock& rows, int64_t sequence, int64_t head) const {
    const int64_t padded = round_up(rows.count, kTileRows);
    const T *q[kTileRows], *dout[kTileRows];
    for (int64_t r = 0; r < padded; r += kTileRows) {
      for (int i = 0; i < kTileRows; i++) {
        const int64_t at = problem_.query_row(sequence, head, rows.place[std::min(r + i, rows.count - 1)]);
        const auto* const zeros = reinterpret_cast<const T*>(w.zeros);
        q[i] = r + i < rows.count ? q_ + at : zeros;
        dout[i] = r + i < rows.count ? dout_ + at : zeros;
        pack_row<Operand>(q[i], problem_.size, w.q + (r + i) * units_);
        pack_row<Operand>(dout[i], problem_.size, w.dout + (r + i) * units_);
      }
      if constexpr (kSteps == 1) continue;
      for (int i = 0; i < kTileRows; i += kSteps) {
        const int64_t at = (r + i) / kSteps * lanes_;
        pack_interleaved<Operand>(q[i], q[i + kSteps - 1], problem_.size, w.q_by_row + at);
        pack_interleaved<Operand>(dout[i], dout[i + kSteps - 1], problem_.size, w.dout_by_row + at);
      }
    }
  }

  void row_block(const Workspace& w, const RowBlock& rows, int64_t sequence, int64_t head, int64_t index,
                 int64_t begin, int64_t end) const {
    const int64_t at = rows_.row(problem_, sequence, head) + rows.begin;
    Turn& turn = rows_.turn(problem_, sequence, head, index);
    const auto own = static_cast<int32_t>(begin / kKeys);
    bool packed = false;
    for (int64_t tile = begin; tile < end; tile += kTile) {
      // The part of the tile that is not masked, rounded out to whole vectors and tile rows.
      const int64_t from = std::max(tile, rows.lowest() / kLanes * kLanes);
      const int64_t to = std::min(tile + kTile, round_up(std::min(rows.highest() + 1, end), kLanes));
      if (from >= to || rows.all_masked(from, std::min(to, end))) continue;
      int64_t top = 0, bottom = rows.count;
      while (rows.last[top] < from) top++;
      while (rows.first[bottom - 1] >= to) bottom--;
      const Span span{tile,      (tile - begin) / kTile,      from - tile,
                      to - tile, top / kTileRows * kTileRows, round_up(bottom, kTileRows)};
      if (!packed) pack_rows(w, rows, sequence, head);
      packed = true;
      differentiate(w, rows, span, at);
      add_key_gradient(w.dvalues + span.number * lanes_ * kTile, w.dout_by_row, w.p, span);
      add_key_gradient(w.dkeys + span.number * lanes_ * kTile, w.q_by_row, w.ds, span);
      await(turn, own);
      add_query_gradient(w, span, at);
    }
    await(turn, own);
    if (own == rows.highest() / kKeys) finish_rows(rows, sequence, head, at);
    turn.store(own + 1, std::memory_order_release);
    turn.notify_all();
  }

  /// Part of a tile: its keys [from, to), counted from `start`, by rows [top, bottom) of the row block.
  struct Span {
    int64_t start, number, from, to, top, bottom;
  };

  static void await(const Turn& turn, int32_t own) {
    for (int32_t now; (now = turn.load(std::memory_order_acquire)) != own;)
      turn.wait(now, std::memory_order_acquire);
  }

  /// p and ds of a span, as units whose steps are rows, and ds as rows.
  void differentiate(const Workspace& w, const RowBlock& rows, const Span& span, int64_t at) const {
    const vf scale = set1(problem_.scale);
    const vf scale2 = set1(problem_.scale * std::numbers::log2e_v<float>);
    const int64_t steps = (problem_.size + kSteps - 1) / kSteps;
    const float* const keys = w.keys + span.number * units_ * kTile;
    const float* const values = w.values + span.number * units_ * kTile;
    const int begin = static_cast<int>(span.from / kLanes), end = static_cast<int>(span.to / kLanes);
    for (int64_t r = span.top; r < span.bottom; r += kTileRows) {
      by_vectors(
          end,
          [&](int first, auto width) {
            vf acc[kTileRows][width()] = {};
            accumulate<Operand>(acc, w.q + r * units_, units_, 1, keys + first * kLanes, kTile, steps);
            for (int i = 0; i < kTileRows; i++) {
              const vf lse = set1(-rows_.lse[at + r + i]);
              for (int v = 0; v < width(); v++)
                store(w.scores + i * kTile + (first + v) * kLanes, fma(acc[i][v], scale2, lse));
            }
          },
          begin);
      if (!rows.all_visible(span.start + span.from, span.start + span.to)) mask(w, rows, span, r);
      by_vectors(
          end,
          [&](int first, auto width) {
            vf acc[kTileRows][width()] = {};
            accumulate<Operand>(acc, w.dout + r * units_, units_, 1, values + first * kLanes, kTile, steps);
            for (int i = 0; i < kTileRows; i += kSteps) {
              for (int v = 0; v < width(); v++) {
                vf p[kSteps], ds[kSteps];
                const int64_t column = (first + v) * kLanes;
                for (int s = 0; s < kSteps; s++) {
                  p[s] = Operand::power(load(w.scores + (i + s) * kTile + column));
                  ds[s] = (acc[i + s][v] - set1(rows_.delta[at + r + i + s])) * (p[s] * scale);
                  if constexpr (kSteps > 1)
                    Operand::store_elements(w.ds_rows + (r + i + s) * kTile / kSteps, column, ds[s]);
                }
                store(w.p + (r + i) / kSteps * kTile + column, Operand::round(p[0], p[kSteps - 1]));
                store(w.ds + (r + i) / kSteps * kTile + column, Operand::round(ds[0], ds[kSteps - 1]));
              }
            }
          },
          begin);
    }
  }

  void mask(const Workspace& w, const RowBlock& rows, const Span& span, int64_t r) const {
    for (int64_t i = 0; i < kTileRows; i++) {
      float* const scores = w.scores + i * kTile;
      const auto start = static_cast<int32_t>(span.start);
      const int32_t first = rows.first[r + i], last = rows.last[r + i];
      for (int64_t key = span.from; key < span.to; key++) {
        const int32_t j = start + static_cast<int32_t>(key);
        scores[key] = (j >= first) & (j <= last) ? scores[key] : kMasked;
      }
      if (!rows.key_branch) continue;
      const int32_t* const branch = rows.key_branch + span.start;
      const int64_t seen = std::min<int64_t>(span.to, last + 1 - span.start);
      for (int64_t key = span.from; key < seen; key++)
        scores[key] = (branch[key] == 0) | (branch[key] == rows.branch[r + i]) ? scores[key] : kMasked;
    }
  }

  /// out[d][key] += Σ_row left[row][d]·right[row][key].
  void add_key_gradient(float* out, const float* left, const float* right, const Span& span) const {
    const int64_t top = span.top / kSteps;
    by_vectors(
        static_cast<int>(span.to / kLanes),
        [&](int first, auto width) {
          for (int64_t d = 0; d < problem_.size; d += kTileRows) {
            vf acc[kTileRows][width()];
            float* const at = out + d * kTile + first * kLanes;
            for (int i = 0; i < kTileRows; i++) {
              for (int v = 0; v < width(); v++) acc[i][v] = load(at + i * kTile + v * kLanes);
            }
            accumulate<Operand>(acc, left + top * lanes_ + d, 1, lanes_, right + top * kTile + first * kLanes,
                                kTile, span.bottom / kSteps - top);
            for (int i = 0; i < kTileRows; i++) {
              for (int v = 0; v < width(); v++) store(at + i * kTile + v * kLanes, acc[i][v]);
            }
          }
        },
        static_cast<int>(span.from / kLanes));
  }

  /// dq[row][d] += Σ_key ds·k.
  void add_query_gradient(const Workspace& w, const Span& span, int64_t at) const {
    const int64_t key = (span.number * kTile + span.from) / kSteps, steps = (span.to - span.from) / kSteps;
    by_vectors(static_cast<int>(lanes_ / kLanes), [&](int first, auto width) {
      for (int64_t r = span.top; r < span.bottom; r += kTileRows) {
        vf acc[kTileRows][width()];
        float* const out = rows_.dq + (at + r) * lanes_ + first * kLanes;
        for (int i = 0; i < kTileRows; i++) {
          for (int v = 0; v < width(); v++) acc[i][v] = load(out + i * lanes_ + v * kLanes);
        }
        accumulate<Operand>(acc, w.ds_rows + (r * kTile + span.from) / kSteps, kTile / kSteps, 1,
                            w.keys_by_key + key * lanes_ + first * kLanes, lanes_, steps);
        for (int i = 0; i < kTileRows; i++) {
          for (int v = 0; v < width(); v++) store(out + i * lanes_ + v * kLanes, acc[i][v]);
        }
      }
    });
  }

  void finish_rows(const RowBlock& rows, int64_t sequence, int64_t head, int64_t at) const {
    for (int64_t r = 0; r < rows.count; r++) {
      T* const out = dq_ + problem_.query_row(sequence, head, rows.place[r]);
      for (int64_t d = 0; d < problem_.size; d += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, problem_.size - d));
        store(out + d, load(rows_.dq + (at + r) * lanes_ + d), n);
      }
    }
  }

  void finish_keys(const Workspace& w, int64_t sequence, int64_t head, int64_t begin, int64_t end) const {
    for (int64_t key = begin; key < end; key += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, end - key));
      const int64_t local = key - begin, column = local / kTile * kTile * lanes_ + local % kTile;
      T *dk[kLanes], *dv[kLanes];
      for (int i = 0; i < n; i++) {
        dk[i] = dk_ + problem_.key_row(sequence, head, key + i);
        dv[i] = dv_ + problem_.key_row(sequence, head, key + i);
      }
      unpack_columns<Operand>(w.dkeys + column, kTile, set1(1.0f), dk, n, problem_.size);
      unpack_columns<Operand>(w.dvalues + column, kTile, set1(1.0f), dv, n, problem_.size);
    }
  }

  const Problem& problem_;
  const T *dout_, *q_, *k_, *v_, *o_;
  const float* lse_;
  T *dq_, *dk_, *dv_;
  int64_t units_, lanes_;
  Rows rows_;
  int64_t floats_ = 0;
  float* memory_;
};

void attention_backward(Stream& stream, const Args& args) {
  const auto tensors = args.tensors<11>();
  const Problem problem("attention_backward", tensors[1], tensors[2], tensors[3], tensors[6], tensors[7],
                        args);
  const Schedule row_blocks(problem, stream.scratch, [&](int64_t s) { return problem.row_blocks(s); });
  const Schedule key_blocks(problem, stream.scratch,
                            [&](int64_t s) { return (problem.length(s) + kKeys - 1) / kKeys; });
  by_operand(tensors[1].dtype, [&](auto operand) {
    const Backward<decltype(operand)> backward(problem, stream.scratch, stream.pool.threads(), tensors);
    stream.pool.region([&](Worker& worker) {
      for (int64_t i; (i = worker.next(0)) < row_blocks.tasks();) {
        const auto task = row_blocks[i];
        backward.prepare(task.sequence, task.head, task.piece);
      }
      worker.barrier();
      for (int64_t i; (i = worker.next(1)) < key_blocks.tasks();) {
        const auto task = key_blocks[i];
        backward.block(task.sequence, task.head, task.piece, worker.index);
      }
    });
  });
}

}  // namespace

void register_attention_backward(KernelTable& table) {
  table.set("attention_backward", attention_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
