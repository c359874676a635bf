// Disentangled attention backward: dq, dk, dv and the gradients of the positions, all =. With ds as in
// attention_backward.cc, and sums over the pairs (i, j) of a bucket b
//   dq_i = Σ_j ds·(k_j + pk_b)    dk_j = Σ_i ds·(q_i + pq_b)    dpk_b = Σ ds·q_i    dpq_b = Σ ds·k_j
// In a tile the sums over the pairs of a bucket come first: dc[i][b] = Σ_j ds and dp[b][j] = Σ_i ds, so that all
// that follows is products. A task takes one head of a run of sequences, about kRunTokens tokens long, and
// walks over their tiles in order; it has its own sums for the positions, which a second pass adds in order of runs.
// Nothing depends on the thread count. All is computed in f32, bf16 storage too.
#include <cmath>
#include <numbers>
#include <vector>

#include "cpu/attention/disentangled.h"
#include "cpu/attention/tile.h"
#include "cpu/runtime/families.h"

namespace steptrain::cpu::STEPTRAIN_ISA {
namespace {

constexpr int64_t kRunTokens = 1024;
constexpr float kPaddedLse = 1e30f;  // lse (log2 units) of padding rows: every p is 0

/// out[m][n] (+)= Σ_s a[m·a_row + s·a_step]·b[s·b_step + n], rows a multiple of kTileRows, n in whole vectors.
template <bool kAdd>
void product(float* out, int64_t out_row, int64_t rows, int64_t vectors, const float* a, int64_t a_row,
             int64_t a_step, const float* b, int64_t b_step, int64_t steps) {
  by_vectors(static_cast<int>(vectors), [&](int first, auto width) {
    for (int64_t m = 0; m < rows; m += kTileRows) {
      vf acc[kTileRows][width()] = {};
      float* const at = out + m * out_row + first * kLanes;
      if constexpr (kAdd) {
        for (int i = 0; i < kTileRows; i++) {
          for (int v = 0; v < width(); v++) acc[i][v] = load(at + i * out_row + v * kLanes);
        }
      }
      accumulate<Single<float>>(acc, a + m * a_row, a_row, a_step, b + first * kLanes, b_step, steps);
      for (int i = 0; i < kTileRows; i++) {
        for (int v = 0; v < width(); v++) store(at + i * out_row + v * kLanes, acc[i][v]);
      }
    }
  });
}

constexpr int64_t vectors_of(int64_t n) {
  return (n + kLanes - 1) / kLanes;
}

/// One worker's memory. `lanes` floats to a head, `longest` tokens to a sequence.
struct Workspace {
  float *q, *dout, *dq, *lse, *delta;                       // of a sequence, by row
  float *k, *k_columns, *v_columns, *dk, *dv;               // of a tile of keys; d… by element
  float *p, *ds, *of_keys, *of_queries, *dkeys, *dqueries;  // of a tile

  static Workspace cut(float* memory, int64_t lanes, int64_t longest, int64_t& floats) {
    const float* const begin = memory;
    const auto take = [&](int64_t n) {
      float* part = memory;
      memory += n;
      return part;
    };
    Workspace w;
    for (float** part : {&w.q, &w.dout, &w.dq}) *part = take(longest * lanes);
    w.lse = take(longest);
    w.delta = take(longest);
    for (float** part : {&w.k, &w.k_columns, &w.v_columns, &w.dk, &w.dv}) *part = take(kTile * lanes);
    for (float** part : {&w.p, &w.ds}) *part = take(kRows * kTile);
    for (float** part : {&w.of_keys, &w.dkeys}) *part = take(kRows * kWindow);
    for (float** part : {&w.of_queries, &w.dqueries}) *part = take(kWindow * kTile);
    floats = memory - begin;
    return w;
  }
};

template <typename T>
class Backward {
 public:
  Backward(const Problem& problem, const Buckets& buckets, Scratch& scratch, int threads,
           const std::array<TensorView, 15>& tensors)
      : problem_(problem),
        buckets_(buckets),
        dout_(tensors[0].as<T>()),
        q_(tensors[1].as<T>()),
        k_(tensors[2].as<T>()),
        v_(tensors[3].as<T>()),
        pos_q_(tensors[4].as<T>()),
        pos_k_(tensors[5].as<T>()),
        o_(tensors[6].as<T>()),
        lse_(tensors[7].as<float>()),
        dq_(tensors[10].as<T>()),
        dk_(tensors[11].as<T>()),
        dv_(tensors[12].as<T>()),
        dpos_q_(tensors[13].as<T>()),
        dpos_k_(tensors[14].as<T>()),
        lanes_(round_up(problem.size, kLanes)),
        rows_(round_up(buckets.rows, kTileRows) + kTileRows),
        columns_(round_up(buckets.rows, kLanes) + kLanes) {
    runs_.push_back(0);
    for (int64_t s = 0, tokens = 0; s < problem.sequences; s++) {
      longest_ = std::max(longest_, round_up(problem.length(s), kTileRows));
      tokens += problem.length(s);
      if (tokens < kRunTokens && s + 1 < problem.sequences) continue;
      runs_.push_back(s + 1);
      tokens = 0;
    }
    const int64_t heads = problem.heads, positions = rows_ * lanes_;
    pos_q_rows_ = scratch.take<float>(heads * positions);
    pos_k_rows_ = scratch.take<float>(heads * positions);
    pos_k_columns_ = scratch.take<float>(heads * lanes_ * columns_);
    dpos_q_sums_ = scratch.take<float>(runs() * heads * positions);
    dpos_k_sums_ = scratch.take<float>(runs() * heads * positions);
    Workspace::cut(nullptr, lanes_, longest_, floats_);
    memory_ = scratch.take<float>(threads * floats_);
  }

  int64_t runs() const { return static_cast<int64_t>(runs_.size()) - 1; }

  /// The positions of a head in f32: as rows, those of keys also as columns. Zeros past the last.
  void pack_positions(int64_t head) const {
    float *const q = head_rows(pos_q_rows_, head), *const k = head_rows(pos_k_rows_, head);
    std::fill(q, q + rows_ * lanes_, 0.0f);
    std::fill(k, k + rows_ * lanes_, 0.0f);
    for (int64_t b = 0; b < buckets_.rows; b++) {
      const int64_t at = (b * problem_.heads + head) * problem_.size;
      pack_row<Single<T>>(pos_q_ + at, problem_.size, q + b * lanes_);
      pack_row<Single<T>>(pos_k_ + at, problem_.size, k + b * lanes_);
    }
    float* const columns = pos_k_columns_ + head * lanes_ * columns_;
    for (int64_t b = 0; b < columns_; b += kLanes) {
      const float* row[kLanes];
      for (int i = 0; i < kLanes; i++) row[i] = k + std::min(b + i, rows_ - 1) * lanes_;
      pack_columns<Single<float>>(row, lanes_, columns + b, columns_);
    }
  }

  /// One head of a run of sequences: dq, dk, dv, and its sums for the positions.
  void run(int64_t index, int64_t head, int worker) const {
    int64_t floats;
    const Workspace w = Workspace::cut(memory_ + worker * floats_, lanes_, longest_, floats);
    float *const dpos_q = run_sums(dpos_q_sums_, index, head), *const dpos_k =
                                                                   run_sums(dpos_k_sums_, index, head);
    std::fill(dpos_q, dpos_q + rows_ * lanes_, 0.0f);
    std::fill(dpos_k, dpos_k + rows_ * lanes_, 0.0f);
    for (int64_t s = runs_[static_cast<size_t>(index)]; s < runs_[static_cast<size_t>(index) + 1]; s++) {
      const int64_t length = problem_.length(s);
      pack_queries(w, s, head);
      for (int64_t key = 0; key < length; key += kTile) {
        const int64_t keys = std::min(kTile, length - key);
        pack_keys(w, s, head, key, keys);
        for (int64_t row = 0; row < length; row += kRows)
          tile(w, head, row, std::min(kRows, round_up(length - row, kTileRows)), key, keys, dpos_q, dpos_k);
        finish_keys(w, s, head, key, keys);
      }
      for (int64_t row = 0; row < length; row++)
        store_row(w.dq + row * lanes_, dq_ + problem_.query_row(s, head, {static_cast<int32_t>(row), 0}));
    }
  }

  /// Adds what the runs have for the positions of a head.
  void finish_positions(int64_t head) const {
    for (int64_t b = 0; b < buckets_.rows; b++) {
      const int64_t at = (b * problem_.heads + head) * problem_.size;
      add_runs(dpos_q_sums_, head, b, dpos_q_ + at);
      add_runs(dpos_k_sums_, head, b, dpos_k_ + at);
    }
  }

 private:
  float* head_rows(float* all, int64_t head) const { return all + head * rows_ * lanes_; }
  float* run_sums(float* all, int64_t run, int64_t head) const {
    return head_rows(all, run * problem_.heads + head);
  }

  void pack_queries(const Workspace& w, int64_t sequence, int64_t head) const {
    const int64_t length = problem_.length(sequence), padded = round_up(length, kTileRows);
    std::fill(w.dq, w.dq + padded * lanes_, 0.0f);
    for (float* part : {w.q, w.dout}) std::fill(part + length * lanes_, part + padded * lanes_, 0.0f);
    for (int64_t r = 0; r < padded; r++) {
      w.lse[r] = kPaddedLse;
      w.delta[r] = 0.0f;
      if (r >= length) continue;
      const RowPlace place{static_cast<int32_t>(r), 0};
      const int64_t row = problem_.query_row(sequence, head, place);
      pack_row<Single<T>>(q_ + row, problem_.size, w.q + r * lanes_);
      pack_row<Single<T>>(dout_ + row, problem_.size, w.dout + r * lanes_);
      w.lse[r] = lse_[problem_.statistic(sequence, head, place)] * std::numbers::log2e_v<float>;
      vf delta = zero();
      for (int64_t d = 0; d < problem_.size; d += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, problem_.size - d));
        delta = fma(load(dout_ + row + d, n), load(o_ + row + d, n), delta);
      }
      w.delta[r] = sum(delta);
    }
  }

  void pack_keys(const Workspace& w, int64_t sequence, int64_t head, int64_t begin, int64_t count) const {
    std::fill(w.k, w.k + kTile * lanes_, 0.0f);
    std::fill(w.dk, w.dk + kTile * lanes_, 0.0f);
    std::fill(w.dv, w.dv + kTile * lanes_, 0.0f);
    const auto at = [&](int64_t key) {
      return problem_.key_row(sequence, head, begin + std::min(key, count - 1));
    };
    for (int64_t key = 0; key < count; key++)
      pack_row<Single<T>>(k_ + at(key), problem_.size, w.k + key * lanes_);
    for (int64_t key = 0; key < count; key += kLanes) {
      // Past the last key it is repeated; such columns weigh 0.
      const T *k[kLanes], *v[kLanes];
      for (int i = 0; i < kLanes; i++) {
        k[i] = k_ + at(key + i);
        v[i] = v_ + at(key + i);
      }
      pack_columns<Single<T>>(k, problem_.size, w.k_columns + key, kTile);
      pack_columns<Single<T>>(v, problem_.size, w.v_columns + key, kTile);
    }
  }

  /// The gradients of `rows` queries from `row` on and `keys` keys from `key` on.
  void tile(const Workspace& w, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t keys,
            float* dpos_q, float* dpos_k) const {
    const int64_t size = problem_.size, vectors = vectors_of(keys), lanes = lanes_ / kLanes;
    const float *const q = w.q + row * lanes_, *const dout = w.dout + row * lanes_;
    const BucketWindow window(buckets_, row - key + kRows - 1, -1);
    const int64_t width = window.width, padded = round_up(width, kTileRows), at = window.lowest * lanes_;
    const float *const pos_q = head_rows(pos_q_rows_, head) + at, *const pos_k =
                                                                      head_rows(pos_k_rows_, head) + at;
    const float* const pos_k_columns = pos_k_columns_ + head * lanes_ * columns_ + window.lowest;
    product<false>(w.p, kTile, rows, vectors, q, lanes_, 1, w.k_columns, kTile, size);
    product<false>(w.ds, kTile, rows, vectors, dout, lanes_, 1, w.v_columns, kTile, size);
    product<false>(w.of_keys, kWindow, rows, vectors_of(width), q, lanes_, 1, pos_k_columns, columns_, size);
    product<false>(w.of_queries, kTile, padded, vectors, pos_q, lanes_, 1, w.k_columns, kTile, size);
    differentiate(w, window, row, rows, keys);
    add_by_bucket(w, window, rows, keys, padded);
    product<true>(w.dv, kTile, size_rows(), vectors, dout, 1, lanes_, w.p, kTile, rows);
    product<true>(w.dk, kTile, size_rows(), vectors, q, 1, lanes_, w.ds, kTile, rows);
    product<true>(w.dk, kTile, size_rows(), vectors, pos_q, 1, lanes_, w.dqueries, kTile, width);
    float* const dq = w.dq + row * lanes_;
    product<true>(dq, lanes_, rows, lanes, w.ds, kTile, 1, w.k, lanes_, keys);
    product<true>(dq, lanes_, rows, lanes, w.dkeys, kWindow, 1, pos_k, lanes_, width);
    product<true>(dpos_k + at, lanes_, padded, lanes, w.dkeys, 1, kWindow, q, lanes_, rows);
    product<true>(dpos_q + at, lanes_, padded, lanes, w.dqueries, kTile, 1, w.k, lanes_, keys);
  }
  /// Elements of a head in whole tile rows; lanes_ is no smaller.
  int64_t size_rows() const { return round_up(problem_.size, kTileRows); }

  /// p: from scores to probabilities; ds: from do·v to the gradient of the score.
  void differentiate(const Workspace& w, const BucketWindow& window, int64_t row, int64_t rows,
                     int64_t keys) const {
    const vf scale = set1(problem_.scale), scale2 = set1(problem_.scale * std::numbers::log2e_v<float>);
    for (int64_t r = 0; r < rows; r++) {
      const vf lse = set1(-w.lse[row + r]), delta = set1(w.delta[row + r]);
      for (int64_t key = 0; key < keys; key += kLanes) {
        const int64_t at = r * kTile + key;
        const int32_t* const index = window.index + key - r + kRows - 1;
        const vf score = load(w.p + at) + gather(w.of_keys + r * kWindow, index) +
                         gather(w.of_queries + key, index, kTile, 1);
        vf p = exp2(fma(score, scale2, lse));
        if (keys - key < kLanes) p = first_lanes(p, static_cast<int>(keys - key));
        store(w.p + at, p);
        store(w.ds + at, (load(w.ds + at) - delta) * (p * scale));
      }
    }
  }

  /// dkeys[row][bucket] = Σ_key ds, dqueries[bucket][key] = Σ_row ds.
  static void add_by_bucket(const Workspace& w, const BucketWindow& window, int64_t rows, int64_t keys,
                            int64_t padded) {
    for (int64_t r = 0; r < rows; r++) std::fill(w.dkeys + r * kWindow, w.dkeys + r * kWindow + padded, 0.0f);
    std::fill(w.dqueries, w.dqueries + padded * kTile, 0.0f);
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t key = 0; key < keys; key++) {
        const int64_t bucket = window.index[key - r + kRows - 1];
        const float ds = w.ds[r * kTile + key];
        w.dkeys[r * kWindow + bucket] += ds;
        w.dqueries[bucket * kTile + key] += ds;
      }
    }
  }

  void finish_keys(const Workspace& w, int64_t sequence, int64_t head, int64_t begin, int64_t count) const {
    for (int64_t key = 0; key < count; key += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, count - key));
      T *dk[kLanes], *dv[kLanes];
      for (int i = 0; i < n; i++) {
        dk[i] = dk_ + problem_.key_row(sequence, head, begin + key + i);
        dv[i] = dv_ + problem_.key_row(sequence, head, begin + key + i);
      }
      unpack_columns<Single<T>>(w.dk + key, kTile, set1(1.0f), dk, n, problem_.size);
      unpack_columns<Single<T>>(w.dv + key, kTile, set1(1.0f), dv, n, problem_.size);
    }
  }

  void store_row(const float* from, T* to) const {
    for (int64_t d = 0; d < problem_.size; d += kLanes)
      store(to + d, load(from + d), static_cast<int>(std::min<int64_t>(kLanes, problem_.size - d)));
  }

  void add_runs(float* sums, int64_t head, int64_t bucket, T* to) const {
    for (int64_t d = 0; d < problem_.size; d += kLanes) {
      vf sum = zero();
      for (int64_t i = 0; i < runs(); i++) sum = sum + load(run_sums(sums, i, head) + bucket * lanes_ + d);
      store(to + d, sum, static_cast<int>(std::min<int64_t>(kLanes, problem_.size - d)));
    }
  }

  const Problem& problem_;
  const Buckets& buckets_;
  const T *dout_, *q_, *k_, *v_, *pos_q_, *pos_k_, *o_;
  const float* lse_;
  T *dq_, *dk_, *dv_, *dpos_q_, *dpos_k_;
  int64_t lanes_, rows_, columns_, longest_ = 0, floats_ = 0;
  std::vector<int64_t> runs_;  // at which sequence each begins, and the number of sequences
  float *pos_q_rows_, *pos_k_rows_, *pos_k_columns_, *dpos_q_sums_, *dpos_k_sums_, *memory_;
};

void disentangled_attention_backward(Stream& stream, const Args& args) {
  const auto tensors = args.tensors<15>();
  const Problem problem("disentangled_attention_backward", tensors[1], tensors[2], tensors[3], tensors[9], {},
                        false, 0, args.f(0));
  const Buckets buckets("disentangled_attention_backward", tensors[8], tensors[4], problem);
  by_storage(tensors[1].dtype, [&](auto storage) {
    const Backward<decltype(storage)> backward(problem, buckets, stream.scratch, stream.pool.threads(),
                                               tensors);
    stream.pool.region([&](Worker& worker) {
      for (int64_t head; (head = worker.next(0)) < problem.heads;) backward.pack_positions(head);
      worker.barrier();
      for (int64_t i; (i = worker.next(1)) < backward.runs() * problem.heads;)
        backward.run(i / problem.heads, i % problem.heads, worker.index);
      worker.barrier();
      for (int64_t head; (head = worker.next(2)) < problem.heads;) backward.finish_positions(head);
    });
  });
}

}  // namespace

void register_disentangled_attention_backward(KernelTable& table) {
  table.set("disentangled_attention_backward", disentangled_attention_backward);
}

}  // namespace steptrain::cpu::STEPTRAIN_ISA
