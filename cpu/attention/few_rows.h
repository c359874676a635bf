// The online softmax of few query rows over pages of keys, for decoding. Lanes are keys for the scores and
// elements of the head for the values, so that one query fills whole vectors. A row's sums have the order of
// forward.h, and so the same bits. Rows that share a page (heads of a group, sequences with a common prefix)
// share its loads.
//
// Per key with D = 64 in bf16 pairs: each row takes 2 vector dot products for the score and 2 for the values;
// all rows of the KV head share 256 bytes of the page. Seven rows are 28 instructions for 256 bytes.
#pragma once

#include <numbers>

#include "cpu/attention/forward.h"
#include "cpu/attention/page.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

template <typename Operand>
class FewRows {
 public:
  using T = typename Operand::Storage;

  /// Rows that one workspace holds.
  static constexpr int64_t kMaxRows = 64;

  /// first ≤ key ≤ last are the keys visible to the row.
  struct Row {
    const T* q;
    T* o;
    int64_t first, last;
  };

  static int64_t workspace(int64_t size) {
    return kMaxRows * (padded_units<Operand>(size) + round_up(size, kLanes) + 3) + kBlock * (2 * kTile) +
           kMaxRows * rows_floats();
  }

  FewRows(float* memory, int64_t size, float scale)
      : at_(size),
        size_(size),
        units_(padded_units<Operand>(size)),
        lanes_(round_up(size, kLanes)),
        scale_(scale * std::numbers::log2e_v<float>),
        q_(memory),
        o_(q_ + kMaxRows * units_),
        maximum_(o_ + kMaxRows * lanes_),
        sum_(maximum_ + kMaxRows),
        decay_(sum_ + kMaxRows),
        scores_(decay_ + kMaxRows),
        weights_(scores_ + kBlock * kTile),
        rows_(reinterpret_cast<Row*>(weights_ + kBlock * kTile)) {}

  int64_t count() const { return count_; }
  void clear() { count_ = 0; }
  /// At most kMaxRows.
  void add(const Row& row) {
    rows_[count_] = row;
    pack_row<Operand>(row.q, size_, q_ + count_ * units_);
    std::fill_n(o_ + count_ * lanes_, lanes_, 0.0f);
    maximum_[count_] = kMinimum;
    sum_[count_++] = 0;
  }

  /// Adds keys tile … tile + kTile - 1, which lie in `page`, to rows [begin, end).
  void add_page(const T* page, int64_t tile, int64_t begin, int64_t end) const {
    int64_t first = tile + kTile, last = -1;
    bool whole = true;
    for (int64_t r = begin; r < end; r++) {
      first = std::min(first, std::max(tile, rows_[r].first));
      last = std::max(last, std::min(tile + kTile - 1, rows_[r].last));
      whole &= rows_[r].first <= tile && rows_[r].last >= tile + kTile - 1;
    }
    if (first > last) return;
    // Keys behind the last visible one are not read: of a page that is being filled they are the most.
    const int vectors = static_cast<int>((last - tile) / kLanes) + 1;
    const int64_t blocks = (end - begin + kBlock - 1) / kBlock, height = (end - begin + blocks - 1) / blocks;
    for (int64_t r = begin; r < end; r += height) {
      const int64_t rows = std::min(height, end - r);
      by_height(static_cast<int>(rows), [&](auto n) {
        score<n()>(page, r, vectors);
        if (!whole) mask(tile, r, n, vectors);
        make_probabilities<n()>(r, vectors);
        add_all_values<n()>(page, first - tile, last + 1 - tile, r);
      });
    }
  }

  /// o = sums / sum of probabilities.
  void finish() const {
    for (int64_t r = 0; r < count_; r++) {
      const vf inverse = set1(1.0f) / set1(sum_[r]);
      for (int64_t d = 0; d < size_; d += kLanes)
        store(rows_[r].o + d, load(o_ + r * lanes_ + d) * inverse,
              static_cast<int>(std::min<int64_t>(kLanes, size_ - d)));
    }
  }

 private:
#if defined(__AVX512F__) || defined(STEPTRAIN_NEON)
  // 6 rows by 4 vectors take 24 of 32 registers as accumulators; the page takes 4, the broadcast 1.
  static constexpr int kBlock = 6, kVectors = 4;
#else
  static constexpr int kBlock = 2, kVectors = 4;  // accumulators take 8 of 16 registers
#endif
  static constexpr int64_t rows_floats() {
    return (sizeof(Row) + sizeof(float) - 1) / sizeof(float);
  }

  template <int N = kBlock, typename F>
  static void by_height(int rows, F body) {
    if (rows == N) return body(std::integral_constant<int, N>());
    if constexpr (N > 1) by_height<N - 1>(rows, body);
  }

  /// acc[r][v] += left[r · stride] · right[v]: one unit of each row by V vectors of a page.
  template <int N, int V>
  static inline __attribute__((always_inline)) void add_unit(vf (&acc)[N][V], const float* left,
                                                             int64_t stride, const vf (&right)[V]) {
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
      const vf unit = set1(left[r * stride]);
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) acc[r][v] = Operand::dot(unit, right[v], acc[r][v]);
    }
  }
  template <int V>
  static inline __attribute__((always_inline)) void load_units(vf (&units)[V], const T* from) {
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) units[v] = Operand::stored_units(from + v * kLanes * Operand::kSteps);
  }

  /// scores[r][key] = scale·q·k in log2 units, for V vectors of keys from `first` on.
  template <int N, int V>
  void score_vectors(const T* page, int64_t row, int first) const {
    const int64_t steps = (size_ + Operand::kSteps - 1) / Operand::kSteps;
    const vf scale = set1(scale_);
    vf acc[N][V] = {};
    const T* keys = page + at_.key(first * kLanes, 0);
    const float* q = q_ + row * units_;
    for (int64_t s = 0; s < steps; s++, keys += kTile * Operand::kSteps, q++) {
      vf units[V];
      load_units(units, keys);
      add_unit(acc, q, units_, units);
    }
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) store(scores_ + r * kTile + (first + v) * kLanes, acc[r][v] * scale);
    }
  }

  /// The same for the first vectors of the page, at most kVectors at a time.
  template <int N, int V = kVectors>
  void score(const T* page, int64_t row, int vectors, int first = 0) const {
    for (; first + V <= vectors; first += V) score_vectors<N, V>(page, row, first);
    if constexpr (V > 1) {
      if (first < vectors) score<N, V - 1>(page, row, vectors, first);
    }
  }

  void mask(int64_t tile, int64_t row, int64_t rows, int vectors) const {
    for (int64_t r = 0; r < rows; r++) {
      const int64_t first = rows_[row + r].first - tile, last = rows_[row + r].last - tile;
      float* const scores = scores_ + r * kTile;
      for (int64_t key = 0; key < vectors * kLanes; key++)
        scores[key] = (key >= first) & (key <= last) ? scores[key] : kMasked;
    }
  }

  /// Turns scores into probabilities relative to the running maximum: in f32 for their sum, in units whose steps
  /// are keys for the product with the values.
  template <int N>
  void make_probabilities(int64_t row, int vectors) const {
    const int64_t keys = vectors * kLanes;
    for (int r = 0; r < N; r++) {
      const float* const scores = scores_ + r * kTile;
      vf top = load(scores);
      for (int64_t key = kLanes; key < keys; key += kLanes) top = max(top, load(scores + key));
      const float before = maximum_[row + r], maximum = std::max(before, std::nearbyint(max(top)));
      maximum_[row + r] = maximum;
      decay_[row + r] = before - maximum;
    }
    static_assert(N <= 2 * kLanes);
    for (int r = 0; r < N; r += kLanes) {
      float* const decay = decay_ + row + r;
      const int n = std::min(kLanes, N - r);
      store(decay, scale2_down(set1(1.0f), load(decay, n)), n);
    }
    for (int r = 0; r < N; r++) {
      float *const scores = scores_ + r * kTile, *const weights = weights_ + r * kTile;
      const vf maximum = set1(maximum_[row + r]);
      for (int64_t key = 0; key < keys; key += kLanes) {
        const vf p = Operand::power(load(scores + key), maximum);
        store(scores + key, p);
        Operand::store_elements(weights, key, p);
      }
    }
    float sums[N];
    for (int r = 0; r < N; r++) sums[r] = sum_[row + r] * decay_[row + r];
    for (int64_t key = 0; key < keys; key++) {
#pragma GCC unroll 6
      for (int r = 0; r < N; r++) sums[r] += scores_[r * kTile + key];
    }
    for (int r = 0; r < N; r++) sum_[row + r] = sums[r];
  }

  /// o[row][d] = o·decay + Σ_key v·p over the keys at places [from, to), for V vectors of d from `lane` on.
  template <int N, int V>
  void add_values(const T* page, int64_t from, int64_t to, int64_t row, int64_t lane) const {
    vf acc[N][V];
    float* const out = o_ + row * lanes_ + lane;
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
      const vf decay = set1(decay_[row + r]);
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) acc[r][v] = load(out + r * lanes_ + v * kLanes) * decay;
    }
    int64_t key = from / Operand::kSteps * Operand::kSteps;
    const T* values = page + at_.value_units(key, lane);
    const float* weights = weights_ + key / Operand::kSteps;
    vf units[V];
    for (; key + Operand::kSteps <= to; key += Operand::kSteps, values += at_.width * Operand::kSteps) {
      load_units(units, values);
      add_unit(acc, weights++, kTile, units);
    }
    if (key < to) {
      for (int v = 0; v < V; v++)
        units[v] = Operand::stored_units(values + v * kLanes * Operand::kSteps, to - key);
      add_unit(acc, weights, kTile, units);
    }
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
#pragma GCC unroll 8
      for (int v = 0; v < V; v++) store(out + r * lanes_ + v * kLanes, acc[r][v]);
    }
  }

  /// All of d, at most kVectors vectors at a time.
  template <int N, int V = kVectors>
  void add_all_values(const T* page, int64_t from, int64_t to, int64_t row, int64_t lane = 0) const {
    for (; lane + V * kLanes <= lanes_; lane += V * kLanes) add_values<N, V>(page, from, to, row, lane);
    if constexpr (V > 1) {
      if (lane < lanes_) add_all_values<N, V - 1>(page, from, to, row, lane);
    }
  }

  PageHead<Operand> at_;
  int64_t size_, units_, lanes_;
  float scale_;
  int64_t count_ = 0;
  float *q_, *o_, *maximum_, *sum_, *decay_, *scores_, *weights_;
  Row* rows_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
