// The online softmax of a block of query rows over tiles of keys, which attention and attention_paged share.
// Lanes are query rows, so a row's bits depend on its visible keys alone, not on what lies between them or
// where tiles begin: scores sum over ascending units of a head, every other sum runs over ascending keys, one
// by one, a masked key adds exactly 0, and p is relative to the maximum rounded to a power of two, so that
// sums move to another maximum exactly. Scores and sums are f32; with AVX512_BF16 and bf16 storage the operands
// of both products, p included, are bf16.
#pragma once

#include <numbers>

#include "cpu/attention/tile.h"

namespace steptrain::cpu::STEPTRAIN_ISA {

constexpr float kMinimum = -1e20f;  // the maximum of no scores: above kMasked, below any score

/// A tile of keys and values in units. Unit s of key j: k[j·key_step + s·unit_step]. Values lie kSteps keys
/// to a row of units, rows of value_step.
struct KeyTile {
  const float* k;
  int64_t key_step, unit_step;
  const float* v;
  int64_t value_step;
};

/// The softmax of one block. Call add_tile for each tile that is visible to its rows, in ascending order.
template <typename Operand>
class BlockForward {
 public:
  using T = typename Operand::Storage;

  /// Floats of memory for heads of `size`; every part is a whole number of cache lines.
  static int64_t workspace(int64_t size) {
    const int64_t units = padded_units<Operand>(size), lanes = round_up(size, kLanes);
    return units * kRows + kTile * units + kTile * lanes + kTile * kRows + lanes * kRows + 3 * kRows + lanes;
  }

  /// `query(r)`: where row r of the block lies.
  template <typename Query>
  BlockForward(float* memory, int64_t size, float scale, const RowBlock& rows, Query query)
      : rows_(rows),
        size_(size),
        units_(padded_units<Operand>(size)),
        lanes_(round_up(size, kLanes)),
        vectors_(static_cast<int>((rows.count + kLanes - 1) / kLanes)),
        scale_(scale * std::numbers::log2e_v<float>),
        q_(memory),
        k_(q_ + units_ * kRows),
        v_(k_ + kTile * units_),
        scores_(v_ + kTile * lanes_),
        o_(scores_ + kTile * kRows),
        maximum_(o_ + lanes_ * kRows),
        sum_(maximum_ + kRows),
        decay_(sum_ + kRows),
        zeros_(decay_ + kRows) {
    for (int v = 0; v < vectors_; v++) {
      const T* row[kLanes];
      for (int i = 0; i < kLanes; i++) row[i] = query(std::min<int64_t>(v * kLanes + i, rows.count - 1));
      pack_columns<Operand>(row, size_, q_ + v * kLanes, kRows);
    }
    std::fill(maximum_, maximum_ + kRows, kMinimum);
    std::fill(sum_, sum_ + kRows, 0.0f);
    std::fill(zeros_, zeros_ + lanes_, 0.0f);
  }

  /// Space for a tile of keys, kTile·units() floats, and of values, kTile·lanes().
  float* keys() const { return k_; }
  float* values() const { return v_; }
  /// A head of zeros.
  const T* zeros() const { return reinterpret_cast<const T*>(zeros_); }
  int64_t units() const { return units_; }
  int64_t lanes() const { return lanes_; }

  /// Adds keys [from, to), a multiple of kTileRows within one tile. `tile` begins at `from`.
  void add_tile(const KeyTile& tile, int64_t from, int64_t to) {
    add_tile(tile, from, to, [](float*) {});
  }
  /// `adjust(scores)` changes the scores before the mask: [key][kRows] in log2 units.
  template <typename Adjust>
  void add_tile(const KeyTile& tile, int64_t from, int64_t to, Adjust adjust) {
    score(tile.k, tile.key_step, tile.unit_step, to - from, scores_);
    adjust(scores_);
    if (!rows_.all_visible(from, to)) mask(from, to);
    make_probabilities(to - from);
    add_values(tile, to - from);
    empty_ = false;
  }

  /// o = sums / sum of probabilities; `out(r)`: where row r goes.
  template <typename Out>
  void finish(Out out) const {
    for (int v = 0; v < vectors_; v++) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, rows_.count - v * kLanes));
      T* row[kLanes];
      for (int i = 0; i < n; i++) row[i] = out(v * kLanes + i);
      const vf inverse = set1(1.0f) / load(sum_ + v * kLanes);
      unpack_columns<Operand>(o_ + v * kLanes, kRows, inverse, row, n, size_);
    }
  }
  /// out[r]: the log-sum-exp of row r, of kRows.
  void log_sums(float* out) const {
    for (int64_t r = 0; r < vectors_ * kLanes; r += kLanes)
      store(out + r, fma(load(maximum_ + r), set1(std::numbers::ln2_v<float>), log(load(sum_ + r))));
  }

  /// scores[key][row] = scale·q·k in log2 units; k lies as in KeyTile.
  void score(const float* k, int64_t key_step, int64_t unit_step, int64_t keys, float* scores) const {
    const vf scale = set1(scale_);
    const int64_t steps = (size_ + Operand::kSteps - 1) / Operand::kSteps;
    by_vectors(vectors_, [&](int first, auto width) {
      for (int64_t key = 0; key < keys; key += kTileRows) {
        vf acc[kTileRows][width()] = {};
        accumulate<Operand>(acc, k + key * key_step, key_step, unit_step, q_ + first * kLanes, kRows, steps);
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < width(); v++)
            store(scores + (key + r) * kRows + (first + v) * kLanes, acc[r][v] * scale);
        }
      }
    });
  }

 private:
  void mask(int64_t from, int64_t to) const {
    for (int64_t key = from; key < to; key++) {
      if (rows_.all_visible(key, key + 1)) continue;
      float* const scores = scores_ + (key - from) * kRows;
      const auto j = static_cast<int32_t>(key);
      for (int64_t r = 0; r < kRows; r++)
        scores[r] = (j >= rows_.first[r]) & (j <= rows_.last[r]) ? scores[r] : kMasked;
      if (!rows_.key_branch || key > rows_.highest() || rows_.key_branch[key] == 0) continue;
      const int32_t branch = rows_.key_branch[key];
      for (int64_t r = 0; r < kRows; r++) scores[r] = branch == rows_.branch[r] ? scores[r] : kMasked;
    }
  }

  /// Turns scores into probabilities relative to the running maximum, as units whose steps are keys.
  void make_probabilities(int64_t keys) const {
    by_vectors(vectors_, [&](int first, auto width) {
      float* const scores = scores_ + first * kLanes;
      vf maximum[width()], sum[width()];
      for (int v = 0; v < width(); v++) maximum[v] = load(maximum_ + (first + v) * kLanes);
      for (int64_t key = 0; key < keys; key++) {
        for (int v = 0; v < width(); v++)
          maximum[v] = max(maximum[v], load(scores + key * kRows + v * kLanes));
      }
      for (int v = 0; v < width(); v++) {
        const int64_t at = (first + v) * kLanes;
        maximum[v] = round(maximum[v]);
        const vf decay = scale2_down(set1(1.0f), load(maximum_ + at) - maximum[v]);
        store(decay_ + at, decay);
        store(maximum_ + at, maximum[v]);
        sum[v] = load(sum_ + at) * decay;
      }
      for (int64_t key = 0; key < keys; key += Operand::kSteps) {
        for (int v = 0; v < width(); v++) {
          vf p[Operand::kSteps];
          for (int64_t s = 0; s < Operand::kSteps; s++) {
            p[s] = Operand::power(load(scores + (key + s) * kRows + v * kLanes), maximum[v]);
            sum[v] = sum[v] + p[s];
          }
          store(scores + key / Operand::kSteps * kRows + v * kLanes,
                Operand::round(p[0], p[Operand::kSteps - 1]));
        }
      }
      for (int v = 0; v < width(); v++) store(sum_ + (first + v) * kLanes, sum[v]);
    });
  }

  /// o[d][row] = o·decay + Σ_key v·p.
  void add_values(const KeyTile& tile, int64_t keys) const {
    by_vectors(vectors_, [&](int first, auto width) {
      vf decay[width()];
      for (int v = 0; v < width(); v++) decay[v] = load(decay_ + (first + v) * kLanes);
      for (int64_t d = 0; d < size_; d += kTileRows) {
        vf acc[kTileRows][width()];
        float* const out = o_ + d * kRows + first * kLanes;
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < width(); v++)
            acc[r][v] = empty_ ? zero() : load(out + r * kRows + v * kLanes) * decay[v];
        }
        accumulate<Operand>(acc, tile.v + d, 1, tile.value_step, scores_ + first * kLanes, kRows,
                            keys / Operand::kSteps);
        for (int r = 0; r < kTileRows; r++) {
          for (int v = 0; v < width(); v++) store(out + r * kRows + v * kLanes, acc[r][v]);
        }
      }
    });
  }

  const RowBlock& rows_;
  int64_t size_, units_, lanes_;
  bool empty_ = true;  // no tile was added
  int vectors_;
  float scale_;
  float *q_, *k_, *v_, *scores_, *o_, *maximum_, *sum_, *decay_, *zeros_;
};

}  // namespace steptrain::cpu::STEPTRAIN_ISA
